// The memory of one run: rows of maps that are alive at the same time, laid out anew for every size of picture. Maps
// may take each other's place, so whoever begins to write one clears its margins.
#pragma once

#include <cstddef>
#include <vector>

#include "layers.hpp"
#include "memory.hpp"

namespace pixeldiff::pidinet {

// What one thread has of a stage's pipeline: the last rows of each layer, and the next row each will make.
struct Lane {
  Map picture, layer[kLayers];
  int next_picture = 0, next[kLayers] = {};
  float* scratch = nullptr;
};

struct StageSpace {
  Map input;     // pooled, of all stages but the first
  Map squeezed;  // with CDCM
  Map traits;
  std::vector<float> logits;  // where nobody asked for them
  std::vector<int> left;      // of each column of the picture, on this stage's grid, ...
  std::vector<float> right;   // ... and the weight of its right neighbour
  std::vector<Lane> lanes;
  int bands = 0, band = 0;  // of rows for CDCM
};

struct Workspace {
  int height = 0, width = 0, threads = 0;
  size_t memory = 0;
  int strip = 0;  // rows of the picture per step
  StageSpace stages[kStages];
  float* zeros = nullptr;  // a row outside every map
  struct Slot {
    float *transformed, *sums, *line;
  };
  std::vector<Slot> slots;  // of each thread

  void fit(const Layers& layers, int height, int width, int threads, size_t memory);
  size_t bytes() const { return memory_.size() * sizeof(float); }

 private:
  struct Arena;
  void shape(const Layers& layers);
  void lay_out(const Layers& layers, Arena& arena);
  void place_stages(const Layers& layers, Arena& arena, bool whole);

  Memory memory_;
};

// Where torch's bilinear interpolation reads: the lower neighbour and the weight of the upper one, in float32 as there.
struct Place {
  int below;
  float above;
};
Place place(int index, int length, int coarse);

}  // namespace pixeldiff::pidinet
