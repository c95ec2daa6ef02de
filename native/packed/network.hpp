// A packed network: its layers one after the other, in memory that is kept for the next image.
//
//   PackedNetwork network;
//   network.add(stem);
//   network.add(binary, {});
//   network.run(x, size, y, threads);
//
// Images go through one by one, or one per thread where there are enough of them. Floats and packed signs of a map stay
// where the next layer reads them; shortcuts are made band by band.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "packed.hpp"

namespace pixeldiff {

// What is added to a binary layer's output: the input itself, its average pooling through a 1x1 convolution, or its
// ReplicaPool, `copies` copies of the channels and the mean of their `parts` parts, after pooling if `pool`.
struct Shortcut {
  const FloatConv* projection = nullptr;
  int copies = 0, parts = 0;
  bool pool = false;
};

struct MapShape {
  int height, width, channels;
  size_t floats() const { return static_cast<size_t>(height) * width * channels; }
};

class PackedNetwork {
 public:
  PackedNetwork();
  ~PackedNetwork();

  // The layers are not copied: they live at least as long as the network.
  void add(const FloatConv& conv);
  void add(const BinaryConv& conv, const Shortcut& shortcut);
  void add_max_pool();
  void add_mean(const FloatConv& linear);     // of the mean over all pixels
  void add_flatten(const FloatConv& linear);  // of all pixels

  int layers() const { return static_cast<int>(layers_.size()); }
  // The shape behind layers [first, last). Throws std::invalid_argument where a map does not fit a layer.
  MapShape shape(MapShape shape, int first, int last) const;
  // Runs layers [first, last) on maps of x, (count, height, width, channels).
  void run(const float* x, int count, MapShape shape, float* y, int threads, int first, int last) const;

 private:
  enum class Kind { kFloat, kBinary, kMaxPool, kMean, kFlatten };
  struct Layer {
    Kind kind;
    const FloatConv* conv;
    const BinaryConv* binary;
    Shortcut shortcut;
    MapShape shape(MapShape in) const;
  };
  struct Space;

  void run_image(const float* x, MapShape shape, float* y, int threads, int first, int last, Space& space) const;
  std::unique_ptr<Space> take() const;
  void give_back(std::unique_ptr<Space> space) const;

  std::vector<Layer> layers_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Space>> spaces_;
};

}  // namespace pixeldiff
