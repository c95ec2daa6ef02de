// See pidinet.hpp. A run: strips of rows through the four stages, their sides, and the fusion at the end.
#include "pidinet.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "layers.hpp"
#include "threads.hpp"
#include "workspace.hpp"

namespace pixeldiff::pidinet {
namespace {

constexpr size_t kKept = size_t{64} << 20;  // bytes; larger workspaces go back after a run
constexpr int kLeastChunk = 8;              // rows: with fewer, most of a thread's work would be rows of its neighbours

// A stage's pipeline on one thread.
class Pipeline {
 public:
  Pipeline(const Network& network, Workspace& space, const Picture& picture, int stage, Lane& lane)
      : layers_(network.layers()),
        kernels_(network.kernels()),
        space_(space),
        picture_(picture),
        stage_(stage),
        lane_(lane) {}

  // Rows [first, last) of the stage's last layer, into what comes after it.
  void run(int first, int last) {
    if (lane_.next[kLayers - 1] < 0) clear_margins();
    if (lane_.next[kLayers - 1] != first) start(first);
    for (int y = first; y < last; y += 2) {
      need(kLayers - 1, y);
      pool(y);
    }
  }

 private:
  void clear_margins() {
    if (lane_.picture.data) lane_.picture.clear_margins();
    for (const Map& map : lane_.layer) map.clear_margins();
  }

  void start(int first) {
    for (int k = 0; k < kLayers; ++k) {
      const int above = k + 1 < kLayers ? layers_.reach(stage_, k + 1) : 0;
      lane_.next[k] = std::max(0, first - above) & ~1;
    }
    lane_.next_picture = std::max(0, lane_.next[0] - layers_.stem.radius());
  }

  const Map& output(int layer) const { return lane_.layer[layer]; }
  int height() const { return output(0).height; }

  Row row(const Map& map, int y) const {
    if (y < 0 || y >= map.height) return {space_.zeros, 0};
    return {map.row(y), map.plane};
  }

  void need(int layer, int y) {
    y = std::min(y, height() - 1);
    while (lane_.next[layer] <= y) {
      const int at = lane_.next[layer];
      const Block* block = layers_.block(stage_, layer);
      if (layer) need(layer - 1, at + 1 + block->radius());
      if (block) {
        make(*block, layer, at);
      } else {
        make_stem(at);
      }
      lane_.next[layer] += 2;
    }
  }

  void make_stem(int y) {
    const Stem& stem = layers_.stem;
    const Map& map = output(0);
    for (; lane_.next_picture < std::min(height(), y + 2 + stem.radius()); ++lane_.next_picture) {
      read_picture(lane_.next_picture);
    }
    for (int at = y; at < std::min(height(), y + 2); ++at) {
      Row rows[5];
      for (int i = 0; i < stem.support; ++i) rows[i] = row(lane_.picture, at + i - stem.radius());
      kernels_.stem(stem, rows, map.width, map.row(at), map.plane);
    }
  }

  void read_picture(int y) {
    const int width = picture_.width;
    for (int c = 0; c < 3; ++c) {
      float* out = lane_.picture.row(y) + c * lane_.picture.plane;
      if (picture_.planes) {
        std::copy_n(picture_.planes + (static_cast<size_t>(c) * picture_.height + y) * width, width, out);
        continue;
      }
      const uint8_t* in = picture_.bytes + static_cast<size_t>(y) * width * 3 + c;
      const float* table = picture_.table + c * 256;
      for (int x = 0; x < width; ++x) out[x] = table[in[3 * x]];
    }
  }

  void make(const Block& block, int layer, int y) {
    const StageSpace& stage = space_.stages[stage_];
    const Map &in = layer ? output(layer - 1) : stage.input, &out = output(layer);
    const Side& side = layers_.sides[stage_];
    const int rows = std::min(2, height() - y), radius = block.radius();
    BlockCall call;
    for (int i = 0; i < 2 + 2 * radius; ++i) call.input[i] = row(in, y + i - radius);
    call.rows = rows;
    call.width = out.width;
    call.plane = out.plane;
    call.scratch = lane_.scratch;
    const Map& further = side.cdcm ? stage.squeezed : stage.traits;
    for (int i = 0; i < rows; ++i) call.output[i] = out.row(y + i);
    if (layer == kLayers - 1) {
      call.squeezed.squeeze = side.cdcm ? &side.squeeze : nullptr;
      call.squeezed.side = &side;
      call.squeezed.plane = further.plane;
      for (int i = 0; i < rows; ++i) call.squeezed.map[i] = further.row(y + i);
    }
    kernels_.block(block, call);
  }

