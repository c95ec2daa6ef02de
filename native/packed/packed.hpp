// 1-bit convolution: sign, pack, count mismatches by table lookup, normalise, activate, add the shortcut.
//
// A product of signs is -1 where two bits differ, so a sum of n products is n - 2 * mismatches. Bits are handled four at
// a time: the mismatches of an activation nibble a with a weight nibble w are one entry of a table with 16 rows,
// popcount(a ^ w). Vector shuffles look up 16 to 64 weights (one per output channel) in one instruction.
//
//   code   0..15, four bits of one pixel (four channels, or four differences of one), or kOutside outside the map
//   pair   two neighbouring output pixels share one lookup: byte = mismatches of the first | mismatches of the second << 4
//   entry  uint16 offset of a pair's 16-byte table; tables of outside pixels are 0, so borders need no correction
//
// Sets with a fast count of bits in vectors take words instead: the bits under the kernel of one output pixel, its patch,
// lie one behind the other, and a word of it meets the same word of eight outputs at once. There, bits outside the map
// are 0, and what they count is taken off.
//
// Maps are channels last. Output pixel (y, x) is centred on input pixel (stride * y, stride * x). Sign(0) = +1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pixeldiff {

constexpr int kBlock = 64;        // output channels that are computed together
constexpr int kOutside = 16;      // code of a nibble outside the map
constexpr int kMostNibbles = 63;  // four mismatches each fit a byte
constexpr int kMostProducts = 32767;

// Eight floats, eight ints, eight counts, sixteen entries; loads from any address.
typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(32), aligned(4)));
typedef uint16_t Shorts __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t Entries __attribute__((vector_size(32), aligned(2), may_alias));
constexpr int kLanes = 8;

struct PixelPair {
  int plus_y, plus_x, minus_y, minus_x;
};

struct MapSize {
  int count, height, width;
};

inline int words_of(int bits) { return (bits + 63) / 64; }
inline int nibbles_of(int bits) { return (bits + 3) / 4; }
inline int steps(int side, int stride) { return (side - 1) / stride + 1; }

// Nibbles of one kernel row (differences have one): at most kMostNibbles of them from its entry `column` on.
struct Segment {
  int row, column, nibbles;
};

// Segments with at most kMostNibbles nibbles in all, and where they start among the weights' lines.
struct Chunk {
  std::vector<Segment> segments;
  size_t line;
};

// A segment of one call: its first entry relative to the pixel pair's.
struct Run {
  size_t offset, nibbles;
};

// One branch's weights for one instruction set. Sets that look up nibbles: [output block][nibble][kBlock bytes], and how
// to walk over them. Sets that count bits: [output block][word of a patch][output] words of 64 bits, of sixteen outputs
// the even ones first, so that two vectors of sums are one of 32-bit numbers in order.
struct BranchWeights {
  struct alignas(kBlock) Line {  // one cache line: no load of weights straddles two
    uint8_t bytes[kBlock];
  };
  int nibbles = 0;  // per output channel
  int words = 0;    // likewise
  std::vector<Line> lines;
  std::vector<Chunk> chunks;
};

// What follows the sums of sixteen outputs, side by side, so that the last step walks over one array:
// y = scale * sum + shift per branch, as batch norm folds; RPReLU is prelu(y + before, slope) + after.
constexpr int kGroup = 16;
struct alignas(64) Epilogue {
  float difference_scale[kGroup], difference_shift[kGroup], plain_scale[kGroup], plain_shift[kGroup];
  struct Activation {
    float before[kGroup], slope[kGroup], after[kGroup];
  } activation[2];  // one after the sum, or one per branch (differences first)
};

struct Kernels;

// The mixed binary layer: differences of the first `differing` channels, plain pixels of the others.
struct BinaryConv {
  int in_channels, out_channels, kernel_size, stride, differing;
  std::vector<PixelPair> pairs;
  BranchWeights plain, difference;
  std::vector<int32_t> ones;       // of the plain weights, [output block][tap][kBlock]; for sets that count bits
  std::vector<Epilogue> epilogue;  // of whole blocks of outputs
  int activations = 0;             // 1 or 2
  const Kernels* kernels;

  // Signs are 1 for +1 and 0 for -1: plain (out, in - differing, k, k), difference (out, differing, pairs).
  BinaryConv(int in_channels, int out_channels, int kernel_size, int stride, std::vector<PixelPair> pairs,
             int differing, const uint8_t* plain_signs, const uint8_t* difference_signs, const Kernels& kernels);

