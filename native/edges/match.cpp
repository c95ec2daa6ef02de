// See match.hpp for what is kept true.
#include "match.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace pixeldiff {
namespace {

// What a single predicted pixel costs: more than any chain of pairs can save.
constexpr int64_t kSingle = int64_t{1} << 60;
constexpr int32_t kNone = -1;

// Columns of the pixels of each row, with an entry point at every 16th column.
class Rows {
 public:
  Rows(const std::vector<int32_t>& pixels, int height, int width) : blocks_(width / 16 + 1), width_(width) {
    entry_.assign(static_cast<size_t>(height) * blocks_ + 1, 0);
    for (int32_t pixel : pixels) {
      columns_.push_back(pixel % width);
      ++entry_[static_cast<size_t>(pixel / width) * blocks_ + pixel % width / 16 + 1];
    }
    std::partial_sum(entry_.begin(), entry_.end(), entry_.begin());
  }

  // Calls found(index of the pixel, column) for the pixels of row y with first <= column <= last.
  template <class Found>
  void visit(int y, int first, int last, Found found) const {
    first = std::max(first, 0);
    last = std::min(last, width_ - 1);
    const size_t row = static_cast<size_t>(y) * blocks_;
    for (int32_t i = entry_[row + first / 16]; i < entry_[row + last / 16 + 1]; ++i) {
      if (columns_[i] >= first && columns_[i] <= last) found(i, columns_[i]);
    }
  }

 private:
  int blocks_, width_;
  std::vector<int32_t> columns_, entry_;
};

}  // namespace

int32_t pair_cost(int64_t squared_distance) {
  return static_cast<int32_t>(std::floor(100.0 * std::sqrt(static_cast<double>(squared_distance)) + 0.5));
}

Matcher::Matcher(const std::vector<int32_t>& predicted, const std::vector<int32_t>& truth, int height, int width,
                 double radius, uint32_t annotator)
    : scale_(static_cast<int64_t>(predicted.size()) + 1),
      single_cost_(predicted.size()),
      mate_(predicted.size(), kNone),
      present_(predicted.size(), 0),
      truth_(truth.size()),
      matched_(predicted.size()) {
  std::vector<int32_t> order(predicted.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return priority(static_cast<uint32_t>(predicted[a]), annotator) <
           priority(static_cast<uint32_t>(predicted[b]), annotator);
  });
  for (size_t rank = 0; rank < order.size(); ++rank) single_cost_[order[rank]] = kSingle + static_cast<int64_t>(rank);
  const double longest = static_cast<double>(std::min(predicted.size(), truth.size()) + 1);
  if (longest * static_cast<double>(scale_) * (100 * radius + 1) >= static_cast<double>(kSingle)) {
    throw std::overflow_error("too many boundary pixels for exact 64-bit costs; use a smaller picture or max_dist");
  }
  build(predicted, truth, height, width, radius);
}

void Matcher::build(const std::vector<int32_t>& predicted, const std::vector<int32_t>& truth, int height, int width,
                    double radius) {
  const int reach = static_cast<int>(std::min<double>(radius, height));
  std::vector<int> half_width(reach + 1);  // of the disc, dy rows from its centre
  for (int dy = 0; dy <= reach; ++dy) {
    const double left = radius * radius - static_cast<double>(dy) * dy;
    int& half = half_width[dy];
    while (half < width && static_cast<double>(half + 1) * (half + 1) <= left) ++half;
  }
  const auto nearer = [](const Edge& a, const Edge& b) { return a.cost < b.cost; };
  std::vector<int64_t> degree(truth.size() + 1, 0);
  const Rows rows(truth, height, width);
  std::vector<Edge> near;
  of_predicted_.first.assign(1, 0);
  for (int32_t pixel : predicted) {
    const int y = pixel / width, x = pixel % width;
    near.clear();
    for (int ty = std::max(y - reach, 0); ty <= std::min(y + reach, height - 1); ++ty) {
      const int64_t dy = std::abs(ty - y);
      rows.visit(ty, x - half_width[dy], x + half_width[dy], [&](int32_t t, int64_t tx) {
        near.push_back({t, pair_cost(dy * dy + (tx - x) * (tx - x))});
        ++degree[t + 1];
      });
    }
    std::sort(near.begin(), near.end(), nearer);
    of_predicted_.edges.insert(of_predicted_.edges.end(), near.begin(), near.end());
    of_predicted_.first.push_back(static_cast<int64_t>(of_predicted_.edges.size()));
  }
  // The same edges seen from the truth.
  std::partial_sum(degree.begin(), degree.end(), degree.begin());
  of_truth_.first = degree;
  of_truth_.edges.resize(of_predicted_.edges.size());
  for (size_t p = 0; p < predicted.size(); ++p) {
    for (int64_t e = of_predicted_.first[p]; e < of_predicted_.first[p + 1]; ++e) {
      const Edge& edge = of_predicted_.edges[e];
      of_truth_.edges[degree[edge.node]++] = {static_cast<int32_t>(p), edge.cost};
    }
  }
}

void Matcher::begin_search() {
  heap_.clear();
  done_.clear();
  if (++search_ == 0) {  // the stamps have gone round once
    for (TruthPixel& t : truth_) t.stamp = 0;
    search_ = 1;
  }
}

void Matcher::place(size_t slot, const Entry& entry) {
  heap_[slot] = entry;
  truth_[entry.second].slot = static_cast<int32_t>(slot);
}

// Put an entry into its place between `slot` and the root.
void Matcher::rise(size_t slot, const Entry& entry) {
  while (slot > 0 && entry.first < heap_[(slot - 1) / 2].first) {
    place(slot, heap_[(slot - 1) / 2]);
    slot = (slot - 1) / 2;
  }
  place(slot, entry);
}

