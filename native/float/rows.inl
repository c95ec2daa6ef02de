// The kernels, written once over a small vector type and compiled for each instruction set. The including file defines
//
//   struct Isa {
//     V, I                          vectors of floats and of 32-bit whole numbers
//     lanes, tile, blocks           lanes; vectors and groups of outputs that are summed in registers together
//     repeat(v)                     v in every lane
//     fma(a, b, c)                  a * b + c, fused where the set has it
//     max(a, b)
//     pin(v)                        v, kept in a register: a value used twice is not loaded twice
//     even(a, b), odd(a, b)         every second lane of both
//     gather(p, i)                  p[i] of each lane
//   };
//
// Everything here sits in an anonymous namespace, because each instruction set has its own copy.

using V = Isa::V;
using I = Isa::I;
constexpr int kLanes = Isa::lanes;
static_assert(Isa::lanes <= kMargin && Isa::lanes * Isa::tile <= kWidestTile);
typedef float Anywhere __attribute__((vector_size(sizeof(V)), aligned(4), may_alias));
typedef int32_t IndexAnywhere __attribute__((vector_size(sizeof(V)), aligned(4), may_alias));
#define INLINED __attribute__((always_inline))
#define INLINE inline INLINED

INLINE V load(const float* p) { return *reinterpret_cast<const Anywhere*>(p); }
INLINE void store(float* p, V v) { *reinterpret_cast<Anywhere*>(p) = v; }
INLINE V repeat(float v) { return Isa::repeat(v); }
INLINE V relu(V v) { return Isa::max(v, V{}); }
INLINE V pinned(const float* p) { return Isa::pin(load(p)); }

V load_part(const float* p, int count) {
  if (count >= kLanes) return load(p);
  float lanes[kLanes] = {};
  std::memcpy(lanes, p, sizeof(float) * count);
  return load(lanes);
}

void store_part(float* p, V v, int count) {
  if (count >= kLanes) {
    store(p, v);
  } else {
    std::memcpy(p, &v, sizeof(float) * count);
  }
}

// Zeros right of a row, after whole vectors were written.
void clear_tail(float* row, size_t plane, int channels, int width) {
  const int tail = round_up(width, kLanes) - width;
  if (!tail) return;
  for (int c = 0; c < channels; ++c) std::memset(row + c * plane + width, 0, sizeof(float) * tail);
}

// --- tiles -----------------------------------------------------------------------------------------------------------

// A row as tiles of at most Isa::tile vectors, about equally wide: calls f(count of vectors as a constant, x).
template <class F>
INLINE void with_vectors(int count, F f) {
  if constexpr (Isa::tile >= 6) {
    if (count == 6) return f(std::integral_constant<int, 6>());
    if (count == 5) return f(std::integral_constant<int, 5>());
  }
  if constexpr (Isa::tile >= 4) {
    if (count == 4) return f(std::integral_constant<int, 4>());
  }
  if (count == 3) return f(std::integral_constant<int, 3>());
  if (count == 2) return f(std::integral_constant<int, 2>());
  return f(std::integral_constant<int, 1>());
}

struct Tiles {
  int vectors, count;

  Tiles(int width, int most) : vectors((width + kLanes - 1) / kLanes), count((vectors + most - 1) / most) {}
  int start(int tile) const { return static_cast<int>(static_cast<int64_t>(vectors) * tile / count); }
  int size(int tile) const { return start(tile + 1) - start(tile); }
  int x(int tile) const { return start(tile) * kLanes; }
};

// sums[output][vector] += weights * inputs, for kBlocks groups of outputs.
template <int kBlocks, int kVectors, bool kRelu>
INLINE void multiply(V (&sums)[kBlocks * kGroup][kVectors], const float* in, size_t stride, int inputs,
                     const float* weights, size_t block) {
#pragma GCC unroll 2
  for (int i = 0; i < inputs; ++i, in += stride, weights += kGroup) {
    V x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = kRelu ? relu(load(in + v * kLanes)) : load(in + v * kLanes);
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      const V w = repeat(weights[k / kGroup * block + k % kGroup]);
      for (int v = 0; v < kVectors; ++v) sums[k][v] = Isa::fma(w, x[v], sums[k][v]);
    }
  }
}