  int plain_channels() const { return in_channels - differing; }
  int difference_bits() const { return differing * static_cast<int>(pairs.size()); }
  // The place of a difference among the nibbles' bits: eight pairs at a time, channel by channel. They take two nibbles
  // of each channel, even where some are missing.
  int difference_place(int channel, int pair) const { return 8 * (pair / 8 * differing + channel) + pair % 8; }
  // Bits of one pixel pair in a patch: comparisons give 16 at a time.
  int pair_bits() const { return (differing + 15) / 16 * 16; }
  int blocks() const { return (out_channels + kBlock - 1) / kBlock; }

  void set_norms(const float* difference_scale, const float* difference_shift, const float* plain_scale,
                 const float* plain_shift);
  void add_activation(const float* before, const float* slope, const float* after);
};

// What one call reads and writes. `bits` (packed signs of x) and `shortcut` may be null; either y and y_bits are, or
// the sums.
struct BinaryCall {
  MapSize size;
  const float* x;
  const uint64_t* bits;
  const float* shortcut;
  float* y;
  uint64_t* y_bits;
  int32_t* difference_sums;
  int32_t* plain_sums;
  // Makes rows [y0, y1) of the shortcut of a single image where `shortcut` is null, for each band of outputs; only the
  // output blocks [b0, b1) are read.
  std::function<void(int y0, int y1, int b0, int b1, float* rows)> shortcut_rows = {};
  int first_shortcut_row = 0;  // of the output, in `shortcut`
};

void run(const BinaryConv& conv, const BinaryCall& call, int threads);

// Float convolution with the same epilogue, for stems, 1x1 shortcuts and the classifier.
struct FloatConv {
  int in_channels, out_channels, kernel_size, stride;
  std::vector<float> weights;      // [output block of kFloatBlock][ky, kx, channel][kFloatBlock]
  std::vector<Epilogue> epilogue;  // of whole blocks of outputs; the branch is the plain one
  bool activated = false;
  const Kernels* kernels;

  FloatConv(int in_channels, int out_channels, int kernel_size, int stride, const float* weight, const float* scale,
            const float* shift, const Kernels& kernels);

  void set_activation(const float* before, const float* slope, const float* after);
  int blocks() const { return static_cast<int>(epilogue.size()); }
};
constexpr int kFloatBlock = kGroup;

void run(const FloatConv& conv, MapSize size, const float* x, float* y, int threads);

// The functions of one instruction set.
struct Kernels {
  const char* name;
  bool (*supported)();
  int vector_bytes;  // of the lookup; decides the order of weights in a block. 0: the set counts bits in words
  void (*pack_signs)(const float* x, size_t pixels, int channels, uint64_t* words);
  // Entries of the difference signs of output row `y`, and up to 16 beyond them.
  void (*difference_row)(const BinaryConv& conv, const float* x, MapSize size, int y, uint16_t* entries);
  // Output rows [y0, y1) of image `n`, output blocks [b0, b1).
  void (*binary_band)(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int y1, int b0, int b1);
  // The same of one image's float convolution, from the band's first row on; its blocks are of kFloatBlock outputs.
  void (*float_band)(const FloatConv& conv, MapSize size, const float* image, float* rows, int y0, int y1, int b0,
                     int b1);
  // One row of average_pool, of an image; and of max_pool, of two or three rows.
  void (*average_row)(const float* image, MapSize size, int channels, int y, float* out);
  void (*max_row)(const float* const* rows, int count, int width, int channels, float* out);
  // Counts mismatches of a few pixels with a block of outputs, near at hand, so many times; returns how many binary
  // multiply-adds that is. For measuring what a core can do.
  double (*count)(int rounds);
};

extern const Kernels portable_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels avx512_popcount_kernels;
extern const Kernels neon_kernels;

// The instruction sets that were built and that this CPU has, best first; "portable" is always last.
std::vector<const Kernels*> available_kernels();
// The one named by PIXELDIFF_ISA, or the best. Throws std::invalid_argument for a name that is not available.
const Kernels& choose_kernels();
// What a core can do with them: binary multiply-adds per second, by CPU time.
double binary_peak(const Kernels& kernels);

// 16-byte tables of entries, (kOutside + 1)^2 of them: table of codes (a, b) at entry 16 * (a + 17 * b).
const uint8_t* pair_tables();

void pack_signs(const Kernels& kernels, const float* x, size_t pixels, int channels, uint64_t* words);
// Difference bits in words_of(bits) words per output pixel: channel by channel, the pairs of each.
void pack_differences(const BinaryConv& conv, const float* x, MapSize size, uint64_t* words);

// Shortcuts: average pooling 2x2 (windows cut at odd sides), max pooling 3x3 / 2, and the joined copies of ReplicaPool.
void average_pool(const float* x, MapSize size, int channels, float* y, int threads);
void max_pool(const float* x, MapSize size, int channels, float* y, int threads);
void replicate(const float* x, size_t pixels, int channels, int copies, int parts, float* y);

}  // namespace pixeldiff
