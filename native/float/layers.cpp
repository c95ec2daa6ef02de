// See layers.hpp. Weights are checked, and laid out in the order in which the kernels read them.
#include "layers.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace pixeldiff::pidinet {
namespace {

void check(bool fine, const char* message) {
  if (!fine) throw std::invalid_argument(message);
}

void check(const Config& config) {
  check(config.width >= 1 && config.width <= kMostChannels, "the width of a network is 1 to 4096 channels");
  check(config.side_channels >= 1 && config.side_channels <= kMostChannels, "a side has 1 to 4096 channels");
  check(config.kinds.size() == kStages * kLayers && config.kinds.find_first_not_of("carv") == std::string::npos,
        "a network has 16 layers of the kinds c, a, r, v");
}

int support(char kind) { return kind == 'r' ? 5 : 3; }

// Weights one after the other; without any, it counts them.
struct Source {
  const float* at;
  size_t used = 0;
  std::vector<size_t> sizes = {};  // of the parts, in order

  const float* next(size_t count) {
    const float* first = at ? at + used : nullptr;
    used += count;
    sizes.push_back(count);
    return first;
  }
};

// (outputs, inputs) -> [group][input][4], which begins at `weights` with `step` floats from group to group.
void interleave(const float* from, int outputs, int inputs, size_t output_step, size_t input_step, float* weights,
                size_t step) {
  for (int o = 0; o < outputs; ++o) {
    for (int i = 0; i < inputs; ++i) {
      weights[o / kGroup * step + static_cast<size_t>(i) * kGroup + o % kGroup] =
          from[o * output_step + i * input_step];
    }
  }
}

Pointwise pointwise(const float* weights, const float* bias, int outputs, int inputs) {
  Pointwise layer{inputs, outputs, {}, {}};
  if (!weights) return layer;
  layer.weights.assign(static_cast<size_t>(groups_of(outputs)) * kGroup * inputs, 0.0f);
  layer.bias.assign(static_cast<size_t>(groups_of(outputs)) * kGroup, 0.0f);
  interleave(weights, outputs, inputs, inputs, 1, layer.weights.data(), static_cast<size_t>(inputs) * kGroup);
  if (bias) std::copy_n(bias, outputs, layer.bias.begin());
  return layer;
}

Stem read_stem(Source& source, int outputs, char kind) {
  Stem stem;
  stem.outputs = outputs;
  stem.support = support(kind);
  const int k = stem.support, taps = 3 * k * k;
  const float* weights = source.next(static_cast<size_t>(outputs) * taps);
  if (!weights) return stem;
  stem.weights.assign(static_cast<size_t>(groups_of(outputs)) * kGroup * taps, 0.0f);
  for (int y = 0, tap = 0; y < k; ++y) {
    for (int c = 0; c < 3; ++c) {
      for (int x = 0; x < k; ++x, ++tap) {
        interleave(weights + (c * k + y) * k + x, outputs, 1, taps, 0, stem.weights.data() + tap * kGroup,
                   static_cast<size_t>(taps) * kGroup);
      }
    }
  }
  return stem;
}

// Nine weights per channel; the outer ones of a folded radial kernel, in row order, are what multiplies its differences.
std::vector<float> depthwise(const float* weights, int channels, char kind) {
  std::vector<float> kept(static_cast<size_t>(channels) * 9);
  constexpr int outer[8] = {0, 2, 4, 10, 14, 20, 22, 24};
  for (int c = 0; c < channels; ++c) {
    for (int i = 0; i < (kind == 'r' ? 8 : 9); ++i) {
      kept[static_cast<size_t>(c) * 9 + i] = kind == 'r' ? weights[c * 25 + outer[i]] : weights[c * 9 + i];
    }
  }
  return kept;
}

bool rests_in_center(const float* kernels, int channels) {
  for (int c = 0; c < channels; ++c) {
    if (kernels[c * 9 + 4] != 0.0f) return false;
  }
  return true;
}

Block read_block(Source& source, const Config& config, int inputs, int outputs, char kind, bool opens) {
  Block block;
  block.inputs = inputs;
  block.outputs = outputs;
  block.kind = kind;
  block.identity = config.shortcuts && !opens;
  const float* kernels = source.next(static_cast<size_t>(inputs) * support(kind) * support(kind));
  if (kernels) block.depthwise = depthwise(kernels, inputs, kind);
  if (kernels && kind == 'v' && rests_in_center(kernels, inputs)) block.kind = 'a';  // eight products instead of nine
  block.pointwise = pointwise(source.next(static_cast<size_t>(outputs) * inputs), nullptr, outputs, inputs);
  if (config.shortcuts && opens) {
    const float* weights = source.next(static_cast<size_t>(outputs) * inputs);
    block.shortcut = pointwise(weights, source.next(outputs), outputs, inputs);
  }
  return block;
}

// One dilated view: its nine taps as they are, and the 3 -> 6 transform of Winograd's F(4, 3) of every column of them.
void read_view(const float* weights, int channels, std::vector<float>& direct, std::vector<float>& winograd) {
  constexpr float kTransform[6][3] = {{1 / 4.0f, 0, 0},
                                      {-1 / 6.0f, -1 / 6.0f, -1 / 6.0f},
                                      {-1 / 6.0f, 1 / 6.0f, -1 / 6.0f},
                                      {1 / 24.0f, 1 / 12.0f, 1 / 6.0f},
                                      {1 / 24.0f, -1 / 12.0f, 1 / 6.0f},
                                      {0, 0, 1}};
  const size_t step = static_cast<size_t>(channels) * kGroup, groups = groups_of(channels);
  direct.assign(groups * 9 * step, 0.0f);
  winograd.assign(groups * 18 * step, 0.0f);
  for (int o = 0; o < channels; ++o) {
    for (int i = 0; i < channels; ++i) {
      const float* kernel = weights + (static_cast<size_t>(o) * channels + i) * 9;
      const size_t group = o / kGroup, at = static_cast<size_t>(i) * kGroup + o % kGroup;
      for (int tap = 0; tap < 9; ++tap) direct[(group * 9 + tap) * step + at] = kernel[tap];
      for (int t = 0; t < 6; ++t) {
        for (int x = 0; x < 3; ++x) {
          const float* g = kTransform[t];
          const double sum = double(g[0]) * kernel[x] + double(g[1]) * kernel[3 + x] + double(g[2]) * kernel[6 + x];
          winograd[(group * 18 + t * 3 + x) * step + at] = static_cast<float>(sum);
        }
      }
    }
  }
}

Side read_side(Source& source, const Config& config, int inputs) {
  Side side;
  side.cdcm = config.cdcm;
  side.csam = config.csam;
  side.channels = config.cdcm ? config.side_channels : inputs;
  const size_t channels = side.channels;
  if (config.cdcm) {
    const float* weights = source.next(channels * inputs);
    side.squeeze = pointwise(weights, source.next(channels), side.channels, inputs);
    for (int v = 0; v < kViews; ++v) {
      const float* view = source.next(channels * channels * 9);
      if (view) read_view(view, side.channels, side.direct[v], side.winograd[v]);
    }
  }
  const float* hidden = config.csam ? source.next(kHidden * channels) : nullptr;
  const float* hidden_bias = config.csam ? source.next(kHidden) : nullptr;
  const float* attend = config.csam ? source.next(9 * kHidden) : nullptr;
  const float *reduce = source.next(channels), *bias = source.next(1);
  if (!reduce) return side;
  if (config.csam) {
    std::copy_n(hidden_bias, kHidden, side.hidden_bias);
    std::copy_n(attend, 9 * kHidden, side.attend);
  }
  for (size_t c = 0; c < channels; ++c) {
    for (int k = 0; config.csam && k < kHidden; ++k) side.traits.push_back(hidden[k * channels + c]);
    side.traits.push_back(reduce[c]);
  }
  side.bias = *bias;
  return side;
}

Layers read_layers(Source& source, const Config& config) {
  check(config);
  Layers layers;
  layers.config = config;
  layers.stem = read_stem(source, config.width, config.kinds[0]);
  int before = config.width;
  for (int s = 0; s < kStages; ++s) {
    for (int layer = s ? 0 : 1; layer < kLayers; ++layer) {
      const char kind = config.kinds[s * kLayers + layer];
      layers.stages[s].push_back(read_block(source, config, before, layers.width(s), kind, s && !layer));
      before = layers.width(s);
    }
    layers.sides[s] = read_side(source, config, before);
  }
  const float *fusion = source.next(kStages), *bias = source.next(1);
  if (fusion) {
    std::copy_n(fusion, kStages, layers.fusion);
    layers.bias = *bias;
  }
  return layers;
}

}  // namespace