  void pool(int y) {
    if (stage_ + 1 == kStages) return;
    const Map &in = output(kLayers - 1), &out = space_.stages[stage_ + 1].input;
    if (y / 2 >= out.height) return;
    kernels_.pool(in.row(y), in.row(y + 1), in.plane, in.channels, out.width, out.row(y / 2), out.plane);
  }

  const Layers& layers_;
  const Kernels& kernels_;
  Workspace& space_;
  const Picture& picture_;
  const int stage_;
  Lane& lane_;
};

class Run {
 public:
  Run(const Network& network, Workspace& space, const Picture& picture, const Maps& maps, int threads,
      const std::function<void()>& between)
      : network_(network),
        layers_(network.layers()),
        space_(space),
        picture_(picture),
        maps_(maps),
        threads_(threads),
        between_(between) {
    for (int s = 0; s < kStages; ++s) {
      for (Lane& lane : space.stages[s].lanes) lane.next[kLayers - 1] = -1;
      logits_[s] = maps.sides[s];
      if (logits_[s]) continue;
      std::vector<float>& own = space.stages[s].logits;
      if (s) own.resize(static_cast<size_t>(height(s)) * width(s));
      logits_[s] = s ? own.data() : maps.edges;  // the finest ones become edges where they lie
    }
  }

  void work() {
    for (int strip = 0; attended_[0] < height(0); ++strip) {
      for (int s = 0; s < kStages; ++s) {
        if (!strip) clear_margins(s);
        advance(s, strip);
        pause();
      }
      if (layers_.config.cdcm) dilate(strip);
      attend();
    }
    rows_in_parallel(height(0), [&](int y, int slot) { fuse(y, slot); });
  }

 private:
  int height(int s) const { return picture_.height >> s; }
  int width(int s) const { return picture_.width >> s; }
  void pause() const {
    if (between_) between_();
  }

  // Calls f(task, slot of the thread) for every task.
  template <class F>
  void each(int tasks, const F& f) {
    std::atomic<int> next{0};
    const int slots = std::min(threads_, tasks);
    parallel(slots, slots, [&](int slot) {
      for (int i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) f(i, slot);
    });
    pause();
  }

  template <class F>
  void rows_in_parallel(int rows, const F& f) {
    constexpr int kRows = 16;
    each((rows + kRows - 1) / kRows, [&](int i, int slot) {
      for (int y = i * kRows; y < std::min(rows, (i + 1) * kRows); ++y) f(y, slot);
    });
  }

  // Of the maps that the stage writes; those of the lanes are their threads'.
  void clear_margins(int s) const {
    const StageSpace& stage = space_.stages[s];
    (layers_.config.cdcm ? stage.squeezed : stage.traits).clear_margins();
    if (s + 1 < kStages) space_.stages[s + 1].input.clear_margins();
  }

  // The stage's rows whose input is there. Every thread takes a part; the first goes on where the last strip ended.
  void advance(int s, int strip) {
    int last = std::min(height(0), (strip + 1) * space_.strip);
    if (s && made_[s - 1] < height(s - 1)) {
      last = (made_[s - 1] / 2 - layers_.reach(s, 0) - kLayers) & ~1;  // every layer makes two rows at a time
    } else if (s) {
      last = height(s);
    }
    const int first = made_[s], rows = last - first;
    if (rows <= 0) return;
    check_rings(s, last);
    const int parts = std::max(1, std::min(threads_, rows / kLeastChunk));
    const int step = round_up((rows + parts - 1) / parts, 2);
    std::vector<Lane>& lanes = space_.stages[s].lanes;
    const int lane = lane_[s];
    parallel(parts, parts, [&](int part) {
      const int from = first + part * step, to = std::min(last, from + step);
      Lane& own = lanes[(lane + part) % lanes.size()];
      if (from < to) Pipeline(network_, space_, picture_, s, own).run(from, to);
    });
    lane_[s] = static_cast<int>((lane + (rows - 1) / step) % lanes.size());
    made_[s] = last;
  }

  // Rows that are still to be read must not be written over.
  void check_rings(int s, int last) const {
    const StageSpace& stage = space_.stages[s];
    bool fits = true;
    if (layers_.config.cdcm) {
      fits = last - std::max(0, traced_[s] - kDilations[kViews - 1]) <= stage.squeezed.rows;
    } else {
      fits = last - std::max(0, attended_[s] - 1) <= stage.traits.rows;
    }
    if (s + 1 < kStages) {
      const Map& next = space_.stages[s + 1].input;
      fits &= last / 2 - std::max(0, made_[s + 1] - layers_.reach(s + 1, 0) - kLayers) <= next.rows;
    }
    if (!fits) throw std::logic_error("a strip is higher than its workspace");
  }

