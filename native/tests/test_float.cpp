// The float engine against loops over its definition, on every instruction set that is there; buffers are exactly sized
// on the heap, so that a sanitizer sees every access beyond.
#include "test_float.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "float/layers.hpp"
#include "float/workspace.hpp"

using namespace pixeldiff::pidinet;

namespace {

std::mt19937 random_engine(7);
int below(int n) { return static_cast<int>(random_engine() % static_cast<unsigned>(n)); }
float uniform() { return static_cast<float>(random_engine() >> 8) / static_cast<float>(1 << 23) - 1.0f; }

void check(bool holds, const char* kernels, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed on %s: %s\n", kernels, what);
  std::exit(1);
}

// A map as [channel][y][x], in double precision.
struct Plain {
  int channels, height, width;
  std::vector<double> values;

  Plain(int channels, int height, int width)
      : channels(channels), height(height), width(width), values(static_cast<size_t>(channels) * height * width) {}
  double& at(int c, int y, int x) { return values[(static_cast<size_t>(c) * height + y) * width + x]; }
  double get(int c, int y, int x) const {
    if (y < 0 || y >= height || x < 0 || x >= width) return 0;
    return values[(static_cast<size_t>(c) * height + y) * width + x];
  }
};

struct Weights {
  const float* at;
  const float* next(size_t count) {
    const float* first = at;
    at += count;
    return first;
  }
};

Plain convolve(const Plain& in, const float* w, const float* bias, int outputs, int k, int dilation, bool depthwise) {
  Plain out(outputs, in.height, in.width);
  const int inputs = depthwise ? 1 : in.channels;
  for (int o = 0; o < outputs; ++o) {
    for (int y = 0; y < in.height; ++y) {
      for (int x = 0; x < in.width; ++x) {
        double sum = bias ? bias[o] : 0;
        for (int i = 0; i < inputs; ++i) {
          for (int t = 0; t < k * k; ++t) {
            const int dy = (t / k - k / 2) * dilation, dx = (t % k - k / 2) * dilation;
            sum += w[(o * inputs + i) * k * k + t] * in.get(depthwise ? o : i, y + dy, x + dx);
          }
        }
        out.at(o, y, x) = sum;
      }
    }
  }
  return out;
}

Plain relu(Plain map) {
  for (double& v : map.values) v = std::max(v, 0.0);
  return map;
}

Plain add(Plain a, const Plain& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Plain pool(const Plain& in) {
  Plain out(in.channels, in.height / 2, in.width / 2);
  for (int c = 0; c < in.channels; ++c) {
    for (int y = 0; y < out.height; ++y) {
      for (int x = 0; x < out.width; ++x) {
        out.at(c, y, x) = std::max(std::max(in.get(c, 2 * y, 2 * x), in.get(c, 2 * y, 2 * x + 1)),
                                   std::max(in.get(c, 2 * y + 1, 2 * x), in.get(c, 2 * y + 1, 2 * x + 1)));
      }
    }
  }
  return out;
}

Plain side(const Config& config, const Plain& features, Weights& w) {
  Plain x = features;
  if (config.cdcm) {
    const int m = config.side_channels;
    const float* squeeze = w.next(static_cast<size_t>(m) * x.channels);
    const Plain squeezed = convolve(relu(x), squeeze, w.next(m), m, 1, 1, false);
    x = Plain(m, x.height, x.width);
    for (int d : {5, 7, 9, 11})
      x = add(x, convolve(squeezed, w.next(static_cast<size_t>(m) * m * 9), nullptr, m, 3, d, false));
  }
  if (config.csam) {
    const float* squeeze = w.next(static_cast<size_t>(4) * x.channels);
    const Plain hidden = convolve(relu(x), squeeze, w.next(4), 4, 1, 1, false);
    const Plain attention = convolve(hidden, w.next(36), nullptr, 1, 3, 1, false);
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] /= 1 + std::exp(-attention.values[i % attention.values.size()]);
    }
  }
  const float* reduce = w.next(x.channels);
  return convolve(x, reduce, w.next(1), 1, 1, 1, false);
}