// Calls f(constant number of groups, first group) until all groups of outputs are done.
template <class F>
INLINE void for_groups(int groups, F f) {
  int g = 0;
  for (; g + Isa::blocks <= groups; g += Isa::blocks) f(std::integral_constant<int, Isa::blocks>(), g);
  if constexpr (Isa::blocks > 1) {
    for (; g < groups; ++g) f(std::integral_constant<int, 1>(), g);
  }
}

// --- the stem --------------------------------------------------------------------------------------------------------

template <int kVectors>
__attribute__((noinline)) void stem_tile(const Stem& stem, const Row* rows, int x, float* out, size_t plane) {
  const int taps = 3 * stem.support * stem.support;
  for_groups(groups_of(stem.outputs), [&](auto blocks, int g) INLINED {
    constexpr int kBlocks = decltype(blocks)::value;
    V sums[kBlocks * kGroup][kVectors] = {};
    const float* weights = stem.weights.data() + static_cast<size_t>(g) * taps * kGroup;
    for (int y = 0; y < stem.support; ++y) {
      for (int c = 0; c < 3; ++c, weights += stem.support * kGroup) {
        multiply<kBlocks, kVectors, false>(sums, rows[y].data + c * rows[y].plane + x - stem.radius(), 1, stem.support,
                                           weights, static_cast<size_t>(taps) * kGroup);
      }
    }
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      for (int v = 0; v < kVectors; ++v) store(out + (g * kGroup + k) * plane + x + v * kLanes, sums[k][v]);
    }
  });
}

void stem_here(const Stem& stem, const Row* rows, int width, float* out, size_t plane) {
  const Tiles tiles(width, Isa::tile);
  for (int t = 0; t < tiles.count; ++t) {
    with_vectors(tiles.size(t), [&](auto n) { stem_tile<decltype(n)::value>(stem, rows, tiles.x(t), out, plane); });
  }
  clear_tail(out, plane, stem.outputs, width);
}

// --- blocks: depthwise -----------------------------------------------------------------------------------------------

// Two rows of one vector of one channel, with ReLU. The order of the sums is the same in both.
template <bool kCentre>
INLINE void depthwise3(const float* const* r, ptrdiff_t x, const V* w, float* first, float* second) {
  V t = pinned(r[0] + x - 1), a = t * w[0], b, c, e;
  t = pinned(r[0] + x), a = Isa::fma(t, w[1], a);
  t = pinned(r[0] + x + 1), a = Isa::fma(t, w[2], a);
  t = pinned(r[1] + x - 1), c = t * w[3], b = t * w[0];
  t = pinned(r[1] + x), b = Isa::fma(t, w[1], b);
  if (kCentre) c = Isa::fma(t, w[4], c);
  t = pinned(r[1] + x + 1), c = Isa::fma(t, w[5], c), b = Isa::fma(t, w[2], b);
  t = pinned(r[2] + x - 1), a = Isa::fma(t, w[6], a), e = t * w[3];
  t = pinned(r[2] + x), a = Isa::fma(t, w[7], a);
  if (kCentre) e = Isa::fma(t, w[4], e);
  t = pinned(r[2] + x + 1), a = Isa::fma(t, w[8], a), e = Isa::fma(t, w[5], e);
  store(first, relu(a + c));
  t = pinned(r[3] + x - 1), b = Isa::fma(t, w[6], b);
  t = pinned(r[3] + x), b = Isa::fma(t, w[7], b);
  t = pinned(r[3] + x + 1), b = Isa::fma(t, w[8], b);
  store(second, relu(b + e));
}

