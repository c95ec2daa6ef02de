// See workspace.hpp.
#include "workspace.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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
  size_t used = 0;

  float* take(size_t floats) {
    float* p = base ? base + used : nullptr;
    used += (floats + kLine - 1) / kLine * kLine;
    return p;
  }
  void place(Map& map) {
    float* p = take(map.floats());
    map.data = p ? p + kMargin : nullptr;
    if (p) map.clear_margins();
  }
};

void Workspace::Free::operator()(float* p) const { std::free(p); }

void Workspace::lay_out(const Layers& layers, Arena& arena) {
  size_t zeros = 0;
  int band = 0;
  for (int s = 0; s < kStages; ++s) {
    StageSpace& stage = stages[s];
    const int h = height >> s, w = width >> s, channels = layers.width(s), lag = layers.reach(s, 0) + kLayers + 2;
    const int rows = (strip >> s) + 2 * lag;  // new ones of a strip; the last one also brings what the others waited for
    stage.bands = std::max(1, (h + kBand / 2) / kBand);
    stage.band = (h + stage.bands - 1) / stage.bands;
    band = std::max(band, stage.band);
    const int before = s ? layers.width(s - 1) : 3;
    stage.input = s ? Map(before, h, w, rows + 2 * lag) : Map();
    const bool cdcm = layers.config.cdcm;
    stage.squeezed = cdcm ? Map(layers.config.side_channels, h, w, rows + stage.band + 2 * kDilations[3] + 2) : Map();
    stage.traits = Map(layers.sides[s].planes(), h, w, rows + (cdcm ? 2 * stage.band : 0) + 4);
    for (Map* map : {&stage.input, &stage.squeezed, &stage.traits}) {
      if (map->channels) arena.place(*map);
      zeros = std::max(zeros, map->plane + 4 * kMargin);
    }
    stage.lanes.resize(threads);
    for (Lane& lane : stage.lanes) {
      if (!s) {
        lane.picture = Map(3, h, w, 8);
        arena.place(lane.picture);
      }
      for (int k = 0; k < kLayers; ++k) {
        lane.layer[k] = Map(channels, h, w, k == kLayers - 1 ? 2 : 6);
        arena.place(lane.layer[k]);
        zeros = std::max(zeros, lane.layer[k].plane + 4 * kMargin);
      }
      lane.scratch = arena.take(scratch_floats(channels));
    }
  }
  zeros += kSegment;
  float* row = arena.take(zeros);
  if (row) std::fill_n(row, zeros, 0.0f);
  this->zeros = row ? row + kMargin : nullptr;
  slots.resize(threads);
  for (Slot& slot : slots) {
    const DilationSpace space = dilation_space(layers.config.side_channels, band);
    slot.transformed = layers.config.cdcm ? arena.take(space.transformed) : nullptr;
    slot.sums = layers.config.cdcm ? arena.take(space.sums) : nullptr;
    slot.line = arena.take(static_cast<size_t>(kStages - 1) * (round_up(width, kMargin) / 2 + 4 * kMargin));
  }
}

void Workspace::fit(const Layers& layers, int new_height, int new_width, int new_threads, size_t new_memory) {
  if (height == new_height && width == new_width && threads == new_threads && memory == new_memory) return;
  height = new_height, width = new_width, threads = new_threads, memory = new_memory;
  Arena size;
  // The highest strip that fits: the whole picture at best, a step at least.
  for (strip = round_up(height, kStripStep);; strip = round_up(strip / 2, kStripStep)) {
    size = Arena();
    lay_out(layers, size);
    if (size.used * sizeof(float) <= memory || strip == kStripStep) break;
  }
  if (size.used > capacity_) {
    memory_.reset();
    const size_t bytes = (size.used * sizeof(float) + 63) / 64 * 64;
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    capacity_ = memory_ ? size.used : 0;
    if (!memory_) {
      height = 0;
      throw std::bad_alloc();
    }
  }
  Arena arena;
  arena.base = memory_.get();
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

void Workspace::release() {
  memory_.reset();
  capacity_ = 0;
  height = 0;
  for (StageSpace& stage : stages) stage = StageSpace();
}

Place place(int index, int length, int coarse) {
  if (length == coarse) return {index, 0.0f};
  const float scale = static_cast<float>(coarse) / static_cast<float>(length);
  const float source = std::max(0.0f, scale * (static_cast<float>(index) + 0.5f) - 0.5f);
  const int below = std::min(static_cast<int>(source), coarse - 1);
  return {below, std::min(1.0f, source - static_cast<float>(below))};
}

}  // namespace pixeldiff::pidinet