Map::Map(int channels, int height, int width, int rows)
    : channels(channels), height(height), width(width), rows(std::min(rows, height)) {
  plane = static_cast<size_t>(round_up(width, kMargin)) + kMargin;
  if (plane / kMargin % 2 == 0) plane += kMargin;  // planes at powers of two would share few places of the caches
  stride = plane * groups_of(channels) * kGroup;
}

void Map::clear_margins() const {
  float* at = data - kMargin;
  const size_t planes = rows * (stride / plane);
  std::fill_n(at, kMargin, 0.0f);
  for (size_t i = 0; i < planes; ++i, at += plane) std::fill_n(at + kMargin + width, plane - width, 0.0f);
  std::fill_n(at + kMargin, kMargin, 0.0f);
}

const Block* Layers::block(int stage, int layer) const {
  if (stage) return &stages[stage][layer];
  return layer ? &stages[0][layer - 1] : nullptr;
}

int Layers::reach(int stage, int layer) const {
  int rows = 0;
  for (int k = layer; k < kLayers; ++k) rows += block(stage, k) ? block(stage, k)->radius() : stem.radius();
  return rows;
}

size_t scratch_floats(int channels) {
  return std::max(kScratch / sizeof(float), static_cast<size_t>(2 * kWidestTile) * channels);
}

DilationSpace dilation_space(int channels, int rows) {
  const size_t plane = kSegment + 3 * kMargin;
  return {plane, 6 * plane * channels + 2 * kMargin, plane * rows * groups_of(channels) * kGroup};
}

std::string kinds_of(const std::vector<int>& kernel_sizes) {
  std::string kinds;
  for (int size : kernel_sizes) {
    check(size == 3 || size == 5, "kernels are 3x3, or 5x5 and radial");
    kinds += size == 5 ? 'r' : 'v';
  }
  return kinds;
}

std::vector<size_t> weight_sizes(const Config& config) {
  Source source{nullptr};
  read_layers(source, config);
  return source.sizes;
}

size_t weight_count(const Config& config) {
  const std::vector<size_t> sizes = weight_sizes(config);
  return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

std::unique_ptr<Layers> make_layers(const Config& config, const float* weights, size_t count) {
  check(count == weight_count(config), "the number of weights is not that of the network");
  check(std::all_of(weights, weights + count, [](float v) { return std::isfinite(v); }), "a weight is not finite");
  Source source{weights};
  return std::make_unique<Layers>(read_layers(source, config));
}

}  // namespace pixeldiff::pidinet
