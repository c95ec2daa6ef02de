// See test_packed.hpp.
#include "test_packed.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "packed/network.hpp"
#include "packed/packed.hpp"

using namespace pixeldiff;

namespace {

std::mt19937 random_engine(1);

int below(int n) { return static_cast<int>(random_engine() % static_cast<unsigned>(n)); }

void check(bool holds, const char* kernels, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed on %s: %s\n", kernels, what);
  std::exit(1);
}

// Exactly sized on the heap, so that a sanitizer sees every access beyond.
template <class T>
struct Buffer {
  explicit Buffer(size_t size) : size(size), data(new T[size]()) {}
  size_t size;
  std::unique_ptr<T[]> data;
};

struct Case {
  int inputs, outputs, kernel_size, stride, differing;
  std::vector<PixelPair> pairs;
  MapSize size;
  std::vector<uint8_t> plain, difference;
};

Case random_case() {
  Case c;
  c.inputs = 1 + below(90);
  c.outputs = 1 + below(90);
  c.kernel_size = 1 + 2 * below(3);
  c.stride = 1 + below(3);
  c.differing = below(3) ? below(c.inputs + 1) : 0;
  if (c.differing) {
    const auto offset = [] { return below(5) - 2; };
    for (int i = 1 + below(10); i > 0; --i) c.pairs.push_back({offset(), offset(), offset(), offset()});
  }
  c.size = {1 + below(2), 1 + below(9), 1 + below(9)};
  c.plain.resize(static_cast<size_t>(c.outputs) * (c.inputs - c.differing) * c.kernel_size * c.kernel_size);
  c.difference.resize(static_cast<size_t>(c.outputs) * c.differing * c.pairs.size());
  for (auto* signs : {&c.plain, &c.difference}) {
    for (auto& sign : *signs) sign = static_cast<uint8_t>(below(2));
  }
  return c;
}

float pixel(const Case& c, const float* x, int n, int row, int column, int channel) {
  if (row < 0 || row >= c.size.height || column < 0 || column >= c.size.width) return 0.0f;
  return x[((static_cast<size_t>(n) * c.size.height + row) * c.size.width + column) * c.inputs + channel];
}

int plain_sum(const Case& c, const float* x, int n, int y, int column, int output) {
  const int radius = c.kernel_size / 2, channels = c.inputs - c.differing;
  int sum = 0;
  size_t w = static_cast<size_t>(output) * channels * c.kernel_size * c.kernel_size;
  for (int channel = 0; channel < channels; ++channel) {
    for (int ky = -radius; ky <= radius; ++ky) {
      for (int kx = -radius; kx <= radius; ++kx, ++w) {
        const int row = y * c.stride + ky, place = column * c.stride + kx;
        if (row < 0 || row >= c.size.height || place < 0 || place >= c.size.width) continue;
        const bool positive = pixel(c, x, n, row, place, c.differing + channel) >= 0.0f;
        sum += positive == static_cast<bool>(c.plain[w]) ? 1 : -1;
      }
    }
  }
  return sum;
}

int difference_sum(const Case& c, const float* x, int n, int y, int column, int output) {
  int sum = 0;
  size_t w = static_cast<size_t>(output) * c.differing * c.pairs.size();
  for (int channel = 0; channel < c.differing; ++channel) {
    for (const PixelPair& p : c.pairs) {
      const int row = y * c.stride, place = column * c.stride;
      const bool positive = pixel(c, x, n, row + p.plus_y, place + p.plus_x, channel) >=
                            pixel(c, x, n, row + p.minus_y, place + p.minus_x, channel);
      sum += positive == static_cast<bool>(c.difference[w++]) ? 1 : -1;
    }
  }
  return sum;
}

// Sums, then the fused layer with given bits and shortcut; its norms are the identity and its activation a no-op.
void check_case(const Case& c, const Kernels& kernels, int threads) {
  BinaryConv conv(c.inputs, c.outputs, c.kernel_size, c.stride, c.pairs, c.differing, c.plain.data(),
                  c.difference.data(), kernels);
  const size_t pixels = static_cast<size_t>(c.size.count) * c.size.height * c.size.width;
  const int rows = steps(c.size.height, c.stride), columns = steps(c.size.width, c.stride);
  const size_t outputs = static_cast<size_t>(c.size.count) * rows * columns * c.outputs;
  Buffer<float> x(pixels * c.inputs), shortcut(outputs), y(outputs);
  for (size_t i = 0; i < x.size; ++i) x.data[i] = static_cast<float>(below(5) - 2);
  for (size_t i = 0; i < shortcut.size; ++i) shortcut.data[i] = static_cast<float>(below(9) - 4);
  Buffer<int32_t> difference(outputs), plain(outputs);
  run(conv, {c.size, x.data.get(), nullptr, nullptr, nullptr, nullptr, difference.data.get(), plain.data.get()},
      threads);
  const std::vector<float> ones(c.outputs, 1.0f), zeros(c.outputs, 0.0f);
  conv.set_norms(ones.data(), zeros.data(), ones.data(), zeros.data());
  conv.add_activation(zeros.data(), ones.data(), zeros.data());
  const int words = words_of(c.outputs);
  Buffer<uint64_t> bits(pixels * words_of(c.inputs)), y_bits(outputs / c.outputs * words);
  pack_signs(kernels, x.data.get(), pixels, c.inputs, bits.data.get());
  run(conv,
      {c.size, x.data.get(), bits.data.get(), shortcut.data.get(), y.data.get(), y_bits.data.get(), nullptr, nullptr},
      threads);
  for (size_t i = 0; i < outputs; ++i) {
    const int output = static_cast<int>(i % c.outputs), column = static_cast<int>(i / c.outputs % columns);
    const int row = static_cast<int>(i / c.outputs / columns % rows);
    const int n = static_cast<int>(i / c.outputs / columns / rows);
    const int d = difference_sum(c, x.data.get(), n, row, column, output);
    const int v = plain_sum(c, x.data.get(), n, row, column, output);
    check(difference.data[i] == d && plain.data[i] == v, kernels.name, "the sums are those of the definition");
    check(y.data[i] == static_cast<float>(d + v) + shortcut.data[i], kernels.name, "the epilogue adds up");
    const uint64_t word = y_bits.data[i / c.outputs * words + output / 64];
    check((word >> (output % 64) & 1) == (y.data[i] >= 0.0f), kernels.name, "bits are the signs of the output");
  }
}

void check_float_conv(const Kernels& kernels) {
  const int inputs = 1 + below(5), outputs = 1 + below(40), size = 1 + 2 * below(3), stride = 1 + below(2);
  const MapSize map{1, 1 + below(9), 1 + below(9)};
  Buffer<float> weight(static_cast<size_t>(outputs) * inputs * size * size);
  for (size_t i = 0; i < weight.size; ++i) weight.data[i] = static_cast<float>(below(7) - 3);
  const std::vector<float> ones(outputs, 1.0f), zeros(outputs, 0.0f);
  const FloatConv conv(inputs, outputs, size, stride, weight.data.get(), ones.data(), zeros.data(), kernels);
  const int rows = steps(map.height, stride), columns = steps(map.width, stride);
  Buffer<float> x(static_cast<size_t>(map.height) * map.width * inputs);
  Buffer<float> y(static_cast<size_t>(rows) * columns * outputs);
  for (size_t i = 0; i < x.size; ++i) x.data[i] = static_cast<float>(below(7) - 3);
  run(conv, map, x.data.get(), y.data.get(), 2);
  Case c;
  c.inputs = inputs;
  c.size = map;
  for (size_t i = 0; i < y.size; ++i) {
    const int output = static_cast<int>(i % outputs), column = static_cast<int>(i / outputs % columns);
    const int row = static_cast<int>(i / outputs / columns);
    float sum = 0.0f;
    for (int k = 0; k < inputs * size * size; ++k) {
      const int channel = k / (size * size), ky = k / size % size - size / 2, kx = k % size - size / 2;
      sum += weight.data[static_cast<size_t>(output) * inputs * size * size + k] *
             pixel(c, x.data.get(), 0, row * stride + ky, column * stride + kx, channel);
    }
    check(y.data[i] == sum, kernels.name, "float sums of small whole numbers are exact");
  }
}

float uniform() { return static_cast<float>(random_engine() >> 8) / static_cast<float>(1 << 23) - 1.0f; }

std::vector<float> uniform_floats(size_t count) {
  std::vector<float> values(count);
  for (float& v : values) v = uniform();
  return values;
}

std::unique_ptr<FloatConv> random_float(int inputs, int outputs, int size, int stride, const Kernels& kernels) {
  const auto weight = uniform_floats(static_cast<size_t>(outputs) * inputs * size * size);
  const auto scale = uniform_floats(outputs), shift = uniform_floats(outputs);
  return std::make_unique<FloatConv>(inputs, outputs, size, stride, weight.data(), scale.data(), shift.data(), kernels);
}

std::unique_ptr<BinaryConv> random_binary(int inputs, int outputs, int stride, const Kernels& kernels) {
  const int differing = below(inputs);
  std::vector<PixelPair> pairs;
  for (int i = 0; differing && i < 8; ++i) pairs.push_back({below(3) - 1, below(3) - 1, 0, 0});
  std::vector<uint8_t> plain(static_cast<size_t>(outputs) * (inputs - differing) * 9);
  std::vector<uint8_t> difference(static_cast<size_t>(outputs) * differing * pairs.size());
  for (auto* signs : {&plain, &difference}) {
    for (auto& sign : *signs) sign = static_cast<uint8_t>(below(2));
  }
  auto conv = std::make_unique<BinaryConv>(inputs, outputs, 3, stride, pairs, differing, plain.data(),
                                           difference.data(), kernels);
  const auto a = uniform_floats(outputs), b = uniform_floats(outputs), c = uniform_floats(outputs);
  conv->set_norms(a.data(), b.data(), c.data(), a.data());
  conv->add_activation(b.data(), c.data(), a.data());
  return conv;
}

// Stem, pooling, every kind of shortcut, a linear layer: as the layers alone, whatever the threads and the batch.
void check_network(const Kernels& kernels) {
  const int inputs = 1 + below(4), width = 2 * (1 + below(40)), count = 1 + below(4);
  const MapShape in{1 + below(30), 1 + below(30), inputs};
  const auto stem = random_float(inputs, width, 3, 2, kernels), linear = random_float(3 * width, 5, 1, 1, kernels);
  const auto same = random_binary(width, width, 1, kernels), wider = random_binary(width, 2 * width, 2, kernels);
  const auto joined = random_binary(2 * width, 3 * width, 1, kernels);
  const auto projection = random_float(width, 2 * width, 1, 1, kernels);
  PackedNetwork network;
  network.add(*stem);
  network.add_max_pool();
  network.add(*same, {});
  network.add(*wider, {projection.get(), 0, 0, false});
  network.add(*joined, {nullptr, 1, 2, false});
  network.add_mean(*linear);
  const auto x = uniform_floats(count * in.floats());
  std::vector<float> expected;
  for (int n = 0; n < count; ++n) {
    std::vector<float> map(x.begin() + n * in.floats(), x.begin() + (n + 1) * in.floats());
    MapShape shape = in;
    for (int i = 0; i < network.layers(); ++i) {
      const MapShape after = network.shape(shape, i, i + 1);
      std::vector<float> next(after.floats());
      network.run(map.data(), 1, shape, next.data(), 1, i, i + 1);
      map = next;
      shape = after;
    }
    expected.insert(expected.end(), map.begin(), map.end());
  }
  for (const int threads : {1, 2, 3}) {
    Buffer<float> y(expected.size());
    network.run(x.data(), count, in, y.data.get(), threads, 0, network.layers());
    check(std::equal(expected.begin(), expected.end(), y.data.get()), kernels.name, "a network is its layers");
  }
  Buffer<float> pooled(static_cast<size_t>(steps(in.height, 2)) * steps(in.width, 2) * inputs), y(pooled.size);
  average_pool(x.data(), {1, in.height, in.width}, inputs, pooled.data.get(), 1);
  kernels.average_row(x.data(), {1, in.height, in.width}, inputs, 0, y.data.get());
  check(std::equal(y.data.get(), y.data.get() + steps(in.width, 2) * inputs, pooled.data.get()), kernels.name,
        "all sets pool alike");
}

}  // namespace

void test_packed() {
  for (const Kernels* kernels : available_kernels()) {
    for (int round = 0; round < 60; ++round) {
      check_case(random_case(), *kernels, 1 + below(3));
      check_float_conv(*kernels);
      check_network(*kernels);
    }
    std::printf("packed kernels, %s: as defined\n", kernels->name);
  }
}