// Radial: w * (outer - inner), eight multiplications instead of those of a 5x5 kernel.
INLINE void depthwise5(const float* const* r, ptrdiff_t x, const V* w, float* first, float* second) {
  V t = pinned(r[1] + x), u;  // inner above of the first row, outer above of the second
  V a = (load(r[0] + x) - t) * w[1], b = (t - load(r[2] + x)) * w[1];
  V c = (load(r[0] + x - 2) - load(r[1] + x - 1)) * w[0];
  a = Isa::fma(load(r[0] + x + 2) - load(r[1] + x + 1), w[2], a);
  t = pinned(r[2] + x - 1), u = pinned(r[2] + x + 1);
  c = Isa::fma(load(r[2] + x - 2) - t, w[3], c), a = Isa::fma(load(r[2] + x + 2) - u, w[4], a);
  V e = (load(r[1] + x - 2) - t) * w[0];
  b = Isa::fma(load(r[1] + x + 2) - u, w[2], b);
  t = pinned(r[3] + x - 1), u = pinned(r[3] + x + 1);
  c = Isa::fma(load(r[4] + x - 2) - t, w[5], c), a = Isa::fma(load(r[4] + x + 2) - u, w[7], a);
  e = Isa::fma(load(r[3] + x - 2) - t, w[3], e), b = Isa::fma(load(r[3] + x + 2) - u, w[4], b);
  t = pinned(r[4] + x);
  c = Isa::fma(t - load(r[3] + x), w[6], c);
  store(first, relu(a + c));
  e = Isa::fma(load(r[5] + x - 2) - load(r[4] + x - 1), w[5], e), e = Isa::fma(load(r[5] + x) - t, w[6], e);
  b = Isa::fma(load(r[5] + x + 2) - load(r[4] + x + 1), w[7], b);
  store(second, relu(b + e));
}

// Tiles [t0, t1) of two rows of all channels, each tile as [channel][x].
template <char kKind>
__attribute__((noinline)) void depthwise_tiles(const Block& block, const Row* input, const Tiles& tiles, int t0, int t1,
                                               float* first, float* second) {
  constexpr int kRows = kKind == 'r' ? 6 : 4;
  const ptrdiff_t start = tiles.x(t0);
  for (int c = 0; c < block.inputs; ++c) {
    const float* r[kRows];
    for (int i = 0; i < kRows; ++i) r[i] = input[i].data + c * input[i].plane;
    V w[9];
    for (int i = 0; i < 9; ++i) w[i] = repeat(block.depthwise[static_cast<size_t>(c) * 9 + i]);
    for (int t = t0; t < t1; ++t) {
      const ptrdiff_t x = tiles.x(t), wide = tiles.size(t) * kLanes;
      float *a = first + (x - start) * block.inputs + c * wide, *b = second + (a - first);
      for (ptrdiff_t v = 0; v < wide; v += kLanes) {
        if constexpr (kKind == 'r') {
          depthwise5(r, x + v, w, a + v, b + v);
        } else {
          depthwise3<kKind != 'a'>(r, x + v, w, a + v, b + v);
        }
      }
    }
  }
}

// --- blocks: pointwise -----------------------------------------------------------------------------------------------

template <int kVectors, bool kRelu>
INLINE void project_tile(const Pointwise& layer, const float* in, size_t stride, float* out, size_t plane) {
  const size_t block = static_cast<size_t>(layer.inputs) * kGroup;
  for_groups(groups_of(layer.outputs), [&](auto blocks, int g) INLINED {
    constexpr int kBlocks = decltype(blocks)::value;
    V sums[kBlocks * kGroup][kVectors];
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      for (int v = 0; v < kVectors; ++v) sums[k][v] = repeat(layer.bias[g * kGroup + k]);
    }
    multiply<kBlocks, kVectors, kRelu>(sums, in, stride, layer.inputs, layer.weights.data() + g * block, block);
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      for (int v = 0; v < kVectors; ++v) store(out + (g * kGroup + k) * plane + v * kLanes, sums[k][v]);
    }
  });
}

// `in` is a tile [channel][x], `source` the same place of the block's input.
template <int kVectors>
__attribute__((noinline)) void pointwise_tile(const Block& block, const float* in, Row source, float* out,
                                              size_t plane) {
  const bool projects = !block.shortcut.weights.empty();
  const size_t step = static_cast<size_t>(block.inputs) * kGroup;
  for_groups(groups_of(block.outputs), [&](auto blocks, int g) INLINED {
    constexpr int kBlocks = decltype(blocks)::value;
    V sums[kBlocks * kGroup][kVectors] = {};
    if (projects) {
      for (int k = 0; k < kBlocks * kGroup; ++k) {
        for (int v = 0; v < kVectors; ++v) sums[k][v] = repeat(block.shortcut.bias[g * kGroup + k]);
      }
      multiply<kBlocks, kVectors, false>(sums, source.data, source.plane, block.inputs,
                                         block.shortcut.weights.data() + g * step, step);
    }
    multiply<kBlocks, kVectors, false>(sums, in, kVectors * kLanes, block.inputs,
                                       block.pointwise.weights.data() + g * step, step);
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      const size_t at = (g * kGroup + k) * plane;
      for (int v = 0; v < kVectors; ++v) {
        V sum = sums[k][v];
        if (block.identity) sum += load(source.data + (g * kGroup + k) * source.plane + v * kLanes);
        store(out + at + v * kLanes, sum);
      }
    }
  });
}

