// A libFuzzer target: every kernel on maps and layers that a file's bytes describe, within the limits that the Python
// face and the .pdn reader hold them to. Buffers are exactly sized on the heap, so that a sanitizer sees every access
// beyond; what a kernel refuses (std::invalid_argument) is no finding.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "edges/boundary.hpp"
#include "edges/match.hpp"
#include "edges/nms.hpp"
#include "edges/thin.hpp"
#include "edges/trace.hpp"
#include "float/pidinet.hpp"
#include "packed/packed.hpp"

using namespace pixeldiff;

namespace {

// The input as numbers; zeros when it is used up.
struct Source {
  const uint8_t* data;
  size_t size, at = 0;

  uint8_t byte() { return at < size ? data[at++] : 0; }
  int below(int n) { return (byte() << 8 | byte()) % n; }

  template <class T>
  std::unique_ptr<T[]> array(size_t count) {
    std::unique_ptr<T[]> values(new T[count]());
    const size_t have = std::min(size - at, count * sizeof(T));
    std::memcpy(values.get(), data + at, have);
    at += have;
    return values;
  }
  std::unique_ptr<uint8_t[]> signs(size_t count) {
    auto values = array<uint8_t>(count);
    for (size_t i = 0; i < count; ++i) values[i] &= 1;
    return values;
  }
};

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<int32_t> set_pixels(const uint8_t* map, int size) {
  std::vector<int32_t> pixels;
  for (int i = 0; i < size; ++i) {
    if (map[i] & 1) pixels.push_back(i);
  }
  return pixels;
}

void fuzz_maps(Source& source, int kernel) {
  const int height = 1 + source.below(40), width = 1 + source.below(40), size = height * width;
  const double radius = source.below(2000) / 100.0;
  if (kernel == 0) {
    const auto map = source.array<float>(size);
    require(nms(map.get(), height, width, 1 + source.below(4)).size() == static_cast<size_t>(size));
    return;
  }
  const auto map = source.array<uint8_t>(size);
  if (kernel == 1) {
    for (int32_t pixel : thin(map.get(), height, width)) require(pixel >= 0 && pixel < size && map[pixel]);
  } else if (kernel == 2) {
    const Chains chains = trace(map.get(), height, width);
    require(chains.starts.back() == static_cast<int64_t>(chains.pixels.size()));
  } else if (kernel == 3) {
    const auto predicted = set_pixels(map.get(), size), truth = set_pixels(source.array<uint8_t>(size).get(), size);
    Matcher matcher(predicted, truth, height, width, radius, source.byte());
    for (size_t p = 0; p < predicted.size(); ++p) matcher.insert(static_cast<int32_t>(p));
    for (size_t p = 0; p < predicted.size(); p += 2) matcher.remove(static_cast<int32_t>(p));
    require(matcher.pairs() <= static_cast<int64_t>(truth.size()));
  } else {
    std::vector<int> levels;
    for (int i = source.below(6); i >= 0; --i) levels.push_back(source.below(257));
    std::vector<std::vector<int32_t>> truths;
    for (int i = source.below(3); i >= 0; --i) truths.push_back(set_pixels(source.array<uint8_t>(size).get(), size));
    const bool thinned = source.byte() & 1;
    const auto counts = count_boundary(map.get(), height, width, levels, thinned, truths, radius);
    require(counts.cost.size() == levels.size());
  }
}

void fuzz_packed(Source& source, bool binary) {
  const auto all = available_kernels();
  const Kernels& kernels = *all[source.byte() % all.size()];
  const int inputs = 1 + source.below(140), outputs = 1 + source.below(140), stride = 1 + source.byte() % 16;
  const int kernel_size = 1 + 2 * (source.byte() % 5), taps = kernel_size * kernel_size;
  const MapSize size{1 + source.byte() % 2, 1 + source.below(12), 1 + source.below(12)};
  const size_t pixels = static_cast<size_t>(size.count) * size.height * size.width;
  const size_t results = static_cast<size_t>(size.count) * steps(size.height, stride) * steps(size.width, stride);
  std::vector<float> norm(6 * outputs, 0.5f);
  std::unique_ptr<float[]> y(new float[results * outputs]);
  if (!binary) {
    const auto weight = source.array<float>(static_cast<size_t>(outputs) * inputs * taps);
    FloatConv conv(inputs, outputs, kernel_size, stride, weight.get(), norm.data(), norm.data() + outputs, kernels);
    const auto x = source.array<float>(pixels * inputs);
    run(conv, size, x.get(), y.get(), 1);
    return;
  }
  const int differing = source.below(inputs + 1);
  std::vector<PixelPair> pairs;
  const auto offset = [&] { return source.byte() % 63 - 31; };
  if (differing) {
    for (int i = source.byte() % 12; i >= 0; --i) pairs.push_back({offset(), offset(), offset(), offset()});
  }
  const auto plain = source.signs(static_cast<size_t>(outputs) * (inputs - differing) * taps);
  const auto difference = source.signs(static_cast<size_t>(outputs) * differing * pairs.size());
  BinaryConv conv(inputs, outputs, kernel_size, stride, pairs, differing, plain.get(), difference.get(), kernels);
  const float* first = norm.data();
  conv.set_norms(differing ? first : nullptr, differing ? first + outputs : nullptr,
                 differing < inputs ? first : nullptr, differing < inputs ? first + outputs : nullptr);
  conv.add_activation(first, first + outputs, first + 2 * outputs);
  const auto x = source.array<float>(pixels * inputs);
  std::unique_ptr<uint64_t[]> bits(new uint64_t[results * words_of(outputs)]);
  run(conv, {size, x.get(), nullptr, nullptr, y.get(), bits.get(), nullptr, nullptr}, 1);
}

void fuzz_pools(Source& source) {
  const MapSize size{1 + source.byte() % 2, 1 + source.below(20), 1 + source.below(20)};
  const int channels = 1 + source.below(70), copies = 1 + source.byte() % 4;
  const size_t pixels = static_cast<size_t>(size.count) * size.height * size.width;
  const auto x = source.array<float>(pixels * channels);
  const size_t halves = static_cast<size_t>(size.count) * steps(size.height, 2) * steps(size.width, 2);
  std::unique_ptr<float[]> y(new float[halves * channels]), copied(new float[pixels * (copies * channels + 1)]);
  average_pool(x.get(), size, channels, y.get(), 1);
  max_pool(x.get(), size, channels, y.get(), 1);
  replicate(x.get(), pixels, channels, copies, channels, copied.get());
}

void fuzz_network(Source& source) {
  const auto all = pidinet::available_kernels();
  const pidinet::Kernels& kernels = *all[source.byte() % all.size()];
  pidinet::Config config{1 + source.byte() % 7, 1 + source.byte() % 7, "", false, false, false};
  for (int i = 0; i < 16; ++i) config.kinds += "carv"[source.byte() % 4];
  const uint8_t switches = source.byte();
  config.cdcm = switches & 1, config.csam = switches & 2, config.shortcuts = switches & 4;
  const int height = 1 + source.byte() % 90, width = 1 + source.byte() % 60;
  const size_t count = pidinet::weight_count(config), pixels = static_cast<size_t>(height) * width;
  const auto weights = source.array<float>(count);
  for (size_t i = 0; i < count; ++i) weights[i] = std::isfinite(weights[i]) ? weights[i] : 0.0f;
  const auto bytes = source.array<uint8_t>(3 * pixels);
  const auto table = source.array<float>(3 * 256);
  const pidinet::Network network(config, weights.get(), count, kernels);
  std::unique_ptr<float[]> edges(new float[pixels]);
  pidinet::detect(network, {height, width, bytes.get(), table.get(), nullptr}, {edges.get(), {}}, 1, 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Source source{data, size};
  try {
    const int kernel = source.byte() % 9;
    if (kernel < 5) {
      fuzz_maps(source, kernel);
    } else if (kernel < 7) {
      fuzz_packed(source, kernel == 5);
    } else if (kernel < 8) {
      fuzz_pools(source);
    } else {
      fuzz_network(source);
    }
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
