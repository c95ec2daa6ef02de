// See thin.hpp. Only pixels whose neighbourhood says so, or has changed, are ever looked at; what goes is put back at the
// end, so that the next threshold starts from the whole map.
#include "thin.hpp"

#include <cstddef>

namespace pixeldiff {
namespace {

// deletable[subiteration][neighbours]
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

Thinner::Thinner(int height, int width) : width_(width), stride_(width + 2) {
  const int s = stride_;
  step_ = {1, 1 - s, -s, -1 - s, -1, s - 1, s, s + 1};
  for (auto* plane : {&set_, &neighbours_, &queued_}) plane->assign(static_cast<size_t>(height + 2) * s, 0);
}

// Set or unset a pixel and tell its neighbours: this is neighbour i + 4 (the opposite one) of its neighbour i.
void Thinner::toggle(int32_t p) {
  set_[p] ^= 1;
  for (int i = 0; i < 8; ++i) neighbours_[p + step_[i]] ^= static_cast<uint8_t>(1 << ((i + 4) % 8));
}

void Thinner::add(int32_t pixel) {
  framed_.push_back((pixel / width_ + 1) * stride_ + pixel % width_ + 1);
  toggle(framed_.back());
}

void Thinner::queue(int32_t p, int subiteration) {
  if (queued_[p] & (1 << subiteration)) return;
  queued_[p] |= static_cast<uint8_t>(1 << subiteration);
  waiting_[subiteration].push_back(p);
}

std::vector<uint8_t> Thinner::thin() {
  for (int32_t p : framed_) {
    for (int s = 0; s < 2; ++s) {
      if (kDeletable[s][neighbours_[p]]) queue(p, s);
    }
  }
  std::vector<int32_t> gone, going;
  while (!waiting_[0].empty() || !waiting_[1].empty()) {
    for (int s = 0; s < 2; ++s) {
      going.clear();
      for (int32_t p : waiting_[s]) {
        queued_[p] &= static_cast<uint8_t>(~(1 << s));
        if (set_[p] && kDeletable[s][neighbours_[p]]) going.push_back(p);
      }
      waiting_[s].clear();
      for (int32_t p : going) toggle(p);  // all at once: the decision saw none of them gone
      for (int32_t p : going) {
        for (int offset : step_) {
          const int32_t q = p + offset;
          if (!set_[q]) continue;
          for (int later = 0; later < 2; ++later) {
            if (kDeletable[later][neighbours_[q]]) queue(q, later);
          }
        }
      }
      gone.insert(gone.end(), going.begin(), going.end());
    }
  }
  std::vector<uint8_t> stays(framed_.size());
  for (size_t i = 0; i < framed_.size(); ++i) stays[i] = set_[framed_[i]];
  for (int32_t p : gone) toggle(p);
  return stays;
}

std::vector<int32_t> thin(const uint8_t* map, int height, int width) {
  Thinner thinner(height, width);
  std::vector<int32_t> pixels, left;
  for (int32_t i = 0; i < height * width; ++i) {
    if (!map[i]) continue;
    pixels.push_back(i);
    thinner.add(i);
  }
  const std::vector<uint8_t> stays = thinner.thin();
  for (size_t i = 0; i < pixels.size(); ++i) {
    if (stays[i]) left.push_back(pixels[i]);
  }
  return left;
}

}  // namespace pixeldiff
