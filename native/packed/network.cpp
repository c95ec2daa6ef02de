// See network.hpp.
#include "network.hpp"

#include <algorithm>
#include <stdexcept>

#include "memory.hpp"
#include "threads.hpp"

namespace pixeldiff {
namespace {

void check(bool fine, const char* message) {
  if (!fine) throw std::invalid_argument(message);
}

template <class T>
T* room(std::vector<T>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

MapSize size_of(MapShape shape) { return {1, shape.height, shape.width}; }

void mean(const float* x, MapShape shape, float* y) {
  const size_t pixels = static_cast<size_t>(shape.height) * shape.width;
  std::fill_n(y, shape.channels, 0.0f);
  for (size_t p = 0; p < pixels; ++p, x += shape.channels) {
    for (int c = 0; c < shape.channels; ++c) y[c] += x[c];
  }
  for (int c = 0; c < shape.channels; ++c) y[c] /= static_cast<float>(pixels);
}

// Rows [y0, y1) of a shortcut, at least the output blocks [b0, b1).
void shortcut_rows(const Shortcut& shortcut, const Kernels& kernels, const float* x, MapShape in, int y0, int y1,
                   int b0, int b1, float* y) {
  static thread_local std::vector<float> pooled;
  const bool pool = shortcut.projection || shortcut.pool;
  const int columns = pool ? steps(in.width, 2) : in.width;
  const size_t row = static_cast<size_t>(columns) * in.channels;
  const float* source = x + y0 * row;
  if (pool) {
    float* rows = room(pooled, (y1 - y0) * row);
    for (int r = y0; r < y1; ++r) kernels.average_row(x, size_of(in), in.channels, r, rows + (r - y0) * row);
    source = rows;
  }
  if (shortcut.projection) {
    const FloatConv& conv = *shortcut.projection;
    constexpr int kParts = kBlock / kFloatBlock;
    conv.kernels->float_band(conv, {1, y1 - y0, columns}, source, y, 0, y1 - y0, b0 * kParts,
                             std::min(conv.blocks(), b1 * kParts));
  } else {
    replicate(source, static_cast<size_t>(y1 - y0) * columns, in.channels, shortcut.copies, shortcut.parts, y);
  }
}

// A convolution and the max pooling behind it: its map is as large as the caches, so it is never written out whole.
void run_pooled(const FloatConv& conv, MapShape in, const float* x, MapShape pooled, float* y, int threads) {
  const int rows = steps(in.height, conv.stride), columns = steps(in.width, conv.stride);
  const size_t row = static_cast<size_t>(columns) * conv.out_channels;
  constexpr int kMostRows =
      8;  // of the pooled map, as many as stay in the caches; fewer, where threads are to share them
  const int step = std::min(kMostRows, (pooled.height + 4 * threads - 1) / (4 * threads));
  parallel((pooled.height + step - 1) / step, threads, [&](int task) {
    static thread_local std::vector<float> buffer;
    const int first = task * step, last = std::min(pooled.height, first + step);
    const int from = std::max(0, 2 * first - 1), to = std::min(rows, 2 * last);
    float* band = room(buffer, (to - from) * row);
    conv.kernels->float_band(conv, size_of(in), x, band, from, to, 0, conv.blocks());
    for (int r = first; r < last; ++r) {
      const float* inputs[3];
      int count = 0;
      for (int k = std::max(2 * r - 1, 0); k <= std::min(2 * r + 1, rows - 1); ++k) {
        inputs[count++] = band + (k - from) * row;
      }
      conv.kernels->max_row(inputs, count, columns, conv.out_channels,
                            y + static_cast<size_t>(r) * pooled.width * pooled.channels);
    }
  });
}

}  // namespace

// The maps of one image on its way: two take turns. A layer reads one and writes the other at about the same place, and
// a CPU takes addresses for equal whose last 12 bits are: half a page lies between them.
struct PackedNetwork::Space {
  Memory memory;
  size_t step = 0;  // floats from one map to the other
  std::vector<float> pixel;
  std::vector<uint64_t> bits[2];

