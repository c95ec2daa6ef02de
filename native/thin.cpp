// See thin.hpp. Work lists: after the first pass only pixels with a changed neighbour are looked at again.
#include "thin.hpp"

#include <array>
#include <cstddef>

namespace pixeldiff {
namespace {

// deletable[subiteration][neighbours]; bit i of `neighbours` is x_(i+1) of the paper.
using Table = std::array<std::array<bool, 256>, 2>;

Table make_table() {
  Table table{};
  for (int code = 0; code < 256; ++code) {
    auto x = [code](int i) { return (code >> ((i - 1) % 8)) & 1; };  // x(9) is x(1)
    int crossings = 0, n1 = 0, n2 = 0;
    for (int i = 1; i <= 7; i += 2) {
      crossings += !x(i) && (x(i + 1) || x(i + 2));
      n1 += x(i) || x(i + 1);
      n2 += x(i + 1) || x(i + 2);
    }
    const int least = n1 < n2 ? n1 : n2;
    const bool thick = crossings == 1 && least >= 2 && least <= 3;
    table[0][code] = thick && !((x(2) || x(3) || !x(8)) && x(1));
    table[1][code] = thick && !((x(6) || x(7) || !x(4)) && x(5));
  }
  return table;
}

const Table kDeletable = make_table();

}  // namespace

std::vector<int32_t> thin(const uint8_t* map, int height, int width) {
  // A frame of unset pixels spares every bounds check.
  const int stride = width + 2;
  std::vector<uint8_t> image(static_cast<size_t>(height + 2) * stride, 0);
  std::vector<int32_t> set;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      if (map[static_cast<size_t>(y) * width + x]) {
        set.push_back((y + 1) * stride + x + 1);
        image[set.back()] = 1;
      }
    }
  }
  const int step[8] = {1, 1 - stride, -stride, -1 - stride, -1, stride - 1, stride, stride + 1};
  // queued[p] has bit s set while p waits to be looked at in subiteration s.
  std::vector<uint8_t> queued(image.size(), 0);
  for (int32_t p : set) queued[p] = 3;
  std::array<std::vector<int32_t>, 2> waiting{set, set};
  std::vector<int32_t> going;
  while (!waiting[0].empty() || !waiting[1].empty()) {
    for (int s = 0; s < 2; ++s) {
      going.clear();
      for (int32_t p : waiting[s]) {
        queued[p] &= static_cast<uint8_t>(~(1 << s));
        if (!image[p]) continue;
        int code = 0;
        for (int i = 0; i < 8; ++i) code |= image[p + step[i]] << i;
        if (kDeletable[s][code]) going.push_back(p);
      }
      waiting[s].clear();
      for (int32_t p : going) image[p] = 0;  // all at once: the decision saw none of them gone
      for (int32_t p : going) {
        for (int offset : step) {
          const int32_t q = p + offset;
          if (!image[q]) continue;
          for (int later = 0; later < 2; ++later) {
            if (queued[q] & (1 << later)) continue;
            queued[q] |= static_cast<uint8_t>(1 << later);
            waiting[later].push_back(q);
          }
        }
      }
    }
  }
  std::vector<int32_t> left;
  for (int32_t p : set) {
    if (image[p]) left.push_back((p / stride - 1) * width + p % stride - 1);
  }
  return left;
}

}  // namespace pixeldiff