  // CDCM of the bands whose rows are there, from the widest stage to the narrowest.
  void dilate(int strip) {
    struct Task {
      int stage, band, x;
    };
    std::vector<Task> tasks;
    for (int s = 0; s < kStages; ++s) {
      const StageSpace& stage = space_.stages[s];
      if (!strip) stage.traits.clear_margins();
      for (; traced_[s] < height(s); traced_[s] = std::min(height(s), traced_[s] + stage.band)) {
        const int end = std::min(height(s), traced_[s] + stage.band);
        if (made_[s] < std::min(height(s), end + kDilations[kViews - 1])) break;
        for (int x = 0; x < width(s); x += kSegment) tasks.push_back({s, traced_[s], x});
      }
    }
    each(static_cast<int>(tasks.size()), [&](int i, int slot) {
      const auto [s, y, x] = tasks[i];
      const StageSpace& stage = space_.stages[s];
      network_.kernels().dilate(
          layers_.sides[s],
          {&stage.squeezed, space_.zeros, y, std::min(height(s), y + stage.band), x, std::min(width(s), x + kSegment),
           stage.traits, space_.slots[slot].transformed, space_.slots[slot].sums});
    });
  }

  // Logits of the rows whose traits, and those of the row below, are there.
  void attend() {
    for (int s = 0; s < kStages; ++s) {
      const int there = layers_.config.cdcm ? traced_[s] : made_[s], first = attended_[s];
      const int last = there == height(s) ? there : there - 1;
      if (last <= first) continue;
      const Map& traits = space_.stages[s].traits;
      rows_in_parallel(last - first, [&](int i, int) {
        Row rows[3];
        for (int k = 0; k < 3; ++k) {
          const int y = first + i + k - 1;
          const bool inside = y >= 0 && y < height(s);
          rows[k] = {inside ? traits.row(y) : space_.zeros, inside ? traits.plane : 0};
        }
        network_.kernels().attend(layers_.sides[s], rows, width(s), logits_[s] + row_at(s, first + i));
      });
      attended_[s] = last;
    }
  }

  size_t row_at(int s, int y) const { return static_cast<size_t>(y) * width(s); }

  void fuse(int y, int slot) {
    FuseCall call;
    call.width = width(0);
    call.finest = logits_[0] + row_at(0, y);
    for (int s = 1; s < kStages; ++s) {
      const Place p = place(y, height(0), height(s));
      const StageSpace& stage = space_.stages[s];
      call.coarse[s - 1] = {logits_[s] + row_at(s, p.below),
                            logits_[s] + row_at(s, std::min(p.below + 1, height(s) - 1)),
                            p.above,
                            width(s),
                            stage.left.data(),
                            stage.right.data()};
    }
    call.line = space_.slots[slot].line;
    call.edges = maps_.edges + row_at(0, y);
    network_.kernels().fuse(layers_, call);
  }

  const Network& network_;
  const Layers& layers_;
  Workspace& space_;
  const Picture& picture_;
  const Maps& maps_;
  const int threads_;
  const std::function<void()>& between_;
  float* logits_[kStages];
  int made_[kStages] = {}, traced_[kStages] = {}, attended_[kStages] = {};  // rows: features, traits, logits
  int lane_[kStages] = {};
};

}  // namespace

Network::Network(const Config& config, const float* weights, size_t count, const Kernels& kernels)
    : layers_(make_layers(config, weights, count)), kernels_(kernels) {}

Network::~Network() = default;

// Nobody waits for the lock: in a forked child it may be held by a thread that is not there.
std::unique_ptr<Workspace> Network::take() const {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || spaces_.empty()) return std::make_unique<Workspace>();
  auto space = std::move(spaces_.back());
  spaces_.pop_back();
  return space;
}

void Network::give_back(std::unique_ptr<Workspace> space) const {
  if (space->bytes() > kKept) return;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) spaces_.push_back(std::move(space));
}

void detect(const Network& network, const Picture& picture, const Maps& maps, int threads, size_t memory,
            const std::function<void()>& between) {
  if (picture.height < kSmallest || picture.width < kSmallest || picture.height > kLargest ||
      picture.width > kLargest) {
    throw std::invalid_argument("sides of pictures are 8 to 65535 pixels");
  }
  threads = std::max(1, std::min(threads, picture.height / kLeastChunk));
  std::unique_ptr<Workspace> space = network.take();
  space->fit(network.layers(), picture.height, picture.width, threads, memory);
  Run(network, *space, picture, maps, threads, between).work();
  network.give_back(std::move(space));
}

const char* name_of(const Kernels& kernels) { return kernels.name; }

}  // namespace pixeldiff::pidinet