  void fit(size_t floats) {
    constexpr size_t kPage = 1024;
    step = (floats + kPage - 1) / kPage * kPage + kPage / 2 + 16;
    memory.room(2 * step);
  }
  float* map(int turn) const { return memory.data() + turn * step; }
};

PackedNetwork::PackedNetwork() = default;
PackedNetwork::~PackedNetwork() = default;

void PackedNetwork::add(const FloatConv& conv) { layers_.push_back({Kind::kFloat, &conv, nullptr, {}}); }
void PackedNetwork::add_max_pool() { layers_.push_back({Kind::kMaxPool, nullptr, nullptr, {}}); }
void PackedNetwork::add_mean(const FloatConv& linear) { layers_.push_back({Kind::kMean, &linear, nullptr, {}}); }
void PackedNetwork::add_flatten(const FloatConv& linear) { layers_.push_back({Kind::kFlatten, &linear, nullptr, {}}); }

void PackedNetwork::add(const BinaryConv& conv, const Shortcut& shortcut) {
  const int inputs = conv.in_channels, outputs = conv.out_channels;
  const bool pool = shortcut.projection || shortcut.pool;
  int channels = inputs;
  if (shortcut.projection) {
    check(shortcut.projection->in_channels == inputs && shortcut.projection->kernel_size == 1 &&
              shortcut.projection->stride == 1,
          "a projection is a 1x1 convolution of the layer's input");
    channels = shortcut.projection->out_channels;
  } else if (shortcut.copies) {
    check(shortcut.copies > 0 && shortcut.parts > 0 && inputs % shortcut.parts == 0,
          "copies and parts are positive, parts divide the channels");
    channels = shortcut.copies * inputs + inputs / shortcut.parts;
  }
  check(conv.stride == (pool ? 2 : 1) && channels == outputs && conv.activations > 0,
        "the shortcut does not give the layer's shape");
  layers_.push_back({Kind::kBinary, nullptr, &conv, shortcut});
}

MapShape PackedNetwork::Layer::shape(MapShape in) const {
  const auto fits = [&](int channels) { check(in.channels == channels, "the map's channels are not the layer's"); };
  switch (kind) {
    case Kind::kFloat:
      fits(conv->in_channels);
      return {steps(in.height, conv->stride), steps(in.width, conv->stride), conv->out_channels};
    case Kind::kBinary:
      fits(binary->in_channels);
      return {steps(in.height, binary->stride), steps(in.width, binary->stride), binary->out_channels};
    case Kind::kMaxPool:
      return {steps(in.height, 2), steps(in.width, 2), in.channels};
    case Kind::kMean:
      fits(conv->in_channels);
      return {1, 1, conv->out_channels};
    case Kind::kFlatten:
      check(in.floats() == static_cast<size_t>(conv->in_channels), "the map's size is not the linear layer's");
      return {1, 1, conv->out_channels};
  }
  return in;
}

MapShape PackedNetwork::shape(MapShape shape, int first, int last) const {
  check(0 <= first && first < last && last <= layers(), "no such layers: expected 0 <= first < last <= layers");
  for (int i = first; i < last; ++i) shape = layers_[i].shape(shape);
  return shape;
}

void PackedNetwork::run_image(const float* x, MapShape in, float* y, int threads, int first, int last,
                              Space& space) const {
  size_t most = 0;
  MapShape next = in;
  for (int i = first; i + 1 < last; ++i) {
    next = layers_[i].shape(next);
    const bool pooled = layers_[i].kind == Kind::kFloat && layers_[i + 1].kind == Kind::kMaxPool;
    if (!pooled) most = std::max(most, next.floats());
  }
  space.fit(most);
  const uint64_t* bits = nullptr;
  for (int i = first, turn = 0; i < last; ++i, turn = 1 - turn) {
    const Layer& layer = layers_[i];
    MapShape out = layer.shape(in);
    const bool pooled = layer.kind == Kind::kFloat && i + 1 < last && layers_[i + 1].kind == Kind::kMaxPool;
    if (pooled) out = layers_[++i].shape(out);
    float* target = i + 1 == last ? y : space.map(turn);
    const uint64_t* next_bits = nullptr;
    if (pooled) {
      run_pooled(*layer.conv, in, x, out, target, threads);
    } else if (layer.kind == Kind::kFloat) {
      pixeldiff::run(*layer.conv, size_of(in), x, target, threads);
    } else if (layer.kind == Kind::kMaxPool) {
      max_pool(x, size_of(in), in.channels, target, threads);
    } else if (layer.kind == Kind::kMean) {
      float* pixel = room(space.pixel, in.channels);
      mean(x, in, pixel);
      pixeldiff::run(*layer.conv, {1, 1, 1}, pixel, target, threads);
    } else if (layer.kind == Kind::kFlatten) {
      pixeldiff::run(*layer.conv, {1, 1, 1}, x, target, threads);
    } else {
      const BinaryConv& conv = *layer.binary;
      const Shortcut& shortcut = layer.shortcut;
      const size_t words = static_cast<size_t>(out.height) * out.width * words_of(out.channels);
      uint64_t* own = room(space.bits[turn], words);
      BinaryCall call{size_of(in), x, bits, x, target, own, nullptr, nullptr};
      if (shortcut.projection || shortcut.copies) {
        call.shortcut = nullptr;
        call.shortcut_rows = [&](int y0, int y1, int b0, int b1, float* rows) {
          shortcut_rows(shortcut, *conv.kernels, x, in, y0, y1, b0, b1, rows);
        };
      }
      pixeldiff::run(conv, call, threads);
      next_bits = own;
    }
    x = target;
    bits = next_bits;
    in = out;
  }
}

void PackedNetwork::run(const float* x, int count, MapShape in, float* y, int threads, int first, int last) const {
  const size_t inputs = in.floats(), outputs = shape(in, first, last).floats();
  const int alone = threads > 1 ? count / threads * threads : 0;  // images that have a thread of their own
  const auto image = [&](int i, int threads) {
    std::unique_ptr<Space> space = take();
    run_image(x + i * inputs, in, y + i * outputs, threads, first, last, *space);
    give_back(std::move(space));
  };
  parallel(alone, threads, [&](int i) { image(i, 1); });
  for (int i = alone; i < count; ++i) image(i, threads);
}

// Nobody waits for the lock: in a forked child it may be held by a thread that is not there.
std::unique_ptr<PackedNetwork::Space> PackedNetwork::take() const {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || spaces_.empty()) return std::make_unique<Space>();
  auto space = std::move(spaces_.back());
  spaces_.pop_back();
  return space;
}

void PackedNetwork::give_back(std::unique_ptr<Space> space) const {
  constexpr size_t kKept = size_t{1} << 24;  // floats; larger maps go back after a run
  if (space->memory.size() > kKept) return;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) spaces_.push_back(std::move(space));
}

}  // namespace pixeldiff
