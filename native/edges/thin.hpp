// Thinning of binary maps: Guo and Hall's two-subiteration algorithm, repeated until nothing changes.
//
// Z. Guo and R. W. Hall, "Parallel thinning with two-subiteration algorithms", CACM 32 (1989). With the neighbours
// x1..x8 counter-clockwise from the east, a set pixel goes in a subiteration if
//   G1: the number of i in {1,3,5,7} with x_i = 0 and (x_i+1 or x_i+2) is 1;
//   G2: 2 <= min(n1, n2) <= 3, n1 = pairs (x1|x2)+(x3|x4)+(x5|x6)+(x7|x8), n2 = pairs (x2|x3)+...+(x8|x1);
//   G3: (x2 | x3 | !x8) & x1 = 0 in the first, (x6 | x7 | !x4) & x5 = 0 in the second subiteration.
// Pixels outside the map count as unset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pixeldiff {

// A map that grows pixel by pixel and can be thinned at any time; the map itself stays as it is.
class Thinner {
 public:
  Thinner(int height, int width);

  void add(int32_t pixel);  // row * width + column, not yet in the map
  // For each pixel, in the order they were added: 1 if thinning leaves it, 0 if not.
  std::vector<uint8_t> thin();

 private:
  // One word per pixel of the framed map: the neighbours in the low 8 bits (bit i is x_(i+1) of the paper), then flags.
  static constexpr uint16_t kSet = 1 << 8, kListed = 1 << 9, kQueued = 1 << 10;  // kQueued << s: for subiteration s

  void toggle(int32_t p);
  void list(int32_t p);
  void queue(int32_t p, int subiteration);

  int width_, stride_;  // a frame of unset pixels spares every bounds check
  std::array<int, 8> step_;
  int32_t size_ = 0;  // pixels added so far
  std::vector<uint16_t> state_;
  std::vector<int32_t> number_;  // when a pixel was added
  std::vector<int32_t> first_;   // pixels that the whole map lets go in its first pass
  std::ptrdiff_t sorted_ = 0;    // so many of them are in row order
  std::array<std::vector<int32_t>, 2> waiting_;
};

// The pixels (row * width + column, ascending) that remain of the non-zero ones of a row-major map.
std::vector<int32_t> thin(const uint8_t* map, int height, int width);

}  // namespace pixeldiff
