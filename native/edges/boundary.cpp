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

// The pixels above level 0, highest level first.
std::vector<int32_t> falling_pixels(const uint8_t* map, size_t size) {
  std::vector<std::vector<int32_t>> by_level(256);
  for (size_t i = 0; i < size; ++i) by_level[map[i]].push_back(static_cast<int32_t>(i));
  std::vector<int32_t> pixels;
  for (int level = 255; level > 0; --level) {
    pixels.insert(pixels.end(), by_level[level].begin(), by_level[level].end());
  }
  return pixels;
}

// Number the pixels in row order: neighbours in the picture become neighbours in memory.
void sort_by_place(Sweep& sweep) {
  std::vector<int32_t> order(sweep.pixels.size()), place(sweep.pixels.size()), pixels;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return sweep.pixels[a] < sweep.pixels[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int32_t>(i);
    pixels.push_back(sweep.pixels[order[i]]);
  }
  sweep.pixels.swap(pixels);
  for (Step& step : sweep.steps) {
    for (auto* list : {&step.come, &step.go}) {
      for (int32_t& p : *list) p = place[p];
    }
  }
}

Sweep make_sweep(const uint8_t* map, int height, int width, const std::vector<int>& falling, bool thinned) {
  const auto pixels = falling_pixels(map, static_cast<size_t>(height) * width);
  Thinner thinner(height, width);
  Sweep sweep;
  size_t added = 0;
  std::vector<int32_t> id(pixels.size(), -1);          // index into sweep.pixels
  std::vector<uint8_t> before(pixels.size(), 0), now;  // which of the pixels are present
  for (int level : falling) {
    for (; added < pixels.size() && map[pixels[added]] >= level; ++added) {
      if (thinned) thinner.add(pixels[added]);
    }
    now = thinned ? thinner.thin() : std::vector<uint8_t>(added, 1);
    Step step;
    for (size_t i = 0; i < added; ++i) {
      step.size += now[i];
      if (now[i] == before[i]) continue;
      before[i] = now[i];
      if (id[i] < 0) {
        id[i] = static_cast<int32_t>(sweep.pixels.size());
        sweep.pixels.push_back(pixels[i]);
      }
      (now[i] ? step.come : step.go).push_back(id[i]);
    }
    sweep.steps.push_back(std::move(step));
  }
  sort_by_place(sweep);
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
  // The pixels matched at each step by some annotator so far.
  std::vector<Bits> matched(levels.size(), Bits(sweep.pixels.size()));
  for (size_t annotator = 0; annotator < truths.size(); ++annotator) {
    Matcher matcher(sweep.pixels, truths[annotator], height, width, radius, static_cast<uint32_t>(annotator));
    for (size_t s = 0; s < order.size(); ++s) {
      for (int32_t p : sweep.steps[s].go) matcher.remove(p);
      for (int32_t p : sweep.steps[s].come) matcher.insert(p);
      matched[s] |= matcher.matched();
      counts.matched_truth[order[s]] += matcher.pairs();
      counts.cost[order[s]] += matcher.cost();
    }
  }
  for (size_t s = 0; s < order.size(); ++s) {
    counts.matched_prediction[order[s]] = matched[s].count();
    counts.all_prediction[order[s]] = sweep.steps[s].size;
  }
  return counts;
}

}  // namespace pixeldiff
