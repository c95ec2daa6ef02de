// What the kernels of every instruction set share: rows of maps, and weights in the order in which they are read.
//
// A map is [row][channel][x]. Left of every row lie kMargin zeros, right of it at least as many, so that shifted reads
// need no look at the border. Planes come in groups of four; those that no channel uses hold zeros.
#pragma once

#include <cstddef>
#include <vector>

#include "pidinet.hpp"

namespace pixeldiff::pidinet {

constexpr int kGroup = 4;    // outputs whose weights lie side by side
constexpr int kMargin = 16;  // zeros beside a row; the widest dilation reads 11
constexpr int kViews = 4;
constexpr int kDilations[kViews] = {5, 7, 9, 11};
constexpr int kHidden = 4;            // channels of the attention
constexpr int kTraits = kHidden + 1;  // what the attention and the reduction need of a side
constexpr int kWidestTile = 96;       // columns
constexpr int kScratch = 160 * 1024;  // bytes of depthwise results between two passes: a part of the second-level cache

inline int groups_of(int channels) { return (channels + kGroup - 1) / kGroup; }
inline int round_up(int n, int step) { return (n + step - 1) / step * step; }

// The last `rows` rows of a map, or all of them.
struct Map {
  float* data = nullptr;
  int channels = 0, height = 0, width = 0, rows = 0;
  size_t plane = 0, stride = 0;

  Map() = default;
  Map(int channels, int height, int width, int rows);
  size_t floats() const { return static_cast<size_t>(rows) * stride + 2 * kMargin; }
  float* row(int y) const { return data + static_cast<size_t>(y % rows) * stride; }
  void clear_margins() const;
};

// One row of a map, channel c at data + c * plane; a row outside the map is zeros with plane = 0.
struct Row {
  const float* data;
  size_t plane;
};

// Weights of a 1x1 convolution: [group of outputs][input][4], and of each output its bias.
struct Pointwise {
  int inputs = 0, outputs = 0;
  std::vector<float> weights, bias;
};

struct Stem {
  int outputs = 0, support = 3;
  std::vector<float> weights;  // [group][row, channel, column][4]
  int radius() const { return support / 2; }
};

// depthwise -> ReLU -> pointwise, plus the shortcut: none, the input, or a 1x1 convolution of it.
struct Block {
  int inputs = 0, outputs = 0;
  char kind = 'v';
  bool identity = false;
  std::vector<float> depthwise;  // nine per channel; for radial ones the eight outer weights in row order
  Pointwise pointwise, shortcut;
  int radius() const { return kind == 'r' ? 2 : 1; }
};

// From a stage's features to its logits. reduce(x * a) = a * reduce(x), so the attention's map a and the reduction are
// both 1x1 convolutions of x: its traits.
struct Side {
  int channels = 0;  // of what the traits are of
  bool cdcm = false, csam = false;
  Pointwise squeeze;
  std::vector<float> direct[kViews];    // [group][row, column, input][4]
  std::vector<float> winograd[kViews];  // [group][six, column, input][4]
  std::vector<float> traits;            // per channel: the weights of the hidden channels, if any, and the reduction's
  float hidden_bias[kHidden] = {}, attend[9 * kHidden] = {}, bias = 0;

  int planes() const { return csam ? kTraits : 1; }
};

struct Layers {
  Config config;
  Stem stem;
  std::vector<Block> stages[kStages];  // the first has three, the stem before them
  Side sides[kStages];
  float fusion[kStages] = {}, bias = 0;

  int width(int stage) const { return config.width << (stage < 2 ? stage : 2); }
  // Rows that the layers from `layer` to the stage's end see above and below.
  int reach(int stage, int layer) const;
  const Block* block(int stage, int layer) const;  // null for the stem
};

// Throws std::invalid_argument unless the weights are as many as the network has, and numbers.
std::unique_ptr<Layers> make_layers(const Config& config, const float* weights, size_t count);

// Where a block's tile may leave further results.
struct Squeezed {
  const Pointwise* squeeze = nullptr;  // of ReLU, into `map`
  const Side* side = nullptr;          // its traits, into `map`
  float* map[2] = {};
  size_t plane = 0;
};

// Two rows of a block: the input rows from `radius` above the first to `radius` below the second.
struct BlockCall {
  Row input[6];
  int rows, width;  // one or two rows are kept
  float* output[2];
  size_t plane;
  float* scratch;
  Squeezed squeezed;
};
size_t scratch_floats(int channels);

// Columns [x0, x1) of rows [y0, y1) of a side with CDCM; `zeros` are a row outside the map.
struct DilationCall {
  const Map* squeezed;
  const float* zeros;
  int y0, y1, x0, x1;
  Map traits;
  float* transformed;  // six rows of all channels
  float* sums;         // all rows and channels
};
constexpr int kSegment = 256;  // most columns of a call
struct DilationSpace {
  size_t plane, transformed, sums;
};
DilationSpace dilation_space(int channels, int rows);

// What the last step blends for one row: two rows of each coarser map.
struct FuseCall {
  int width;
  const float* finest;
  struct Coarse {
    const float *upper, *lower;
    float below;  // weight of the lower row
    int width;
    const int* left;     // of each column
    const float* right;  // weight of the right neighbour
  } coarse[kStages - 1];
  float* line;  // scratch, a row of the finest of them
  float* edges;
};

// The functions of one instruction set; all of them work on whole rows.
struct Kernels {
  const char* name;
  bool (*supported)();
  void (*stem)(const Stem& stem, const Row* rows, int width, float* out, size_t plane);
  void (*block)(const Block& block, const BlockCall& call);
  void (*pool)(const float* first, const float* second, size_t plane, int channels, int width, float* out,
               size_t out_plane);
  void (*dilate)(const Side& side, const DilationCall& call);
  // Logits of a row from the traits of three, or from the reduction alone.
  void (*attend)(const Side& side, const Row* traits, int width, float* logits);
  void (*fuse)(const Layers& layers, const FuseCall& call);
  // Runs `rounds` rounds of independent multiply-adds; returns how many they are. For measuring what a core can do.
  double (*multiply_adds)(int rounds);
};

extern const Kernels portable_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels neon_kernels;
extern const Kernels wasm_kernels;

}  // namespace pixeldiff::pidinet
