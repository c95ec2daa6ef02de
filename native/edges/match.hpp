// One-to-one matching of predicted with true boundary pixels, kept optimal while predicted pixels come and go.
//
// Among all matchings of pixels at most `radius` apart the optimum has, in this order,
//   1. the most pairs;
//   2. the least total cost, cost = round(100 * distance), an integer per pair;
//   3. the predicted pixels of highest priority.
// The predicted sides of the matchings that are best in 1 and 2 are the bases of a matroid (the optima of a valuated
// matroid), and a matroid has one heaviest basis when all priorities differ. So the matched predicted pixels are
// unique: they depend on the two sets of pixels only, never on the order in which they came.
//
// The method is that of successive shortest paths with potentials (Jonker and Volgenant, Computing 38, 1987). It keeps
//   cost * scale >= u(p) + v(t), equal for pairs;  v(t) <= 0, = 0 for single t;  u(p) <= K(p), = K(p) for single p
// where K(p) = kSingle + rank of p's priority, and scale is larger than any rank. One pixel that comes or goes is one
// Dijkstra search over reduced costs, which ends as soon as nothing nearer can be found. Only v is stored: u of a
// paired pixel follows from its pair.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bits.hpp"

namespace pixeldiff {

// A fixed pseudo-random order of pixels. It differs between annotators, as independent ties would.
// Odd multipliers make the map one to one, so no two pixels are equal.
inline uint32_t priority(uint32_t pixel, uint32_t annotator) {
  return (pixel * 0x9E3779B1u) ^ (annotator * 0x85EBCA6Bu);
}

int32_t pair_cost(int64_t squared_distance);  // round(100 * sqrt(.)), halves up

class Matcher {
 public:
  // Row-major pixel indices; `predicted` holds every pixel that may ever come. None is present at first.
  Matcher(const std::vector<int32_t>& predicted, const std::vector<int32_t>& truth, int height, int width,
          double radius, uint32_t annotator);

  // `p` is an index into `predicted`; a pixel comes only while absent and goes only while present.
  void insert(int32_t p);
  void remove(int32_t p);

  const Bits& matched() const { return matched_; }    // the predicted pixels that have a pair
  int32_t mate(int32_t p) const { return mate_[p]; }  // index into `truth`, -1 if single
  int64_t pairs() const { return pairs_; }
  int64_t cost() const { return cost_; }  // the sum of round(100 * distance)

 private:
  struct Edge {
    int32_t node;
    int32_t cost;  // round(100 * distance)
  };
  struct Graph {  // the edges of node i are edges[first[i]] .. edges[first[i + 1]]
    std::vector<int64_t> first;
    std::vector<Edge> edges;
  };
  struct TruthPixel {
    int64_t v = 0;
    int32_t mate = -1;
    int32_t mate_cost = 0;
    // One search: the label is valid where the stamp is the current one.
    uint32_t stamp = 0;
    int32_t slot;  // in the heap
    int32_t from;  // insert: the predicted pixel, remove: the truth pixel that the label came from
    int64_t label;
  };
  using Entry = std::pair<int64_t, int32_t>;  // (label, truth)

  void build(const std::vector<int32_t>& predicted, const std::vector<int32_t>& truth, int height, int width,
             double radius);
  // u(p) of a paired p, from its side of the pair
  int64_t partner_potential(const TruthPixel& t) const { return t.mate_cost * scale_ - t.v; }
  void begin_search();
  void reach(int32_t t, int64_t label, int32_t from);
  Entry pop();
  void place(size_t slot, const Entry& entry);
  void rise(size_t slot, const Entry& entry);
  void pair(int32_t p, int32_t t);
  void separate(int32_t p);
  void augment(int32_t t, int32_t start);

  Graph of_predicted_;  // nearest first
  Graph of_truth_;
  int64_t scale_;
  std::vector<int64_t> single_cost_;  // K(p)
  std::vector<int32_t> mate_;         // of predicted pixels
  std::vector<uint8_t> present_;
  std::vector<TruthPixel> truth_;
  Bits matched_;
  int64_t pairs_ = 0, cost_ = 0;
  uint32_t search_ = 0;
  std::vector<Entry> heap_, done_;
};

}  // namespace pixeldiff