// A label that is new or smaller than the one before: the heap holds each truth pixel once.
void Matcher::reach(int32_t t, int64_t label, int32_t from) {
  TruthPixel& pixel = truth_[t];
  if (pixel.stamp != search_) {
    pixel.stamp = search_;
    pixel.slot = static_cast<int32_t>(heap_.size());
    heap_.emplace_back();
  }
  pixel.label = label;
  pixel.from = from;
  rise(static_cast<size_t>(pixel.slot), {label, t});
}

Matcher::Entry Matcher::pop() {
  const Entry least = heap_.front(), last = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  if (size == 0) return least;
  size_t slot = 0;
  for (size_t child = 1; child < size; child = 2 * slot + 1) {
    if (child + 1 < size && heap_[child + 1].first < heap_[child].first) ++child;
    if (last.first <= heap_[child].first) break;
    place(slot, heap_[child]);
    slot = child;
  }
  place(slot, last);
  return least;
}

void Matcher::pair(int32_t p, int32_t t) {
  separate(p);
  // The cost is found among p's few edges rather than carried through the search.
  int64_t e = of_predicted_.first[p];
  while (of_predicted_.edges[e].node != t) ++e;
  mate_[p] = t;
  truth_[t].mate = p;
  truth_[t].mate_cost = of_predicted_.edges[e].cost;
  cost_ += truth_[t].mate_cost;
  matched_.set(p);
}

// Leaves the truth pixel's side to the caller.
void Matcher::separate(int32_t p) {
  if (mate_[p] == kNone) return;
  cost_ -= truth_[mate_[p]].mate_cost;
  mate_[p] = kNone;
  matched_.reset(p);
}

// Shift the pairs along the path that reached `t` from the new pixel `start`.
void Matcher::augment(int32_t t, int32_t start) {
  if (truth_[t].mate != kNone) separate(truth_[t].mate);
  for (;;) {
    const int32_t p = truth_[t].from;
    const int32_t before = mate_[p];
    pair(p, t);
    if (p == start) return;
    t = before;
  }
}

// Label of t: the least cost of bringing `start` in and pushing t's partner out of its place.
void Matcher::insert(int32_t start) {
  present_[start] = 1;
  begin_search();
  int64_t best = single_cost_[start];  // it stays single ...
  int32_t end = kNone;                 // ... or the chain ends at this truth pixel
  auto scan = [&](int32_t p, int64_t base) {
    for (int64_t e = of_predicted_.first[p]; e < of_predicted_.first[p + 1]; ++e) {
      const Edge& edge = of_predicted_.edges[e];
      const int64_t reached = base + edge.cost * scale_;
      if (reached >= best) break;  // v <= 0, so the farther ones are no better
      const TruthPixel& t = truth_[edge.node];
      const int64_t label = reached - t.v;
      if (label >= best || (t.stamp == search_ && label >= t.label)) continue;
      reach(edge.node, label, p);
      // A single truth pixel ends the chain; a taken one may, by leaving its partner single.
      const int64_t total = t.mate == kNone ? label : label + single_cost_[t.mate] - partner_potential(t);
      if (total < best) {
        best = total;
        end = edge.node;
      }
    }
  };
  scan(start, 0);
  while (!heap_.empty()) {
    const auto [label, t] = pop();
    if (label >= best) break;
    done_.emplace_back(label, t);
    scan(truth_[t].mate, label - partner_potential(truth_[t]));
  }
  for (const auto& [label, t] : done_) truth_[t].v += label - best;
  if (end == kNone) return;
  if (truth_[end].mate == kNone) ++pairs_;
  augment(end, start);
}

// Label of t: the least cost of filling the hole that the leaving pixel makes with t's partner.
void Matcher::remove(int32_t start) {
  present_[start] = 0;
  const int32_t hole = mate_[start];
  if (hole == kNone) return;
  separate(start);
  truth_[hole].mate = kNone;
  begin_search();
  int64_t best = -truth_[hole].v;  // the hole stays ...
  int32_t end = hole;              // ... or moves to this truth pixel ...
  int32_t filler = kNone;          // ... or is filled there by this single pixel
  if (best > 0) reach(hole, 0, kNone);
  while (!heap_.empty()) {
    const auto [label, at] = pop();
    if (label >= best) break;
    done_.emplace_back(label, at);
    const int64_t base = label - truth_[at].v;
    for (int64_t e = of_truth_.first[at]; e < of_truth_.first[at + 1]; ++e) {
      const Edge& edge = of_truth_.edges[e];
      if (!present_[edge.node]) continue;
      const int32_t other = mate_[edge.node];
      const int64_t u = other == kNone ? single_cost_[edge.node] : partner_potential(truth_[other]);
      const int64_t next = base + edge.cost * scale_ - u;
      if (next >= best) continue;
      if (other == kNone) {
        best = next;
        end = at;
        filler = edge.node;
      } else if (truth_[other].stamp != search_ || next < truth_[other].label) {
        reach(other, next, at);
        if (next - truth_[other].v < best) {
          best = next - truth_[other].v;
          end = other;
          filler = kNone;
        }
      }
    }
  }
  for (const auto& [label, t] : done_) truth_[t].v += best - label;
  if (filler == kNone) --pairs_;
  // Back along the path: each truth pixel takes what the one behind it gave up.
  int32_t given = filler;
  for (int32_t t = end;; t = truth_[t].from) {
    const int32_t before = truth_[t].mate;
    if (before != kNone) separate(before);
    truth_[t].mate = kNone;
    if (given != kNone) pair(given, t);
    given = before;
    if (t == hole) return;
  }
}

}  // namespace pixeldiff
