// What one thread does besides counting, written once and compiled for each instruction set. The including file defines
// `Isa`, and includes nibbles.inl or words.inl behind this one:
//
//   Wide, wide, Count                                                    a vector of floats, its lanes, a number of mismatches
//   alternate(a, b)                                                      the even shorts of a, the odd ones of b
//   at_least(a, b)                                                       a bit per lane: a[i] >= b[i]
//   widen(counts)                                                        counts as a vector of floats
//   repeat(v)                                                            v in every lane
//   multiply_add(a, b, c)                                                a * b + c, rounded once
//   float_blocks                                                         blocks of a float convolution that are summed at once
//
// Everything here sits in an anonymous namespace, because each instruction set has its own copy.

using Wide = Isa::Wide;
using Count = Isa::Count;
constexpr int kWide = Isa::wide;
typedef float WideAnywhere __attribute__((vector_size(sizeof(Wide)), aligned(4), may_alias));

inline Floats load(const float* p) { return *reinterpret_cast<const Floats*>(p); }
inline void store(float* p, Floats v) { *reinterpret_cast<Floats*>(p) = v; }
inline Wide load_wide(const float* p) { return *reinterpret_cast<const WideAnywhere*>(p); }
inline void store_wide(float* p, Wide v) { *reinterpret_cast<WideAnywhere*>(p) = v; }
inline Entries repeat(uint16_t v) { return Entries{v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }

void pack_signs_here(const float* x, size_t pixels, int channels, uint64_t* words) {
  for (size_t p = 0; p < pixels; ++p, x += channels) {
    for (int first = 0; first < channels; first += 64) {
      const int count = std::min(64, channels - first);
      uint64_t word = 0;
      int i = 0;
      for (; i + kWide <= count; i += kWide) {
        word |= static_cast<uint64_t>(Isa::at_least(load_wide(x + first + i), Wide{})) << i;
      }
      for (; i < count; ++i) word |= static_cast<uint64_t>(x[first + i] >= 0.0f) << i;
      *words++ = word;
    }
  }
}

// --- differences ---------------------------------------------------------------------------------------------------

// The differing channels of some input rows, `depth` floats per pixel, zeros outside the map: every pixel pair is then
// two constant offsets from the centre, without a look at the border.
struct Window {
  const BinaryConv& conv;
  MapSize size;
  int reach = 0;  // pixels read to each side
  int depth, columns;
  ptrdiff_t plus[256], minus[256];  // in floats, filled up to a multiple of eight pairs
  bool one_minus = true;            // all pairs have the same second pixel, as central ones do

  Window(const BinaryConv& conv, MapSize size) : conv(conv), size(size) {
    for (const PixelPair& p : conv.pairs) {
      reach = std::max({reach, std::abs(p.plus_y), std::abs(p.plus_x), std::abs(p.minus_y), std::abs(p.minus_x)});
      one_minus = one_minus && p.minus_y == conv.pairs[0].minus_y && p.minus_x == conv.pairs[0].minus_x;
    }
    depth = (conv.differing + kLanes - 1) / kLanes * kLanes;
    columns = size.width + 2 * reach + conv.stride;  // the last pair's second pixel may lie beyond the map
    const auto place = [&](int y, int x) { return (static_cast<ptrdiff_t>(y) * columns + x) * depth; };
    const size_t count = conv.pairs.size();
    for (size_t i = 0; i < (count + 7) / 8 * 8; ++i) {
      const PixelPair p = i < count ? conv.pairs[i] : PixelPair{};
      plus[i] = place(p.plus_y, p.plus_x);
      minus[i] = place(p.minus_y, p.minus_x);
    }
  }

  size_t row_size() const { return static_cast<size_t>(columns) * depth; }

  void copy_row(const float* image, int row, float* target) const {
    if (row < 0 || row >= size.height) {
      std::fill_n(target, row_size(), 0.0f);
      return;
    }
    const float* x = image + static_cast<size_t>(row) * size.width * conv.in_channels;
    std::fill_n(target, static_cast<size_t>(reach) * depth, 0.0f);
    target += static_cast<size_t>(reach) * depth;
    const int whole = depth <= conv.in_channels ? depth : depth - kLanes;  // channels that do not differ do no harm
    for (int column = 0; column < size.width; ++column, x += conv.in_channels, target += depth) {
      for (int c = 0; c < whole; c += kLanes) store(target + c, load(x + c));
      for (int c = whole; c < conv.differing; ++c) target[c] = x[c];
    }
    std::fill_n(target, static_cast<size_t>(reach + conv.stride) * depth, 0.0f);
  }
};

// Eight pairs of eight channels of two pixels, as 16 entries: for each channel one of pairs 0 to 3, one of pairs 4 to 7.
template <bool kOneMinus>
inline Entries compare(const float* first, const float* second, const ptrdiff_t* plus, const ptrdiff_t* minus,
                       Entries used) {
  const auto signs = [&](const float* centre, int i) {
    return load(centre + plus[i]) >= load(centre + minus[kOneMinus ? 0 : i]);
  };
  Entries sum = {};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Entries bit = used & repeat(static_cast<uint16_t>(1 << i));
    sum += Isa::alternate(signs(first, i), signs(first, i + 4)) & (bit * repeat(16));
    sum += Isa::alternate(signs(second, i), signs(second, i + 4)) & (bit * repeat(16 * (kOutside + 1)));
  }
  return sum;
}

