// PiDiNet in float32: pictures in, maps of edges out. No Python, no other library.
//
//   const Network network(config, weights, weight_count(config), choose_kernels());
//   detect(network, picture, {edges}, threads);
//
// A stage is one pipeline over rows: each layer keeps its last rows, and a row is finished as soon as the rows it reads
// are. A large picture goes through in strips of rows, full width, that carry on where the last one ended. A row's
// arithmetic depends on its place alone, so neither threads nor strips change a bit of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pixeldiff::pidinet {

constexpr int kStages = 4, kLayers = 4;
constexpr int kSmallest = 8;  // height and width: the three poolings leave a pixel
constexpr int kLargest = 65535;
constexpr int kMostChannels = 4096;

struct Config {
  int width, side_channels;
  std::string kinds;  // 16 of the letters c, a, r, v
  bool cdcm, csam, shortcuts;
};

// Floats of a network's weights, in this order; kernels are folded, 5x5 for radial layers and 3x3 for the others:
//   stem (C, 3, k, k)
//   of each stage
//     of each block: depthwise (I, k, k), pointwise (O, I); where a stage opens: shortcut (O, I), bias (O)
//     cdcm: squeeze (M, O), bias (M), four views (M, M, 3, 3)
//     csam: squeeze (4, N), bias (4), attend (4, 3, 3), of the N channels that the side has then
//     reduce (N), bias
//   fusion (4), bias
// Throws std::invalid_argument for a configuration that cannot be.
size_t weight_count(const Config& config);
// The same, tensor by tensor.
std::vector<size_t> weight_sizes(const Config& config);
// The kinds of layers by the sizes of their folded kernels: 3, or 5 for a radial one. Throws std::invalid_argument for
// others.
std::string kinds_of(const std::vector<int>& kernel_sizes);

struct Kernels;
struct Layers;
struct Workspace;

// Weights as the kernels want them, and the workspaces of those who run it: one each, kept for the next picture.
class Network {
 public:
  Network(const Config& config, const float* weights, size_t count, const Kernels& kernels);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Layers& layers() const { return *layers_; }
  const Kernels& kernels() const { return kernels_; }
  std::unique_ptr<Workspace> take() const;
  void give_back(std::unique_ptr<Workspace> space) const;

 private:
  std::unique_ptr<Layers> layers_;
  const Kernels& kernels_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> spaces_;
};

// Either bytes, (height, width, 3), with the value of each byte and channel in a table (3, 256); or normalised planes,
// (3, height, width).
struct Picture {
  int height, width;
  const uint8_t* bytes;
  const float* table;
  const float* planes;
};

// `edges`: probabilities, (height, width). `sides`: logits at their stages' resolution, (height >> s, width >> s), all
// four or none.
struct Maps {
  float* edges;
  float* sides[kStages] = {};
};

// `between` is called by the caller's thread between bands of rows; what it throws ends the run. `memory` bounds the
// workspace, as far as its least size allows.
void detect(const Network& network, const Picture& picture, const Maps& maps, int threads,
            size_t memory = size_t{96} << 20, const std::function<void()>& between = {});

// The instruction sets that were built, that this CPU has and that agree with the portable one on a small network, best
// first; "portable" is always last.
std::vector<const Kernels*> available_kernels();
// The one named by PIXELDIFF_ISA, or the best. Throws std::invalid_argument for a name that is not available.
const Kernels& choose_kernels();
const char* name_of(const Kernels& kernels);
// What a core can do with them: multiply-adds per second, by CPU time.
double fma_peak(const Kernels& kernels);

}  // namespace pixeldiff::pidinet
