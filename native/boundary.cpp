// See boundary.hpp. Thresholds are visited from high to low: the maps then grow almost nested, and each matching is
// carried from one threshold to the next by inserting what comes and removing what goes.
#include "boundary.hpp"

#include <algorithm>
#include <numeric>

#include "match.hpp"
#include "thin.hpp"

namespace pixeldiff {
namespace {

// What changes on the way to one threshold, as indices into `Sweep::pixels`.
struct Step {
  std::vector<int32_t> come, go;
  int64_t size = 0;  // pixels present afterwards
};

struct Sweep {
  std::vector<int32_t> pixels;  // every pixel that is present at some threshold
  std::vector<Step> steps;
};

Sweep make_sweep(const uint8_t* map, int height, int width, const std::vector<int>& falling, bool thinned) {
  const size_t size = static_cast<size_t>(height) * width;
  Sweep sweep;
  std::vector<int32_t> id(size, -1), before, now;
  std::vector<uint8_t> mask(size);
  for (int level : falling) {
    for (size_t i = 0; i < size; ++i) mask[i] = map[i] >= level;
    if (thinned) {
      now = thin(mask.data(), height, width);
    } else {
      now.clear();
      for (size_t i = 0; i < size; ++i) {
        if (mask[i]) now.push_back(static_cast<int32_t>(i));
      }
    }
    for (int32_t pixel : now) {
      if (id[pixel] >= 0) continue;
      id[pixel] = static_cast<int32_t>(sweep.pixels.size());
      sweep.pixels.push_back(pixel);
    }
    Step step;
    std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(step.come));
    std::set_difference(before.begin(), before.end(), now.begin(), now.end(), std::back_inserter(step.go));
    for (auto* list : {&step.come, &step.go}) {
      for (int32_t& pixel : *list) pixel = id[pixel];
    }
    step.size = static_cast<int64_t>(now.size());
    sweep.steps.push_back(std::move(step));
    before.swap(now);
  }
  return sweep;
}

}  // namespace

BoundaryCounts count_boundary(const uint8_t* map, int height, int width, const std::vector<int>& levels, bool thinned,
                              const std::vector<std::vector<int32_t>>& truths, double radius) {
  std::vector<size_t> order(levels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return levels[a] > levels[b]; });
  std::vector<int> falling;
  for (size_t k : order) falling.push_back(levels[k]);
  const Sweep sweep = make_sweep(map, height, width, falling, thinned);

  BoundaryCounts counts;
  for (auto* list : {&counts.matched_truth, &counts.matched_prediction, &counts.all_prediction, &counts.cost}) {
    list->assign(levels.size(), 0);
  }
  // matched[s][p]: some annotator so far matches pixel p at step s
  std::vector<std::vector<bool>> matched(levels.size(), std::vector<bool>(sweep.pixels.size(), false));
  for (size_t annotator = 0; annotator < truths.size(); ++annotator) {
    Matcher matcher(sweep.pixels, truths[annotator], height, width, radius, static_cast<uint32_t>(annotator));
    for (size_t s = 0; s < order.size(); ++s) {
      for (int32_t p : sweep.steps[s].go) matcher.remove(p);
      for (int32_t p : sweep.steps[s].come) matcher.insert(p);
      for (size_t p = 0; p < sweep.pixels.size(); ++p) {
        if (matcher.is_matched(static_cast<int32_t>(p))) matched[s][p] = true;
      }
      counts.matched_truth[order[s]] += matcher.pairs();
      counts.cost[order[s]] += matcher.cost();
    }
  }
  for (size_t s = 0; s < order.size(); ++s) {
    counts.matched_prediction[order[s]] = std::count(matched[s].begin(), matched[s].end(), true);
    counts.all_prediction[order[s]] = sweep.steps[s].size;
  }
  return counts;
}

}  // namespace pixeldiff