template <int kVectors>
__attribute__((noinline)) void squeeze_tile(const Pointwise& layer, const float* in, size_t stride, float* out,
                                            size_t plane) {
  project_tile<kVectors, true>(layer, in, stride, out, plane);
}

template <bool kAttention>
__attribute__((noinline)) void traits_tile(const Side& side, const float* in, size_t stride, int vectors, float* out,
                                           size_t plane) {
  for (int v = 0; v < vectors; ++v, in += kLanes, out += kLanes) {
    V hidden[kHidden], reduced = {};
    for (int k = 0; k < kHidden; ++k) hidden[k] = repeat(side.hidden_bias[k]);
    const float* weights = side.traits.data();
    for (int c = 0; c < side.channels; ++c, weights += kAttention ? kTraits : 1) {
      const V x = load(in + c * stride), positive = relu(x);
      if (kAttention) {
        for (int k = 0; k < kHidden; ++k) hidden[k] = Isa::fma(repeat(weights[k]), positive, hidden[k]);
      }
      reduced = Isa::fma(repeat(weights[kAttention ? kHidden : 0]), x, reduced);
    }
    if (kAttention) {
      for (int k = 0; k < kHidden; ++k) store(out + k * plane, hidden[k]);
    }
    store(out + (kAttention ? kHidden * plane : 0), reduced);
  }
}

void traits_here(const Side& side, const float* in, size_t stride, int vectors, float* out, size_t plane) {
  if (side.csam) {
    traits_tile<true>(side, in, stride, vectors, out, plane);
  } else {
    traits_tile<false>(side, in, stride, vectors, out, plane);
  }
}

void finish_tile(const BlockCall& call, int row, int x, int vectors) {
  const Squeezed& further = call.squeezed;
  const float* in = call.output[row] + x;
  if (further.squeeze) {
    with_vectors(vectors, [&](auto n) {
      squeeze_tile<decltype(n)::value>(*further.squeeze, in, call.plane, further.map[row] + x, further.plane);
    });
  } else if (further.side) {
    traits_here(*further.side, in, call.plane, vectors, further.map[row] + x, further.plane);
  }
}

void block_here(const Block& block, const BlockCall& call) {
  const Tiles tiles(call.width, Isa::tile);
  const int bytes_per_tile = 2 * block.inputs * Isa::tile * kLanes * static_cast<int>(sizeof(float));
  const int step = std::max(1, kScratch / bytes_per_tile);
  float *first = call.scratch, *second = first + scratch_floats(block.inputs) / 2;
  for (int t0 = 0; t0 < tiles.count; t0 += step) {
    const int t1 = std::min(tiles.count, t0 + step);
    if (block.kind == 'r') {
      depthwise_tiles<'r'>(block, call.input, tiles, t0, t1, first, second);
    } else if (block.kind == 'a') {
      depthwise_tiles<'a'>(block, call.input, tiles, t0, t1, first, second);
    } else {
      depthwise_tiles<'v'>(block, call.input, tiles, t0, t1, first, second);
    }
    for (int row = 0; row < call.rows; ++row) {
      const Row source = call.input[block.radius() + row];
      for (int t = t0; t < t1; ++t) {
        const int x = tiles.x(t);
        const float* in = (row ? second : first) + static_cast<size_t>(x - tiles.x(t0)) * block.inputs;
        with_vectors(tiles.size(t), [&](auto n) {
          pointwise_tile<decltype(n)::value>(block, in, {source.data + x, source.plane}, call.output[row] + x,
                                             call.plane);
        });
        finish_tile(call, row, x, tiles.size(t));
      }
    }
  }
  for (int row = 0; row < call.rows; ++row) {
    clear_tail(call.output[row], call.plane, block.outputs, call.width);
    if (call.squeezed.squeeze) {
      clear_tail(call.squeezed.map[row], call.squeezed.plane, call.squeezed.squeeze->outputs, call.width);
    } else if (call.squeezed.side) {
      clear_tail(call.squeezed.map[row], call.squeezed.plane, call.squeezed.side->planes(), call.width);
    }
  }
}

