// See workspace.hpp.
#include "workspace.hpp"

#include <algorithm>
#include <cmath>
#include <new>

namespace pixeldiff::pidinet {
namespace {

constexpr int kBand = 80;  // rows of CDCM that share their transforms: of all heights around, the one with least waste
constexpr int kStripStep = 32;
constexpr size_t kLine = 16;  // floats of a cache line

}  // namespace

// Counts first, hands out then.
struct Workspace::Arena {
  float* base = nullptr;
  size_t used = 0, most = 0;

  float* take(size_t floats) {
    float* p = base ? base + used : nullptr;
    used += (floats + kLine - 1) / kLine * kLine;
    most = std::max(most, used);
    return p;
  }
  void place(Map& map) {
    float* p = map.channels ? take(map.floats()) : nullptr;
    map.data = p ? p + kMargin : nullptr;
  }
};

void Workspace::shape(const Layers& layers) {
  const bool cdcm = layers.config.cdcm;
  for (int s = 0; s < kStages; ++s) {
    StageSpace& stage = stages[s];
    const int h = height >> s, w = width >> s, lag = layers.reach(s, 0) + kLayers + 2;
    const int rows =
        (strip >> s) + 2 * lag;  // new ones of a strip; the last one also brings what the others waited for
    stage.bands = std::max(1, (h + kBand / 2) / kBand);
    stage.band = (h + stage.bands - 1) / stage.bands;
    stage.input = s ? Map(layers.width(s - 1), h, w, rows + 2 * lag) : Map();
    stage.squeezed = cdcm ? Map(layers.config.side_channels, h, w, rows + stage.band + 2 * kDilations[3] + 2) : Map();
    stage.traits = Map(layers.sides[s].planes(), h, w, rows + (cdcm ? 2 * stage.band : 0) + 4);
    stage.traits.stride = stage.traits.plane * stage.traits.channels;  // nothing writes whole groups of them
    stage.lanes.resize(threads);
    for (Lane& lane : stage.lanes) {
      lane.picture = s ? Map() : Map(3, h, w, 8);
      for (int k = 0; k < kLayers; ++k) lane.layer[k] = Map(layers.width(s), h, w, k == kLayers - 1 ? 2 : 6);
    }
  }
  slots.resize(threads);
}

// A picture that goes through as one strip is done stage after stage, and with CDCM the sides come last: what is no
// longer read makes room for the next. Other strips need everything at once.
void Workspace::lay_out(const Layers& layers, Arena& arena) {
  const bool cdcm = layers.config.cdcm, whole = strip >= height;
  size_t zeros = 0;
  for (StageSpace& stage : stages) {
    arena.place(stage.squeezed);
    if (!cdcm) arena.place(stage.traits);
    zeros =
        std::max({zeros, stage.input.plane, stage.squeezed.plane, stage.traits.plane, stage.lanes[0].layer[0].plane});
  }
  zeros += 4 * kMargin + kSegment;
  float* row = arena.take(zeros);
  if (row) std::fill_n(row, zeros, 0.0f);
  this->zeros = row ? row + kMargin : nullptr;
  for (Slot& slot : slots) {
    slot.line = arena.take(static_cast<size_t>(kStages - 1) * (round_up(width, kMargin) / 2 + 4 * kMargin));
  }
  const size_t shared = arena.used;
  place_stages(layers, arena, whole);
  if (!cdcm) return;
  if (whole) arena.used = shared;
  const int band =
      std::max_element(stages, stages + kStages, [](const auto& a, const auto& b) { return a.band < b.band; })->band;
  const DilationSpace space = dilation_space(layers.config.side_channels, band);
  for (StageSpace& stage : stages) arena.place(stage.traits);
  for (Slot& slot : slots) {
    slot.transformed = arena.take(space.transformed);
    slot.sums = arena.take(space.sums);
  }
}

void Workspace::place_stages(const Layers& layers, Arena& arena, bool whole) {
  const size_t first = arena.used;
  arena.place(stages[1].input);
  const size_t second = arena.used;
  if (whole) arena.used = first;  // stage 4's is written when stage 2's was read
  arena.place(stages[3].input);
  arena.used = std::max(arena.used, second);
  arena.place(stages[2].input);
  const size_t shared = arena.used;
  for (int s = 0; s < kStages; ++s) {
    if (whole) arena.used = shared;
    for (Lane& lane : stages[s].lanes) {
      arena.place(lane.picture);
      for (Map& layer : lane.layer) arena.place(layer);
      lane.scratch = arena.take(scratch_floats(layers.width(s)));
    }
  }
}

void Workspace::fit(const Layers& layers, int new_height, int new_width, int new_threads, size_t new_memory) {
  if (height == new_height && width == new_width && threads == new_threads && memory == new_memory) return;
  height = new_height, width = new_width, threads = new_threads, memory = new_memory;
  Arena size;
  // The highest strip that fits: the whole picture at best, a step at least.
  for (strip = round_up(height, kStripStep);; strip = round_up(strip / 2, kStripStep)) {
    size = Arena();
    shape(layers);
    lay_out(layers, size);
    if (size.most * sizeof(float) <= memory || strip == kStripStep) break;
  }
  Arena arena;
  try {
    arena.base = memory_.room(size.most);
  } catch (const std::bad_alloc&) {
    height = 0;
    throw;
  }
  lay_out(layers, arena);
  for (int s = 1; s < kStages; ++s) {
    StageSpace& stage = stages[s];
    stage.left.assign(round_up(width, kMargin), 0);
    stage.right.assign(round_up(width, kMargin), 0.0f);
    for (int x = 0; x < width; ++x) {
      const Place p = place(x, width, width >> s);
      stage.left[x] = p.below;
      stage.right[x] = p.above;
    }
  }
}

Place place(int index, int length, int coarse) {
  if (length == coarse) return {index, 0.0f};
  // torch's kernel multiplies and subtracts with one rounding; in double the product of two floats is exact.
  const float scale = static_cast<float>(coarse) / static_cast<float>(length);
  const double product = static_cast<double>(scale) * static_cast<double>(static_cast<float>(index) + 0.5f);
  const float source = std::max(0.0f, static_cast<float>(product - 0.5));
  const int below = std::min(static_cast<int>(source), coarse - 1);
  return {below, std::min(1.0f, source - static_cast<float>(below))};
}

}  // namespace pixeldiff::pidinet
