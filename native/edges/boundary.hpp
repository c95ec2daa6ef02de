// The counts of the boundary benchmark for one map: thresholds, thinning, and matching with every annotator.
#pragma once

#include <cstdint>
#include <vector>

namespace pixeldiff {

struct BoundaryCounts {                     // one entry per threshold, in the order asked
  std::vector<int64_t> matched_truth;       // summed over annotators
  std::vector<int64_t> matched_prediction;  // matched with at least one annotator
  std::vector<int64_t> all_prediction;
  std::vector<int64_t> cost;  // total round(100 * distance), summed over annotators
};

// `map` is row-major 8 bit. A threshold is the lowest level that counts as boundary, 0..256. Annotator k of `truths`
// is a list of pixel indices. `radius` in pixels.
BoundaryCounts count_boundary(const uint8_t* map, int height, int width, const std::vector<int>& levels, bool thinned,
                              const std::vector<std::vector<int32_t>>& truths, double radius);

}  // namespace pixeldiff