// 2x2 maxima of two rows.
void pool_here(const float* first, const float* second, size_t plane, int channels, int width, float* out,
               size_t out_plane) {
  for (int c = 0; c < channels; ++c, first += plane, second += plane, out += out_plane) {
    for (int x = 0; x < width; x += kLanes) {
      const V a = Isa::max(load(first + 2 * x), load(second + 2 * x));
      const V b = Isa::max(load(first + 2 * x + kLanes), load(second + 2 * x + kLanes));
      store_part(out + x, Isa::max(Isa::even(a, b), Isa::odd(a, b)), width - x);
    }
  }
}

// --- the side: dilated views -----------------------------------------------------------------------------------------

// Rows y, y + d, y + 2d, y + 3d of one view by Winograd's F(4, 3) along y: six rows are transformed, multiplied with the
// transformed kernel (the taps along x stay as they are, so a dilation is a shifted read), and transformed back.
void transform_rows(const Row* r, int channels, size_t length, float* out, size_t plane, size_t step) {
  const V four = repeat(4.0f), minus_four = repeat(-4.0f), minus_five = repeat(-5.0f), two = repeat(2.0f),
          minus_two = repeat(-2.0f);
  for (int c = 0; c < channels; ++c, out += plane) {
    const float* p[6];
    for (int i = 0; i < 6; ++i) p[i] = r[i].data + c * r[i].plane;
    for (size_t x = 0; x < length; x += kLanes) {
      const V r0 = load(p[0] + x), r1 = load(p[1] + x), r2 = load(p[2] + x);
      const V r3 = load(p[3] + x), r4 = load(p[4] + x), r5 = load(p[5] + x);
      const V a = Isa::fma(minus_four, r2, r4), b = Isa::fma(minus_four, r1, r3), d = r4 - r2, e = r3 - r1;
      float* o = out + x;
      store(o, Isa::fma(four, r0, Isa::fma(minus_five, r2, r4)));
      store(o + step, a + b);
      store(o + 2 * step, a - b);
      store(o + 3 * step, Isa::fma(two, e, d));
      store(o + 4 * step, Isa::fma(minus_two, e, d));
      store(o + 5 * step, Isa::fma(four, r1, Isa::fma(minus_five, r3, r5)));
    }
  }
}

template <int kVectors>
__attribute__((noinline)) void winograd_tile(const float* weights, int channels, int dilation, const float* in,
                                             size_t plane, size_t step, float* const* out, int rows, size_t out_plane,
                                             bool first) {
  const size_t block = static_cast<size_t>(18) * channels * kGroup;
  for_groups(groups_of(channels), [&](auto blocks, int g) INLINED {
    constexpr int kBlocks = decltype(blocks)::value;
    V products[6][kBlocks * kGroup][kVectors];
    for (int i = 0; i < 6; ++i) {
      V sums[kBlocks * kGroup][kVectors] = {};
      for (int t = 0; t < 3; ++t) {
        multiply<kBlocks, kVectors, false>(sums, in + i * step + (t - 1) * dilation, plane, channels,
                                           weights + g * block + static_cast<size_t>(i * 3 + t) * channels * kGroup,
                                           block);
      }
      for (int k = 0; k < kBlocks * kGroup; ++k) {
        for (int v = 0; v < kVectors; ++v) products[i][k][v] = sums[k][v];
      }
    }
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      for (int v = 0; v < kVectors; ++v) {
        const V p = products[1][k][v] + products[2][k][v], q = products[1][k][v] - products[2][k][v];
        const V r = products[3][k][v] + products[4][k][v], s = products[3][k][v] - products[4][k][v];
        const V y[4] = {products[0][k][v] + p + r, Isa::fma(repeat(2.0f), s, q), Isa::fma(repeat(4.0f), r, p),
                        Isa::fma(repeat(8.0f), s, q + products[5][k][v])};
        for (int j = 0; j < rows; ++j) {
          float* o = out[j] + (g * kGroup + k) * out_plane + v * kLanes;
          store(o, first ? y[j] : y[j] + load(o));
        }
      }
    }
  });
}

