// See thin.hpp. Only pixels whose neighbourhood says so, or has changed, are ever looked at; what goes is put back at the
// end, so that the next threshold starts from the whole map.
#include "thin.hpp"

#include <algorithm>
#include <cstddef>

namespace pixeldiff {
namespace {

// Bit s of deletable[neighbours]: the pixel goes in subiteration s.
using Table = std::array<uint8_t, 256>;

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
    const bool east = (x(2) || x(3) || !x(8)) && x(1), west = (x(6) || x(7) || !x(4)) && x(5);
    table[code] = static_cast<uint8_t>(thick ? (!east) | (!west) << 1 : 0);
  }
  return table;
}

const Table kDeletable = make_table();

uint8_t deletable(uint16_t state) { return kDeletable[state & 255]; }

}  // namespace

Thinner::Thinner(int height, int width) : width_(width), stride_(width + 2) {
  const int s = stride_;
  step_ = {1, 1 - s, -s, -1 - s, -1, s - 1, s, s + 1};
  state_.assign(static_cast<size_t>(height + 2) * s, 0);
  number_.resize(state_.size());
}

// Set or unset a pixel and tell its neighbours: this is neighbour i + 4 (the opposite one) of its neighbour i.
void Thinner::toggle(int32_t p) {
  state_[p] ^= kSet;
  for (int i = 0; i < 8; ++i) state_[p + step_[i]] ^= static_cast<uint16_t>(1 << ((i + 4) % 8));
}

void Thinner::list(int32_t p) {
  if ((state_[p] & (kSet | kListed)) != kSet || !deletable(state_[p])) return;
  state_[p] |= kListed;
  first_.push_back(p);
}

void Thinner::add(int32_t pixel) {
  const int32_t p = (pixel / width_ + 1) * stride_ + pixel % width_ + 1;
  number_[p] = size_++;
  toggle(p);
  list(p);
  for (int offset : step_) list(p + offset);
}

void Thinner::queue(int32_t p, int subiteration) {
  const auto flag = static_cast<uint16_t>(kQueued << subiteration);
  if (!(deletable(state_[p]) >> subiteration & 1) || state_[p] & flag) return;
  state_[p] |= flag;
  waiting_[subiteration].push_back(p);
}

std::vector<uint8_t> Thinner::thin() {
  // In row order, neighbours are still in the cache when their turn comes.
  std::sort(first_.begin() + sorted_, first_.end());
  std::inplace_merge(first_.begin(), first_.begin() + sorted_, first_.end());
  size_t kept = 0;
  for (int32_t p : first_) {
    if (!deletable(state_[p])) {  // a neighbour came since
      state_[p] &= static_cast<uint16_t>(~kListed);
      continue;
    }
    first_[kept++] = p;
    queue(p, 0);
    queue(p, 1);
  }
  first_.resize(kept);
  sorted_ = static_cast<std::ptrdiff_t>(kept);
  std::vector<int32_t> gone, going;
  while (!waiting_[0].empty() || !waiting_[1].empty()) {
    for (int s = 0; s < 2; ++s) {
      going.clear();
      for (int32_t p : waiting_[s]) {
        state_[p] &= static_cast<uint16_t>(~(kQueued << s));
        if (state_[p] & kSet && deletable(state_[p]) >> s & 1) going.push_back(p);
      }
      waiting_[s].clear();
      for (int32_t p : going) toggle(p);  // all at once: the decision saw none of them gone
      for (int32_t p : going) {
        for (int offset : step_) {
          const int32_t q = p + offset;
          if (!(state_[q] & kSet)) continue;
          queue(q, 0);
          queue(q, 1);
        }
      }
      gone.insert(gone.end(), going.begin(), going.end());
    }
  }
  std::vector<uint8_t> stays(static_cast<size_t>(size_), 1);
  for (int32_t p : gone) stays[number_[p]] = 0;
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