// Entries of one output row from the window's rows around it; writes up to 16 entries beyond.
template <bool kOneMinus, bool kEight>
void difference_row(const Window& window, const float* row, uint16_t* entries) {
  const BinaryConv& conv = window.conv;
  const int columns = steps(window.size.width, conv.stride), channels = conv.differing;
  const int pairs = kEight ? 8 : static_cast<int>(conv.pairs.size()), nibbles = conv.difference.nibbles;
  const ptrdiff_t step = static_cast<ptrdiff_t>(conv.stride) * window.depth;
  for (int i = 0; i < pairs; i += 8) {
    ptrdiff_t plus[8], minus[8];  // copies: stores of entries alias everything else
    std::copy_n(window.plus + i, 8, plus);
    std::copy_n(window.minus + i, 8, minus);
    Entries used = repeat(15);
    for (int k = 0; !kEight && k < 16; ++k) {
      used[k] &= static_cast<uint16_t>((1 << std::max(0, std::min(8, pairs - i) - k % 2 * 4)) - 1);
    }
    // Backwards: what the last channels write beyond their entries is written over.
    for (int c = (channels - 1) / kLanes * kLanes; c >= 0; c -= kLanes) {
      const size_t bytes = kEight ? sizeof(Entries) : std::min(kLanes, channels - c) * 2 * sizeof(*entries);
      const float* centre = row + static_cast<size_t>(window.reach) * window.depth + c;
      uint16_t* target = entries + i / 4 * channels + 2 * c;
      for (int x = 0; x < columns; x += 2, centre += 2 * step, target += nibbles) {
        const Entries found = compare<kOneMinus>(centre, centre + step, plus, minus, used);
        std::memcpy(target, &found, bytes);
      }
    }
  }
}

void difference_row(const Window& window, const float* row, uint16_t* entries) {
  const bool eight = window.conv.pairs.size() == 8;  // as all kinds of 3x3 have
  if (window.one_minus) return (eight ? difference_row<true, true> : difference_row<true, false>)(window, row, entries);
  return (eight ? difference_row<false, true> : difference_row<false, false>)(window, row, entries);
}

void difference_row_here(const BinaryConv& conv, const float* image, MapSize size, int y, uint16_t* entries) {
  const Window window(conv, size);
  std::vector<float> rows(window.row_size() * (2 * window.reach + 1));
  for (int i = -window.reach; i <= window.reach; ++i) {
    window.copy_row(image, y * conv.stride + i, rows.data() + (i + window.reach) * window.row_size());
  }
  difference_row(window, rows.data() + window.reach * window.row_size(), entries);
}

// --- buffers --------------------------------------------------------------------------------------------------------