template <int kVectors>
__attribute__((noinline)) void direct_tile(const float* weights, int channels, int dilation, const Row* rows,
                                           float* out, size_t out_plane, bool first) {
  const size_t block = static_cast<size_t>(9) * channels * kGroup;
  for_groups(groups_of(channels), [&](auto blocks, int g) INLINED {
    constexpr int kBlocks = decltype(blocks)::value;
    V sums[kBlocks * kGroup][kVectors] = {};
    for (int i = 0; i < 9; ++i) {
      multiply<kBlocks, kVectors, false>(sums, rows[i / 3].data + (i % 3 - 1) * dilation, rows[i / 3].plane, channels,
                                         weights + g * block + static_cast<size_t>(i) * channels * kGroup, block);
    }
    for (int k = 0; k < kBlocks * kGroup; ++k) {
      for (int v = 0; v < kVectors; ++v) {
        float* o = out + (g * kGroup + k) * out_plane + v * kLanes;
        store(o, first ? sums[k][v] : sums[k][v] + load(o));
      }
    }
  });
}

// One view of a band, added to the sums.
void dilate_view(const Side& side, int view, const DilationCall& call, const DilationSpace& space) {
  const Map& map = *call.squeezed;
  const int d = kDilations[view], rows = call.y1 - call.y0, width = call.x1 - call.x0;
  const Tiles tiles(width, Isa::tile);
  const size_t sums_row = space.plane * groups_of(side.channels) * kGroup;
  const auto row = [&](int y) {
    const bool inside = y >= 0 && y < map.height;
    return Row{inside ? map.row(y) + call.x0 : call.zeros, inside ? map.plane : 0};
  };
  for (int band = 0; band < rows; band += 4 * d) {
    for (int y = band; y < std::min(rows, band + d); ++y) {
      const int count = std::min(4, (rows - y + d - 1) / d);
      float* sums[4];
      for (int j = 0; j < count; ++j) sums[j] = call.sums + static_cast<size_t>(y + j * d) * sums_row;
      if (count < 3) {
        for (int j = 0; j < count; ++j) {
          for (int t = 0; t < tiles.count; ++t) {
            Row near[3];
            for (int i = 0; i < 3; ++i) {
              near[i] = row(call.y0 + y + (j + i - 1) * d);
              near[i].data += tiles.x(t);
            }
            with_vectors(tiles.size(t), [&](auto n) {
              direct_tile<decltype(n)::value>(side.direct[view].data(), side.channels, d, near, sums[j] + tiles.x(t),
                                              space.plane, view == 0);
            });
          }
        }
        continue;
      }
      Row six[6];
      for (int i = 0; i < 6; ++i) {
        six[i] = row(call.y0 + y + (i - 1) * d);
        six[i].data -= kMargin;
      }
      const size_t step = space.plane * side.channels;
      transform_rows(six, side.channels, round_up(width, kLanes) + 2 * kMargin, call.transformed, space.plane, step);
      for (int t = 0; t < tiles.count; ++t) {
        const int x = tiles.x(t);
        float* const out[4] = {sums[0] + x, sums[1] + x, sums[2] + x, count > 3 ? sums[3] + x : nullptr};
        with_vectors(tiles.size(t), [&](auto n) {
          winograd_tile<decltype(n)::value>(side.winograd[view].data(), side.channels, d,
                                            call.transformed + kMargin + x, space.plane, step, out, count, space.plane,
                                            view == 0);
        });
      }
    }
  }
}

void dilate_here(const Side& side, const DilationCall& call) {
  const int rows = call.y1 - call.y0, width = call.x1 - call.x0;
  const DilationSpace space = dilation_space(side.channels, rows);
  for (int view = 0; view < kViews; ++view) dilate_view(side, view, call, space);
  const size_t sums_row = space.plane * groups_of(side.channels) * kGroup;
  for (int y = 0; y < rows; ++y) {
    float* out = call.traits.row(call.y0 + y) + call.x0;
    traits_here(side, call.sums + y * sums_row, space.plane, (width + kLanes - 1) / kLanes, out, call.traits.plane);
    if (call.x1 == call.traits.width) clear_tail(out, call.traits.plane, side.planes(), width);
  }
}