double sample(const Plain& map, double y, double x) {
  y = std::max(y, 0.0), x = std::max(x, 0.0);
  const int top = static_cast<int>(y), left = static_cast<int>(x);
  const int bottom = std::min(top + 1, map.height - 1), right = std::min(left + 1, map.width - 1);
  const double b = y - top, r = x - left;
  return (1 - b) * ((1 - r) * map.get(0, top, left) + r * map.get(0, top, right)) +
         b * ((1 - r) * map.get(0, bottom, left) + r * map.get(0, bottom, right));
}

// The network as it is defined: logits of the sides, then edges.
std::vector<Plain> define(const Config& config, const float* weights, const Plain& picture) {
  Weights w{weights};
  const auto support = [&](int layer) { return config.kinds[layer] == 'r' ? 5 : 3; };
  Plain x = convolve(picture, w.next(static_cast<size_t>(config.width) * 3 * support(0) * support(0)), nullptr,
                     config.width, support(0), 1, false);
  std::vector<Plain> maps;
  for (int s = 0; s < kStages; ++s) {
    for (int layer = s ? 0 : 1; layer < kLayers; ++layer) {
      const bool opens = s && !layer;
      if (opens) x = pool(x);
      const int inputs = x.channels, outputs = config.width << std::min(s, 2), k = support(s * kLayers + layer);
      const float* depthwise = w.next(static_cast<size_t>(inputs) * k * k);
      const float* pointwise = w.next(static_cast<size_t>(outputs) * inputs);
      Plain y =
          convolve(relu(convolve(x, depthwise, nullptr, inputs, k, 1, true)), pointwise, nullptr, outputs, 1, 1, false);
      if (config.shortcuts && opens) {
        const float* shortcut = w.next(static_cast<size_t>(outputs) * inputs);
        y = add(y, convolve(x, shortcut, w.next(outputs), outputs, 1, 1, false));
      } else if (config.shortcuts) {
        y = add(y, x);
      }
      x = y;
    }
    maps.push_back(side(config, x, w));
  }
  const float *fusion = w.next(kStages), *bias = w.next(1);
  Plain edges(1, picture.height, picture.width);
  for (int y = 0; y < edges.height; ++y) {
    for (int c = 0; c < edges.width; ++c) {
      double sum = *bias;
      for (int s = 0; s < kStages; ++s) {
        const double rows = double(maps[s].height) / edges.height, columns = double(maps[s].width) / edges.width;
        sum += fusion[s] * sample(maps[s], (y + 0.5) * rows - 0.5, (c + 0.5) * columns - 0.5);
      }
      edges.at(0, y, c) = 1 / (1 + std::exp(-sum));
    }
  }
  maps.push_back(edges);
  return maps;
}

Config random_config() {
  Config config{1 + below(9), 1 + below(9), "", below(3) > 0, below(3) > 0, below(3) > 0};
  for (int i = 0; i < kStages * kLayers; ++i) config.kinds += "carv"[below(4)];
  return config;
}

// Random folded kernels of radial layers have the form outer - inner, as folding gives it.
void fold_radial(float* kernel) {
  constexpr int outer[8] = {0, 2, 4, 10, 14, 20, 22, 24}, inner[8] = {6, 7, 8, 11, 13, 16, 17, 18};
  float weights[8];
  for (int i = 0; i < 8; ++i) weights[i] = kernel[outer[i]];
  std::fill_n(kernel, 25, 0.0f);
  for (int i = 0; i < 8; ++i) kernel[outer[i]] = weights[i], kernel[inner[i]] = -weights[i];
}

std::vector<float> random_weights(const Config& config) {
  std::vector<float> weights(weight_count(config));
  for (float& v : weights) v = 0.5f * uniform();
  float* at = weights.data();
  const auto kernels = [&](int count, char kind) {
    for (int i = 0; i < count; ++i, at += kind == 'r' ? 25 : 9) {
      if (kind == 'r') fold_radial(at);
      if (kind == 'a') at[4] = 0.0f;
    }
  };
  kernels(3 * config.width, config.kinds[0]);
  int before = config.width;
  for (int s = 0; s < kStages; ++s) {
    const int outputs = config.width << std::min(s, 2);
    for (int layer = s ? 0 : 1; layer < kLayers; ++layer) {
      kernels(before, config.kinds[s * kLayers + layer]);
      at += outputs * before + (config.shortcuts && s && !layer ? outputs * (before + 1) : 0);
      before = outputs;
    }
    const int m = config.side_channels, n = config.cdcm ? m : outputs;
    at += (config.cdcm ? m * outputs + m + 36 * m * m : 0) + (config.csam ? 4 * n + 40 : 0) + n + 1;
  }
  return weights;
}

