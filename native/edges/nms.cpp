// See nms.hpp.
#include "nms.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace pixeldiff {
namespace {

constexpr float kTolerance = 1.01f;
constexpr int kBorder = 5;

struct Plane {
  Plane(int height, int width) : height(height), width(width), values(static_cast<size_t>(height) * width) {}
  float* row(int y) { return values.data() + static_cast<size_t>(y) * width; }
  const float* row(int y) const { return values.data() + static_cast<size_t>(y) * width; }
  int height, width;
  std::vector<float> values;
};

// Index i of a line of n pixels that is mirrored at both ends (the border pixel twice).
int mirrored(int i, int n) {
  i = ((i % (2 * n)) + 2 * n) % (2 * n);
  return i < n ? i : 2 * n - 1 - i;
}

// Weights 1 .. r, r + 1, r .. 1 down and across, normalised.
Plane triangle(const Plane& in, int radius) {
  std::vector<float> weights;
  for (int k = -radius; k <= radius; ++k) {
    weights.push_back(static_cast<float>(radius + 1 - std::abs(k)) / static_cast<float>((radius + 1) * (radius + 1)));
  }
  Plane out(in.height, in.width);
  std::vector<float> line(static_cast<size_t>(in.width) + 2 * radius);
  for (int y = 0; y < in.height; ++y) {
    float* down = line.data() + radius;
    std::fill(line.begin(), line.end(), 0.0f);
    for (int k = -radius; k <= radius; ++k) {
      const float* source = in.row(mirrored(y + k, in.height));
      const float weight = weights[k + radius];
      for (int x = 0; x < in.width; ++x) down[x] += weight * source[x];
    }
    for (int k = 1; k <= radius; ++k) {
      down[-k] = down[mirrored(-k, in.width)];
      down[in.width - 1 + k] = down[mirrored(in.width - 1 + k, in.width)];
    }
    float* target = out.row(y);
    std::fill(target, target + in.width, 0.0f);
    for (int k = 0; k <= 2 * radius; ++k) {
      for (int x = 0; x < in.width; ++x) target[x] += weights[k] * line[x + k];
    }
  }
  return out;
}

// Central differences, one-sided at the ends; 0 along a side of one pixel.
Plane along_x(const Plane& in) {
  Plane out(in.height, in.width);
  const int last = in.width - 1;
  for (int y = 0; y < in.height && last > 0; ++y) {
    const float* source = in.row(y);
    float* target = out.row(y);
    for (int x = 1; x < last; ++x) target[x] = 0.5f * (source[x + 1] - source[x - 1]);
    target[0] = source[1] - source[0];
    target[last] = source[last] - source[last - 1];
  }
  return out;
}

Plane along_y(const Plane& in) {
  Plane out(in.height, in.width);
  const int last = in.height - 1;
  for (int y = 0; y <= last && last > 0; ++y) {
    const float* below = in.row(std::min(y + 1, last));
    const float* above = in.row(std::max(y - 1, 0));
    const float factor = y == 0 || y == last ? 1.0f : 0.5f;
    float* target = out.row(y);
    for (int x = 0; x < in.width; ++x) target[x] = factor * (below[x] - above[x]);
  }
  return out;
}

float bilinear(const Plane& in, float y, float x) {
  y = std::min(std::max(y, 0.0f), static_cast<float>(in.height - 1));
  x = std::min(std::max(x, 0.0f), static_cast<float>(in.width - 1));
  const int top = static_cast<int>(y), left = static_cast<int>(x);
  const float dy = y - static_cast<float>(top), dx = x - static_cast<float>(left);
  const float* upper = in.row(top);
  const float* lower = in.row(std::min(top + 1, in.height - 1));
  const int right = std::min(left + 1, in.width - 1);
  const float above = upper[left] + dx * (upper[right] - upper[left]);
  const float below = lower[left] + dx * (lower[right] - lower[left]);
  return above + dy * (below - above);
}

// cos and sin of atan(rise / run). The sign does not matter; what is no number (0 / 0, NaN in the map) points along x,
// for a NaN must never become a place to read from.
std::pair<float, float> direction(float rise, float run) {
  if (run == 0 && rise != 0) return {0.0f, 1.0f};
  const float tangent = rise / run;
  if (!std::isfinite(tangent)) return {1.0f, 0.0f};
  const float cosine = 1.0f / std::sqrt(1.0f + tangent * tangent);
  return {cosine, tangent * cosine};
}

float fade(int i, int n) { return std::min(1.0f, static_cast<float>(std::min(i, n - 1 - i)) / kBorder); }

}  // namespace

std::vector<float> nms(const float* map, int height, int width, int radius) {
  Plane edges(height, width);
  std::copy(map, map + edges.values.size(), edges.values.begin());
  edges = triangle(edges, 1);
  const Plane smooth = triangle(edges, 4);
  const Plane dy = along_y(smooth);
  const Plane dxx = along_x(along_x(smooth)), dxy = along_x(dy), dyy = along_y(dy);
  std::vector<float> kept(edges.values.size(), 0.0f);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const size_t i = static_cast<size_t>(y) * width + x;
      const float value = edges.values[i] * kTolerance;
      const float turn = dxy.values[i] > 0 ? -1.0f : 1.0f;
      const auto [cosine, sine] = direction(dyy.values[i] * turn, dxx.values[i] + 1e-5f);
      bool crest = true;
      for (int d = 1; d <= radius && crest; ++d) {
        const float sy = static_cast<float>(d) * sine, sx = static_cast<float>(d) * cosine;
        const float fy = static_cast<float>(y), fx = static_cast<float>(x);
        crest = value >= bilinear(edges, fy + sy, fx + sx) && value >= bilinear(edges, fy - sy, fx - sx);
      }
      if (crest) kept[i] = edges.values[i] * fade(y, height) * fade(x, width);
    }
  }
  return kept;
}

}  // namespace pixeldiff