// --- the last steps --------------------------------------------------------------------------------------------------

INLINE V exponential(V x) {
  x = Isa::max(-Isa::max(-x, repeat(-87.0f)), repeat(-87.0f));
  const V shifted = Isa::fma(x, repeat(1.44269504f), repeat(12582912.0f));  // 1.5 * 2^23: rounds to a whole number
  const V n = shifted - repeat(12582912.0f);
  x = Isa::fma(n, repeat(-0.693359375f), x);
  x = Isa::fma(n, repeat(2.12194440e-4f), x);
  V p = repeat(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = Isa::fma(p, x, repeat(c));
  }
  p = Isa::fma(p, x * x, x + repeat(1.0f));
  typedef uint32_t Bits __attribute__((vector_size(sizeof(V))));
  Bits bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + (127u << 23);
  V scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

INLINE V sigmoid(V x) { return repeat(1.0f) / (repeat(1.0f) + exponential(-x)); }

void attend_here(const Side& side, const Row* traits, int width, float* logits) {
  const V bias = repeat(side.bias);
  for (int x = 0; x < width; x += kLanes) {
    const float* reduced = traits[1].data + x + (side.csam ? kHidden * traits[1].plane : 0);
    if (!side.csam) {
      store_part(logits + x, load(reduced) + bias, width - x);
      continue;
    }
    V sums[kHidden];
    for (int c = 0; c < kHidden; ++c) {
      sums[c] = V{};
      for (int i = 0; i < 9; ++i) {
        const Row& row = traits[i / 3];
        sums[c] = Isa::fma(load(row.data + c * row.plane + x + i % 3 - 1), repeat(side.attend[c * 9 + i]), sums[c]);
      }
    }
    const V weight = sigmoid((sums[0] + sums[1]) + (sums[2] + sums[3]));
    store_part(logits + x, Isa::fma(weight, load(reduced), bias), width - x);
  }
}

void fuse_here(const Layers& layers, const FuseCall& call) {
  const int space = round_up(call.coarse[0].width + 1, kLanes) + kLanes;
  for (int s = 0; s < kStages - 1; ++s) {
    const FuseCall::Coarse& map = call.coarse[s];
    float* line = call.line + s * space;
    const V below = repeat(map.below);
    for (int x = 0; x < map.width; x += kLanes) {
      const V upper = load_part(map.upper + x, map.width - x), lower = load_part(map.lower + x, map.width - x);
      store(line + x, Isa::fma(below, lower - upper, upper));
    }
    line[map.width] = line[map.width - 1];
  }
  for (int x = 0; x < call.width; x += kLanes) {
    const int count = call.width - x;
    V sum = Isa::fma(load_part(call.finest + x, count), repeat(layers.fusion[0]), repeat(layers.bias));
    for (int s = 0; s < kStages - 1; ++s) {
      const FuseCall::Coarse& map = call.coarse[s];
      const float* line = call.line + s * space;
      const I left = *reinterpret_cast<const IndexAnywhere*>(map.left + x);
      const V a = Isa::gather(line, left), b = Isa::gather(line + 1, left);
      sum = Isa::fma(Isa::fma(load(map.right + x), b - a, a), repeat(layers.fusion[s + 1]), sum);
    }
    store_part(call.edges + x, sigmoid(sum), count);
  }
}

double multiply_adds_here(int rounds) {
  constexpr int kChains = 12;
  V sums[kChains];
  for (V& sum : sums) sum = repeat(1e-9f);
  const V a = Isa::pin(repeat(0.99f)), b = Isa::pin(repeat(0.1f));
  for (int i = 0; i < rounds; ++i) {
    for (V& sum : sums) sum = Isa::pin(Isa::fma(sum, a, b));
  }
  float total = 0;
  for (const V& sum : sums) total += sum[0];
  return total < 0 ? 0 : static_cast<double>(rounds) * kChains * kLanes;
}