double difference(const float* map, const Plain& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    worst = std::max(worst, std::fabs(map[i] - expected.values[i]) / (1 + std::fabs(expected.values[i])));
  }
  return worst;
}

void check_network(const Kernels& kernels) {
  const Config config = random_config();
  const std::vector<float> weights = random_weights(config);
  const int height = 8 + below(100), width = 8 + below(60);
  const size_t pixels = static_cast<size_t>(height) * width;
  std::unique_ptr<float[]> planes(new float[3 * pixels]), edges(new float[pixels]), again(new float[pixels]);
  Plain picture(3, height, width);
  for (size_t i = 0; i < 3 * pixels; ++i) picture.values[i] = planes[i] = uniform();
  const Network network(config, weights.data(), weights.size(), kernels);
  Maps maps{edges.get(), {}};
  std::unique_ptr<float[]> sides[kStages];
  for (int s = 0; s < kStages; ++s) {
    sides[s].reset(new float[static_cast<size_t>(height >> s) * (width >> s)]);
    maps.sides[s] = sides[s].get();
  }
  detect(network, {height, width, nullptr, nullptr, planes.get()}, maps, 1);
  const std::vector<Plain> expected = define(config, weights.data(), picture);
  for (int s = 0; s < kStages; ++s)
    check(difference(maps.sides[s], expected[s]) < 1e-3, kernels.name, "the sides are as defined");
  check(difference(edges.get(), expected[kStages]) < 1e-4, kernels.name, "the edges are as defined");
  for (int threads : {1, 2, 3}) {
    for (size_t memory : {size_t{1}, size_t{1} << 30}) {
      detect(network, {height, width, nullptr, nullptr, planes.get()}, {again.get(), {}}, threads, memory);
      check(std::equal(edges.get(), edges.get() + pixels, again.get()), kernels.name,
            "threads and strips change nothing");
    }
  }
}

void check_refusals() {
  const Config config{4, 3, "carvcarvcarvcarv", true, true, true};
  std::vector<float> weights = random_weights(config);
  const auto refused = [&](const Config& asked, size_t count) {
    try {
      Network(asked, weights.data(), count, portable_kernels);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  check(!refused(config, weights.size()), "the engine", "a network is made");
  check(refused(config, weights.size() - 1), "the engine", "missing weights are refused");
  check(refused({0, 3, config.kinds, true, true, true}, 0), "the engine", "a network without channels is refused");
  check(refused({4, 3, "carx", true, true, true}, 0), "the engine", "unknown kinds are refused");
  weights[5] = NAN;
  check(refused(config, weights.size()), "the engine", "what is no number is refused");
  weights[5] = 0;
  const Network network(config, weights.data(), weights.size(), portable_kernels);
  std::vector<float> planes(3 * 64 * 64), edges(64 * 64);
  int calls = 0;
  try {
    detect(network, {64, 64, nullptr, nullptr, planes.data()}, {edges.data(), {}}, 2, 1, [&] {
      if (++calls == 3) throw std::runtime_error("stop");
    });
  } catch (const std::runtime_error&) {
    calls = 100;
  }
  check(calls == 100, "the engine", "a run can be ended between bands");
}

// torch's positions, with the one rounding that its compiled kernel has.
void check_places() {
  bool same = true;
  for (const int length : {9, 63, 321, 481, 600})
    for (const int coarse : {length / 2, length / 4, length / 8})
      for (int index = 0; index < length; ++index) {
        const float scale = static_cast<float>(coarse) / static_cast<float>(length);
        const float source = std::max(0.0f, std::fma(scale, static_cast<float>(index) + 0.5f, -0.5f));
        const Place found = place(index, length, coarse);
        same &= found.below == static_cast<int>(source) && found.above == source - static_cast<float>(found.below);
      }
  check(same, "the engine", "a pixel lies between the same two of a coarser map as in torch");
}

}  // namespace

void test_float() {
  check_refusals();
  check_places();
  for (const Kernels* kernels : available_kernels()) {
    for (int round = 0; round < 12; ++round) check_network(*kernels);
    std::printf("float engine, %s: as defined\n", kernels->name);
  }
}
