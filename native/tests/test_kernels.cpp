// The kernels on random and degenerate maps, compared with brute force; built with sanitizers by `make check-native`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "edges/boundary.hpp"
#include "edges/match.hpp"
#include "edges/nms.hpp"
#include "edges/thin.hpp"
#include "edges/trace.hpp"
#include "test_float.hpp"
#include "test_packed.hpp"
#include "test_threads.hpp"

using namespace pixeldiff;

namespace {

std::mt19937 random_engine(0);

int below(int n) { return static_cast<int>(random_engine() % static_cast<unsigned>(n)); }

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

std::vector<int32_t> random_pixels(int size, int percent) {
  std::vector<int32_t> pixels;
  for (int i = 0; i < size; ++i) {
    if (below(100) < percent) pixels.push_back(i);
  }
  return pixels;
}

// (pairs, least cost) over every one-to-one matching, by trying them all.
std::pair<int64_t, int64_t> brute_force(const std::vector<int32_t>& predicted, const std::vector<int32_t>& truth,
                                        int width, double radius, size_t i, std::vector<bool>& taken) {
  if (i == predicted.size()) return {0, 0};
  auto best = brute_force(predicted, truth, width, radius, i + 1, taken);
  for (size_t t = 0; t < truth.size(); ++t) {
    const int64_t dy = predicted[i] / width - truth[t] / width, dx = predicted[i] % width - truth[t] % width;
    if (taken[t] || static_cast<double>(dy * dy + dx * dx) > radius * radius) continue;
    taken[t] = true;
    auto rest = brute_force(predicted, truth, width, radius, i + 1, taken);
    taken[t] = false;
    rest.first += 1;
    rest.second += pair_cost(dy * dy + dx * dx);
    if (rest.first > best.first || (rest.first == best.first && rest.second < best.second)) best = rest;
  }
  return best;
}

// Pixels come and go at random; after each change the matching is the best one, however it was reached.
void test_matching_stays_optimal() {
  for (int round = 0; round < 300; ++round) {
    const int height = 1 + below(5), width = 1 + below(5);
    const auto predicted = random_pixels(height * width, 30), truth = random_pixels(height * width, 30);
    if (predicted.empty() || predicted.size() > 7 || truth.size() > 7) continue;
    const double radius = 0.5 * below(8);
    Matcher matcher(predicted, truth, height, width, radius, 1);
    std::vector<bool> present(predicted.size(), false);
    for (int change = 0; change < 20; ++change) {
      const int32_t p = below(static_cast<int>(predicted.size()));
      present[p] ? matcher.remove(p) : matcher.insert(p);
      present[p] = !present[p];
      std::vector<int32_t> now;
      for (size_t i = 0; i < predicted.size(); ++i) {
        if (present[i]) now.push_back(predicted[i]);
      }
      std::vector<bool> taken(truth.size(), false);
      const auto expected = brute_force(now, truth, width, radius, 0, taken);
      check(matcher.pairs() == expected.first, "as many pairs as brute force");
      check(matcher.cost() == expected.second, "the cost of brute force");
      Matcher fresh(predicted, truth, height, width, radius, 1);
      for (size_t i = predicted.size(); i-- > 0;) {
        if (present[i]) fresh.insert(static_cast<int32_t>(i));
      }
      for (size_t i = 0; i < predicted.size(); ++i) {
        check(fresh.matched().test(i) == matcher.matched().test(i), "the same pixels from any history");
      }
    }
  }
}

void test_thinning_is_stable_and_repeatable() {
  for (int round = 0; round < 100; ++round) {
    const int height = 1 + below(30), width = 1 + below(30), percent = 10 + below(91);
    std::vector<uint8_t> map(static_cast<size_t>(height) * width);
    for (auto& value : map) value = below(100) < percent;
    const auto once = thin(map.data(), height, width);
    std::vector<uint8_t> thinned(map.size(), 0);
    for (int32_t pixel : once) thinned[pixel] = 1;
    for (size_t i = 0; i < map.size(); ++i) check(thinned[i] <= map[i], "thinning only takes away");
    check(thin(thinned.data(), height, width) == once, "a thinned map stays as it is");
  }
}

// The direction across an edge may be 0 / 0 or x / 0, and a map may hold what is no number.
void test_suppression_of_anything() {
  const float odd[] = {0.0f, 1.0f, NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 1e-38f};
  for (int round = 0; round < 200; ++round) {
    const int height = 1 + below(20), width = 1 + below(20), kinds = 1 + below(8);
    std::vector<float> map(static_cast<size_t>(height) * width);
    for (auto& value : map) value = below(4) ? odd[below(kinds)] : static_cast<float>(below(256)) / 255;
    check(nms(map.data(), height, width, 1 + below(3)).size() == map.size(), "a map of the same size");
  }
}

void test_counts_of_odd_sizes() {
  for (int round = 0; round < 40; ++round) {
    const int height = 1 + below(40), width = 1 + below(40);
    std::vector<float> soft(static_cast<size_t>(height) * width);
    for (auto& value : soft) value = static_cast<float>(below(1000)) / 999;
    const auto kept = nms(soft.data(), height, width, 1 + below(3));
    std::vector<uint8_t> map;
    for (float value : kept) map.push_back(static_cast<uint8_t>(255 * value));
    std::vector<std::vector<int32_t>> truths;
    for (int k = below(4); k > 0; --k) truths.push_back(random_pixels(height * width, below(60)));
    const std::vector<int> levels{200, 1, 0, 256, 77, 77, 30, 128};
    const bool thinned = below(2);
    const auto counts = count_boundary(map.data(), height, width, levels, thinned, truths, 0.3 * below(20));
    for (size_t k = 0; k < levels.size(); ++k) {
      check(counts.matched_prediction[k] <= counts.all_prediction[k], "no more matched than there are");
      check(counts.matched_prediction[k] <= counts.matched_truth[k], "the union is no larger than the sum");
    }
    check(counts.all_prediction[3] == 0, "nothing reaches level 256");
    check(counts.matched_truth[4] == counts.matched_truth[5], "equal levels, equal counts");
  }
}

void test_traced_chains_use_every_link_once() {
  for (int round = 0; round < 60; ++round) {
    const int height = 1 + below(30), width = 1 + below(30), percent = below(100);
    std::vector<uint8_t> map(static_cast<size_t>(height) * width);
    for (auto& value : map) value = below(100) < percent;
    const auto chains = trace(map.data(), height, width);
    std::vector<std::pair<int32_t, int32_t>> used;
    for (size_t k = 0; k + 1 < chains.starts.size(); ++k) {
      check(chains.starts[k + 1] - chains.starts[k] >= 2, "a chain has a link");
      for (auto i = chains.starts[k] + 1; i < chains.starts[k + 1]; ++i) {
        used.push_back(std::minmax(chains.pixels[i - 1], chains.pixels[i]));
        check(map[used.back().first] && map[used.back().second], "chains run over set pixels");
      }
    }
    std::sort(used.begin(), used.end());
    check(std::adjacent_find(used.begin(), used.end()) == used.end(), "no link is used twice");
  }
}

}  // namespace

int main() {
  test_matching_stays_optimal();
  test_thinning_is_stable_and_repeatable();
  test_suppression_of_anything();
  test_counts_of_odd_sizes();
  test_traced_chains_use_every_link_once();
  test_threads();
  test_packed();
  test_float();
  std::puts("kernels: all tests passed");
}
