// See trace.hpp. A pixel's unused links are bits; walking a link clears it at both ends.
#include "trace.hpp"

#include <array>
#include <cstddef>

namespace pixeldiff {
namespace {

// Eight steps in a circle, row and column; the straight ones are even, the opposite of k is k + 4.
constexpr std::array<int, 8> kRow{0, 1, 1, 1, 0, -1, -1, -1};
constexpr std::array<int, 8> kColumn{1, 1, 0, -1, -1, -1, 0, 1};

int count(uint8_t bits) {
  int total = 0;
  for (; bits; bits &= static_cast<uint8_t>(bits - 1)) ++total;
  return total;
}

std::vector<uint8_t> link(const uint8_t* map, int height, int width) {
  auto set = [&](int row, int column) {
    return row >= 0 && row < height && column >= 0 && column < width && map[static_cast<size_t>(row) * width + column];
  };
  std::vector<uint8_t> links(static_cast<size_t>(height) * width, 0);
  for (int row = 0; row < height; ++row) {
    for (int column = 0; column < width; ++column) {
      if (!set(row, column)) continue;
      uint8_t bits = 0;
      for (int k = 0; k < 8; ++k) {
        const bool detour = k % 2 && (set(row + kRow[k], column) || set(row, column + kColumn[k]));
        if (!detour && set(row + kRow[k], column + kColumn[k])) bits |= static_cast<uint8_t>(1 << k);
      }
      links[static_cast<size_t>(row) * width + column] = bits;
    }
  }
  return links;
}

}  // namespace

Chains trace(const uint8_t* map, int height, int width) {
  std::vector<uint8_t> links = link(map, height, width);
  std::vector<int32_t> passed, stops;  // pixels with two links, and the others
  std::vector<uint8_t> is_stop(links.size(), 0);
  for (size_t i = 0; i < links.size(); ++i) {
    if (!links[i]) continue;
    is_stop[i] = count(links[i]) != 2;
    (is_stop[i] ? stops : passed).push_back(static_cast<int32_t>(i));
  }
  Chains chains;
  for (const auto* begins : {&stops, &passed}) {
    for (int32_t begin : *begins) {
      while (links[begin]) {
        chains.starts.push_back(static_cast<int64_t>(chains.pixels.size()));
        chains.pixels.push_back(begin);
        int32_t here = begin;
        do {
          int k = 0;
          while (!(links[here] >> k & 1)) ++k;
          const int32_t next = here + kRow[k] * width + kColumn[k];
          links[here] ^= static_cast<uint8_t>(1 << k);
          links[next] ^= static_cast<uint8_t>(1 << (k + 4) % 8);
          chains.pixels.push_back(here = next);
        } while (!is_stop[here] && links[here]);
      }
    }
  }
  chains.starts.push_back(static_cast<int64_t>(chains.pixels.size()));
  return chains;
}

}  // namespace pixeldiff
