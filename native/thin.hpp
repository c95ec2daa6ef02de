// Thinning of binary maps: Guo and Hall's two-subiteration algorithm, repeated until nothing changes.
//
// Z. Guo and R. W. Hall, "Parallel thinning with two-subiteration algorithms", CACM 32 (1989). With the neighbours
// x1..x8 counter-clockwise from the east, a set pixel goes in a subiteration if
//   G1: the number of i in {1,3,5,7} with x_i = 0 and (x_i+1 or x_i+2) is 1;
//   G2: 2 <= min(n1, n2) <= 3, n1 = pairs (x1|x2)+(x3|x4)+(x5|x6)+(x7|x8), n2 = pairs (x2|x3)+...+(x8|x1);
//   G3: (x2 | x3 | !x8) & x1 = 0 in the first, (x6 | x7 | !x4) & x5 = 0 in the second subiteration.
// Pixels outside the map count as unset.
#pragma once

#include <cstdint>
#include <vector>

namespace pixeldiff {

// The indices (row * width + column, ascending) that remain of the non-zero pixels of a row-major map.
std::vector<int32_t> thin(const uint8_t* map, int height, int width);

}  // namespace pixeldiff
