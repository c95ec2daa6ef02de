// Non-maximum suppression of soft edge maps: only the crest of each edge keeps its value.
//
// The map E is smoothed with a triangle filter of radius 1. The direction across the edge comes from the second
// derivatives of E smoothed once more with radius 4,
//   O = atan(Oyy * sign(-Oxy) / (Oxx + 1e-5)) mod pi,    sign(0) = +1, so that an exactly level ridge is seen too,
// and a pixel goes to 0 where 1.01 * E is below E at distance 1 (.. radius) to either side along (cos O, sin O), read
// bilinearly; places outside count as the nearest border pixel. The outer 5 pixels fade linearly to 0.
#pragma once

#include <vector>

namespace pixeldiff {

std::vector<float> nms(const float* map, int height, int width, int radius);

}  // namespace pixeldiff