template <class T>
T* room(std::vector<T>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

// The next address at which a cache line begins, at most kLine floats on.
constexpr int kLine = 16;
inline float* aligned(float* p) { return p + (0 - reinterpret_cast<uintptr_t>(p) / sizeof(float)) % kLine; }

// --- epilogue ------------------------------------------------------------------------------------------------------

// The order of the operations and their roundings are those of the torch layers, so that results agree to the last bit.
struct Norm {
  Wide scale, shift;

  Norm(const float* scale, const float* shift) : scale(load_wide(scale)), shift(load_wide(shift)) {}
  Wide operator()(Wide v) const { return Isa::multiply_add(v, scale, shift); }
  Wide operator()(const Count* mismatches, float products) const {
    const Wide sums = Isa::multiply_add(Isa::widen(mismatches), Isa::repeat(-2.0f), Isa::repeat(products));  // exact
    return (*this)(sums);
  }
};

struct RPReLU {
  Wide before, slope, after;

  RPReLU(const Epilogue::Activation& from, int i)
      : before(load_wide(from.before + i)), slope(load_wide(from.slope + i)), after(load_wide(from.after + i)) {}
  Wide operator()(Wide v) const {
    v += before;
    const Wide zero = {}, scaled = v * slope;
    v = v > zero ? v : scaled;
    return v + after;
  }
};

// Mismatches of some pixels with one output block, kBlock for each pixel.
struct Sums {
  const Count *difference, *plain;
  int pixels;
  int difference_products, plain_products;  // of each pixel
};

// Where those pixels' results go; from one pixel to the next it is `step` floats, and `sign_step` bytes of signs.
struct Results {
  const float* shortcut;
  float* y;
  size_t step;
  uint8_t* signs;
  size_t sign_step;
};

enum class Branches { kPlain, kDifference, kBoth, kBothActivated };

// Some pixels, one block of outputs: floats and their signs, a byte for every eight.
template <Branches kBranches, bool kShortcut>
void finish_block(const Epilogue* epilogues, const Sums& sums, const Results& results) {
  constexpr bool kPlain = kBranches != Branches::kDifference, kDifference = kBranches != Branches::kPlain;
  const Sums from = sums;  // locals: stores of signs alias everything else
  const Results to = results;
  const float products = static_cast<float>(from.plain_products);
  const float other_products = static_cast<float>(from.difference_products);
#pragma GCC unroll 8
  for (int i = 0; i < kBlock; i += kWide) {
    const Epilogue& epilogue = epilogues[i / kGroup];
    const int k = i % kGroup;
    const Norm norm(epilogue.plain_scale + k, epilogue.plain_shift + k);
    const Norm other_norm(epilogue.difference_scale + k, epilogue.difference_shift + k);
    const RPReLU act(epilogue.activation[0], k), other_act(epilogue.activation[1], k);
    for (int p = 0; p < from.pixels; ++p) {
      Wide v, w;
      if (kDifference) v = other_norm(from.difference + p * kBlock + i, other_products);
      if (kPlain) w = norm(from.plain + p * kBlock + i, products);
      if (kBranches == Branches::kBothActivated) {
        v = act(v) + other_act(w);
      } else {
        v = act(kBranches == Branches::kBoth ? v + w : kPlain ? w : v);
      }
      if (kShortcut) v += load_wide(to.shortcut + p * to.step + i);
      store_wide(to.y + p * to.step + i, v);
      const unsigned signs = Isa::at_least(v, Wide{});
      std::memcpy(to.signs + p * to.sign_step + i / 8, &signs, kWide / 8);
    }
  }
}

using Finish = void (*)(const Epilogue*, const Sums&, const Results&);

template <bool kShortcut>
Finish choose_finish(const BinaryConv& conv) {
  if (!conv.differing) return finish_block<Branches::kPlain, kShortcut>;
  if (!conv.plain_channels()) return finish_block<Branches::kDifference, kShortcut>;
  if (conv.activations == 2) return finish_block<Branches::kBothActivated, kShortcut>;
  return finish_block<Branches::kBoth, kShortcut>;
}

// The last block may be narrower than kBlock: it is computed whole and copied in part, pixel by pixel.
void finish_part(Finish finish, const Epilogue* epilogue, Sums sums, int valid, Results results) {
  for (int pixels = sums.pixels; pixels > 0; --pixels) {
    float added[kBlock] = {}, y[kBlock];
    uint64_t word;
    if (results.shortcut) std::memcpy(added, results.shortcut, valid * sizeof(float));
    sums.pixels = 1;
    finish(epilogue, sums, {added, y, kBlock, reinterpret_cast<uint8_t*>(&word), sizeof(word)});
    std::memcpy(results.y, y, valid * sizeof(float));
    word &= (uint64_t{1} << valid) - 1;
    std::memcpy(results.signs, &word, sizeof(word));
    sums.difference += kBlock;
    sums.plain += kBlock;
    if (results.shortcut) results.shortcut += results.step;
    results.y += results.step;
    results.signs += results.sign_step;
  }
}

void write_sums(const Count* mismatches, int products, int pixels, int count, size_t step, int32_t* sums) {
  for (int p = 0; p < pixels; ++p, sums += step, mismatches += kBlock) {
    for (int i = 0; i < count; ++i) sums[i] = products - 2 * static_cast<int32_t>(mismatches[i]);
  }
}

// --- the outputs of one band ---------------------------------------------------------------------------------------

// Output rows [y0, y0 + rows) of image `n`, and how sums become results.
struct Outputs {
  const BinaryConv& conv;
  const BinaryCall& call;
  int n, y0, rows, height, columns;
  Finish finish;

  Outputs(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int y1)
      : conv(conv),
        call(call),
        n(n),
        y0(y0),
        rows(y1 - y0),
        height(steps(call.size.height, conv.stride)),
        columns(steps(call.size.width, conv.stride)),
        finish(call.shortcut ? choose_finish<true>(conv) : choose_finish<false>(conv)) {}

  int inside(int centre, int side) const {
    const int radius = conv.kernel_size / 2;
    return std::min(centre + radius, side - 1) - std::max(centre - radius, 0) + 1;
  }

  // A block's place in the results, for all pixels.
  struct Block {
    int first, valid;
    const Epilogue* epilogue;
  };
  Block block_at(int block) const {
    const int first = block * kBlock;
    return {first, std::min(kBlock, conv.out_channels - first), &conv.epilogue[first / kGroup]};
  }

  // Asks for the cache lines that finish_pixels will read and write.
  void fetch(size_t pixel, int pixels, const Block& block) const {
    if (!call.y) return;
    const size_t outputs = conv.out_channels, place = pixel * outputs + block.first;
    const size_t skipped = static_cast<size_t>(call.first_shortcut_row) * columns * outputs;
    for (int p = 0; p < pixels; ++p) {
      for (int i = 0; i < block.valid; i += 16) {
        if (call.shortcut) __builtin_prefetch(call.shortcut + (place - skipped) + p * outputs + i);
        __builtin_prefetch(call.y + place + p * outputs + i, 1);
      }
    }
  }

  void finish_pixel(int y, int x, const Block& block, const Count* difference, const Count* plain) const {
    const int inner = inside(y * conv.stride, call.size.height) * inside(x * conv.stride, call.size.width);
    finish_pixels((static_cast<size_t>(n) * height + y) * columns + x, 1, inner, block, difference, plain);
  }

  // `inner` pixels under the kernel of each lie in the map.
  void finish_pixels(size_t pixel, int pixels, int inner, const Block& block, const Count* difference,
                     const Count* plain) const {
    const Sums sums{difference, plain, pixels, conv.difference_bits(), inner * conv.plain_channels()};
    const size_t outputs = conv.out_channels, place = pixel * outputs + block.first;
    if (call.y) {
      const size_t skipped = static_cast<size_t>(call.first_shortcut_row) * columns * outputs;
      const size_t words = words_of(conv.out_channels);
      const Results results{call.shortcut ? call.shortcut + (place - skipped) : nullptr, call.y + place, outputs,
                            reinterpret_cast<uint8_t*>(call.y_bits + pixel * words + block.first / 64),
                            words * sizeof(uint64_t)};
      if (block.valid == kBlock) {
        finish(block.epilogue, sums, results);
      } else {
        finish_part(finish, block.epilogue, sums, block.valid, results);
      }
    }
    if (call.difference_sums && conv.differing) {
      write_sums(difference, sums.difference_products, pixels, block.valid, outputs, call.difference_sums + place);
    }
    if (call.plain_sums && conv.plain_channels()) {
      write_sums(plain, sums.plain_products, pixels, block.valid, outputs, call.plain_sums + place);
    }
  }
};

// --- float convolution ---------------------------------------------------------------------------------------------

constexpr int kFloatPixels = 6;
constexpr int kFloatVectors = kFloatBlock / kWide;

// Input rows [first, last) with zeros beside and outside the map: every pixel under a kernel is then there.
void copy_padded(const FloatConv& conv, MapSize size, const float* image, int first, int last, int columns,
                 float* target) {
  const int radius = conv.kernel_size / 2, channels = conv.in_channels, inside = std::min(size.width, columns - radius);
  for (int row = first; row < last; ++row, target += static_cast<size_t>(columns) * channels) {
    if (row < 0 || row >= size.height) {
      std::fill_n(target, static_cast<size_t>(columns) * channels, 0.0f);
      continue;
    }
    const float* pixels = image + static_cast<size_t>(row) * size.width * channels;
    float* at = std::fill_n(target, radius * channels, 0.0f);
    at = std::copy_n(pixels, inside * channels, at);
    std::fill_n(at, (columns - radius - inside) * channels, 0.0f);
  }
}

// The pixels of one tile: `step` floats from one to the next; the rows under a kernel are `row_step` apart.
struct FloatTile {
  const float* x;
  ptrdiff_t step, row_step;
  float* y;
};

// kBlocks blocks of outputs from `block` on of kPixels pixels; taps are added in the order of the weights.
template <int kBlocks, int kPixels>
void multiply(const FloatConv& conv, const FloatTile& tile, int block) {
  const int run = conv.kernel_size * conv.in_channels;
  const size_t block_size = static_cast<size_t>(run) * conv.kernel_size * kFloatBlock;
  const float* weights = conv.weights.data() + block * block_size;
  Wide sums[kPixels][kBlocks * kFloatVectors];
  for (auto& row : sums) {
    for (Wide& sum : row) sum = Wide{};
  }
  for (int ky = 0; ky < conv.kernel_size; ++ky) {
    const float* x = tile.x + ky * tile.row_step;
    for (int i = 0; i < run; ++i, ++x, weights += kFloatBlock) {
      Wide w[kBlocks * kFloatVectors];
      for (int v = 0; v < kBlocks * kFloatVectors; ++v) {
        w[v] = load_wide(weights + v / kFloatVectors * block_size + v % kFloatVectors * kWide);
      }
      for (int p = 0; p < kPixels; ++p) {
        const Wide value = Isa::repeat(x[p * tile.step]);
        for (int v = 0; v < kBlocks * kFloatVectors; ++v) sums[p][v] = Isa::multiply_add(value, w[v], sums[p][v]);
      }
    }
  }
  for (int v = 0; v < kBlocks * kFloatVectors; ++v) {
    const int channel = block * kFloatBlock + v * kWide, k = channel % kGroup;
    const int valid = std::min(kWide, conv.out_channels - channel);
    if (valid <= 0) break;
    const Epilogue& epilogue = conv.epilogue[channel / kGroup];
    const Norm norm(epilogue.plain_scale + k, epilogue.plain_shift + k);
    const RPReLU act(epilogue.activation[0], k);
    for (int p = 0; p < kPixels; ++p) {
      const Wide sum = conv.activated ? act(norm(sums[p][v])) : norm(sums[p][v]);
      float* y = tile.y + static_cast<size_t>(p) * conv.out_channels + channel;
      if (valid == kWide) {
        store_wide(y, sum);
      } else {
        std::memcpy(y, &sum, valid * sizeof(float));
      }
    }
  }
}

template <int kBlocks>
void multiply(const FloatConv& conv, const FloatTile& tile, int block, int pixels) {
  static_assert(kFloatPixels == 6);
  switch (pixels) {
    case 6:
      return multiply<kBlocks, 6>(conv, tile, block);
    case 5:
      return multiply<kBlocks, 5>(conv, tile, block);
    case 4:
      return multiply<kBlocks, 4>(conv, tile, block);
    case 3:
      return multiply<kBlocks, 3>(conv, tile, block);
    case 2:
      return multiply<kBlocks, 2>(conv, tile, block);
    default:
      return multiply<kBlocks, 1>(conv, tile, block);
  }
}

void float_band_here(const FloatConv& conv, MapSize size, const float* image, float* rows, int y0, int y1, int b0,
                     int b1) {
  static thread_local std::vector<float> buffer;
  const int radius = conv.kernel_size / 2, channels = conv.in_channels, stride = conv.stride;
  const int columns = steps(size.width, stride);
  // Without a margin the map is read where it lies.
  const int padded = radius ? (columns - 1) * stride + conv.kernel_size : size.width;
  const int first = y0 * stride - radius, last = (y1 - 1) * stride + radius + 1;
  const float* input = image + static_cast<ptrdiff_t>(first) * padded * channels;
  if (radius) {
    float* copied = room(buffer, static_cast<size_t>(last - first) * padded * channels);
    copy_padded(conv, size, image, first, last, padded, copied);
    input = copied;
  }
  const int tiles = (columns + kFloatPixels - 1) / kFloatPixels;
  for (int row = y0; row < y1; ++row) {
    for (int t = 0; t < tiles; ++t) {
      const int from = columns * t / tiles, count = columns * (t + 1) / tiles - from;
      const ptrdiff_t step = static_cast<ptrdiff_t>(stride) * channels,
                      row_step = static_cast<ptrdiff_t>(padded) * channels;
      const FloatTile tile{input + (row - y0) * stride * row_step + from * step, step, row_step,
                           rows + (static_cast<size_t>(row - y0) * columns + from) * conv.out_channels};
      int block = b0;
      for (; block + Isa::float_blocks <= b1; block += Isa::float_blocks) {
        multiply<Isa::float_blocks>(conv, tile, block, count);
      }
      if constexpr (Isa::float_blocks > 2) {
        for (; block + 2 <= b1; block += 2) multiply<2>(conv, tile, block, count);
      }
      for (; block < b1; ++block) multiply<1>(conv, tile, block, count);
    }
  }
}

// --- pooling -------------------------------------------------------------------------------------------------------

// Calls f(first channel, load, store) for vectors of channels, and for what is left with one lane at a time.
template <class F>
void for_channels(int channels, const F& f) {
  int c = 0;
  for (; c + kWide <= channels; c += kWide) {
    f(
        c, [](const float* p) { return load_wide(p); }, [](float* p, Wide v) { store_wide(p, v); });
  }
  for (; c < channels; ++c) {
    f(
        c, [](const float* p) { return Isa::repeat(*p); }, [](float* p, Wide v) { *p = v[0]; });
  }
}

void average_row_here(const float* image, MapSize size, int channels, int y, float* out) {
  const size_t row_size = static_cast<size_t>(size.width) * channels;
  const float *first = image + 2 * y * row_size, *second = 2 * y + 1 < size.height ? first + row_size : nullptr;
  for (int x = 0; x < size.width; x += 2, out += channels) {
    const bool two = x + 1 < size.width;
    const float *a = first + static_cast<size_t>(x) * channels, *b = second ? second + (a - first) : nullptr;
    const Wide count = Isa::repeat(static_cast<float>((1 + two) * (second ? 2 : 1)));
    for_channels(channels, [&](int c, auto load, auto store) {
      Wide sum = Wide{} + load(a + c);
      if (two) sum += load(a + channels + c);
      if (second) sum += load(b + c);
      if (second && two) sum += load(b + channels + c);
      store(out + c, sum / count);
    });
  }
}

void max_row_here(const float* const* rows, int count, int width, int channels, float* out) {
  for (int x = 0; x < width; x += 2, out += channels) {
    const int from = std::max(x - 1, 0), to = std::min(x + 1, width - 1);
    for_channels(channels, [&](int c, auto load, auto store) {
      Wide most = load(rows[0] + static_cast<size_t>(x) * channels + c);
      for (int r = 0; r < count; ++r) {
        for (int k = from; k <= to; ++k) {
          const Wide v = load(rows[r] + static_cast<size_t>(k) * channels + c);
          most = v > most ? v : most;
        }
      }
      store(out + c, most);
    });
  }
}
