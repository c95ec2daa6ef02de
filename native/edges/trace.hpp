// Thin maps to chains of pixels, for vector lines.
//
// Neighbouring set pixels are linked; a diagonal step is no link where two straight steps lead to the same pixel. Chains
// run from an end or a junction (not two links) to the next; then come the loops, which end on the pixel they began with.
// Every link belongs to exactly one chain; a pixel without links to none.
#pragma once

#include <cstdint>
#include <vector>

namespace pixeldiff {

struct Chains {
  std::vector<int32_t> pixels;  // row * width + column, chain after chain
  std::vector<int64_t> starts;  // where each chain begins in `pixels`, and the end of the last
};

Chains trace(const uint8_t* map, int height, int width);

}  // namespace pixeldiff
