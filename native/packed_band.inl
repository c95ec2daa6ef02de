// The work of one thread, written once and compiled for each instruction set. The including file defines `Isa`:
//
//   accumulate(tables, entries, weights, nibbles, fresh, sums)           mismatches of a pair with one or two blocks of
//                                                                        outputs, written to sums if fresh, else added
//   compare<one_minus>(centre, plus, minus, quads)                       signs of 8 differences of 8 channels, 16 bytes
//   at_least(a, b)                                                       8 bits: a[i] >= b[i]
//   expand(word, codes)                                                  64 bits -> 16 nibbles, one per byte
//   extract(word, mask)                                                  the masked bits, closed up
//   widen(counts)                                                        8 counts as floats
//   multiply_add(a, b, c)                                                a * b + c, fused where the set has it
//
// Everything here sits in an anonymous namespace, because each instruction set has its own copy.

constexpr int kPairSums = 2 * kBlock;  // two pixels
constexpr int kTilePairs = 16;         // pixel pairs that share one walk over a block's weights

inline Floats load(const float* p) { return *reinterpret_cast<const Floats*>(p); }
inline void store(float* p, Floats v) { *reinterpret_cast<Floats*>(p) = v; }

void pack_signs_here(const float* x, size_t pixels, int channels, uint64_t* words) {
  const Floats zero = {};
  for (size_t p = 0; p < pixels; ++p, x += channels) {
    for (int first = 0; first < channels; first += 64) {
      const int count = std::min(64, channels - first);
      uint64_t word = 0;
      int i = 0;
      for (; i + kLanes <= count; i += kLanes) {
        word |= static_cast<uint64_t>(Isa::at_least(load(x + first + i), zero)) << i;
      }
      for (; i < count; ++i) word |= static_cast<uint64_t>(x[first + i] >= 0.0f) << i;
      *words++ = word;
    }
  }
}

// --- differences ---------------------------------------------------------------------------------------------------

// The differing channels of some input rows, zeros outside the map: every pixel pair is then two constant offsets from the
// centre, without a look at the border. Channels by eights stand pixel by pixel. The one to seven left over would waste
// most of a vector, so they have rows of their own, `narrow` floats per pixel, and a vector of them holds several pixels.
struct Window {
  const BinaryConv& conv;
  MapSize size;
  int reach;          // pixels read to each side
  int wide, narrow;   // floats per pixel: a multiple of eight, and 0, 1, 2, 4 or 8
  struct Offsets {    // in floats, filled up to a multiple of eight pairs
    std::vector<ptrdiff_t> plus, minus;
  } wide_offsets, narrow_offsets;
  bool one_minus = true;  // all pairs have the same second pixel, as central ones do

  Window(const BinaryConv& conv, MapSize size) : conv(conv), size(size), reach(0) {
    for (const PixelPair& p : conv.pairs) {
      reach = std::max({reach, std::abs(p.plus_y), std::abs(p.plus_x), std::abs(p.minus_y), std::abs(p.minus_x)});
      one_minus = one_minus && p.minus_y == conv.pairs[0].minus_y && p.minus_x == conv.pairs[0].minus_x;
    }
    const int left = conv.differing % kLanes;
    wide = conv.differing - left;
    const bool several = conv.stride == 1 && conv.pairs.size() <= 8;  // pixels in a vector
    narrow = left == 0 ? 0 : left > 4 || !several ? 8 : left > 2 ? 4 : left;
    wide_offsets = offsets(wide);
    narrow_offsets = offsets(narrow);
  }

  int width() const { return size.width + 2 * reach; }
  size_t row_size() const { return static_cast<size_t>(width()) * (wide + narrow) + kLanes; }

  void copy_row(const float* image, int row, float* target) const {
    if (row < 0 || row >= size.height) {
      std::fill_n(target, row_size(), 0.0f);
      return;
    }
    const float* x = image + static_cast<size_t>(row) * size.width * conv.in_channels;
    copy_channels(x, wide, wide, target);
    x += wide;
    target += static_cast<size_t>(width()) * wide;
    copy_channels(x, conv.differing - wide, narrow, target);
    std::fill_n(target + width() * narrow, kLanes, 0.0f);
  }

 private:
  // `count` channels of each pixel of a row, `depth` floats apart, zeros beside the map.
  void copy_channels(const float* x, int count, int depth, float* target) const {
    const size_t margin = static_cast<size_t>(reach) * depth;
    std::fill_n(target, margin, 0.0f);
    target += margin;
    for (int column = 0; column < size.width; ++column, x += conv.in_channels, target += depth) {
      for (int c = 0; c < count; ++c) target[c] = x[c];
    }
    std::fill_n(target, margin, 0.0f);
  }

  Offsets offsets(int depth) const {
    Offsets found;
    found.plus.assign((conv.pairs.size() + 7) / 8 * 8, 0);
    found.minus = found.plus;
    const ptrdiff_t row = row_size();
    const auto place = [&](int y, int x) { return y * row + x * depth; };
    for (size_t i = 0; i < conv.pairs.size(); ++i) {
      const PixelPair& p = conv.pairs[i];
      found.plus[i] = place(p.plus_y, p.plus_x);
      found.minus[i] = place(p.minus_y, p.minus_x);
    }
    if (one_minus) std::fill(found.minus.begin(), found.minus.end(), found.minus[0]);
    return found;
  }
};

// Fewer than four channels are closed up, so that no lookup is wasted; eight pairs of them fill whole nibbles.
template <bool kOneMinus>
void narrow_codes(const Window& window, const float* row, uint8_t* codes) {
  const BinaryConv& conv = window.conv;
  const int columns = steps(window.size.width, conv.stride), pairs = static_cast<int>(conv.pairs.size());
  const int narrow = window.narrow, left = conv.differing - window.wide, at_once = kLanes / narrow;
  const int nibbles = conv.difference.nibbles;
  const float* centre = row + static_cast<size_t>(window.width()) * window.wide + window.reach * narrow;
  for (int x = 0; x < columns; x += at_once, centre += static_cast<size_t>(conv.stride) * at_once * narrow) {
    for (int i = 0; i < pairs; i += 8) {
      uint64_t quads[2];
      Isa::template compare<kOneMinus>(centre, window.narrow_offsets.plus.data() + i,
                                       window.narrow_offsets.minus.data() + i, reinterpret_cast<uint8_t*>(quads));
      const int count = std::min(8, pairs - i);
      for (int k = 0; k < kLanes; k += std::min(narrow, 4)) {  // four signs, or those of one pixel
        const int first = narrow == 8 ? k : 0, channels = std::min(4, left - first), pixel = x + k / narrow;
        if (pixel >= columns || channels <= 0) break;
        uint8_t* target = codes + static_cast<size_t>(pixel) * nibbles + (window.wide + first) / 4 * pairs;
        const uint64_t quad = quads[k / 4] >> k % 4;
        if (channels == 4) {
          std::memcpy(target + i, &quad, count == 8 ? 8 : count);
          continue;
        }
        const uint64_t kept = 0x0101010101010101 * ((1u << channels) - 1);
        const uint64_t used = count == 8 ? kept : kept & ((uint64_t{1} << 8 * count) - 1);
        Isa::expand(Isa::extract(quad, used), target + i / 8 * 2 * channels);
      }
    }
  }
}

// Codes of one output row from the window's rows around it; writes up to 16 bytes beyond. Isa::compare gives two quads:
// eight bytes each, one per pair, of four signs.
template <bool kOneMinus>
void difference_codes(const Window& window, const float* row, uint8_t* codes) {
  const int columns = steps(window.size.width, window.conv.stride), stride = window.conv.stride;
  const int pairs = static_cast<int>(window.conv.pairs.size()), nibbles = window.conv.difference.nibbles;
  if (window.narrow) narrow_codes<kOneMinus>(window, row, codes);  // first: it may write beyond its codes
  const float* centre = row + static_cast<size_t>(window.reach) * window.wide;
  const ptrdiff_t *plus = window.wide_offsets.plus.data(), *minus = window.wide_offsets.minus.data();
  uint8_t* pixel = codes;
  for (int x = 0; x < columns; ++x, pixel += nibbles, centre += static_cast<size_t>(stride) * window.wide) {
    if (pairs == 8) {  // as all kinds of 3x3 have
      uint8_t* target = pixel;
      for (int c = 0; c < window.wide; c += kLanes, target += 16) {
        Isa::template compare<kOneMinus>(centre + c, plus, minus, target);
      }
      continue;
    }
    for (int c = 0; c < window.wide; c += kLanes) {
      for (int i = 0; i < pairs; i += 8) {
        uint8_t quads[16];
        Isa::template compare<kOneMinus>(centre + c, plus + i, minus + i, quads);
        for (int half = 0; half < 2; ++half) {
          std::memcpy(pixel + (c / 4 + half) * pairs + i, quads + 8 * half, std::min(8, pairs - i));
        }
      }
    }
  }
}

void difference_codes(const Window& window, const float* row, uint8_t* codes) {
  window.one_minus ? difference_codes<true>(window, row, codes) : difference_codes<false>(window, row, codes);
}

void difference_codes_here(const BinaryConv& conv, const float* image, MapSize size, int y, uint8_t* codes) {
  const Window window(conv, size);
  std::vector<float> rows(window.row_size() * (2 * window.reach + 1));
  for (int i = -window.reach; i <= window.reach; ++i) {
    window.copy_row(image, y * conv.stride + i, rows.data() + (i + window.reach) * window.row_size());
  }
  difference_codes(window, rows.data() + window.reach * window.row_size(), codes);
}

// --- entries -------------------------------------------------------------------------------------------------------

// Buffers that a thread keeps between calls.
struct Scratch {
  std::vector<uint8_t> codes;
  std::vector<uint64_t> words;
  std::vector<float> window;
  std::vector<uint16_t> plain, difference;
  alignas(64) uint16_t sums[2][2][kTilePairs * kPairSums];  // [branch][block]
};

template <class T>
T* room(std::vector<T>& buffer, size_t size) {
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

// first[i] and second[i] are the codes of two pixels; entries are byte offsets into pair_tables().
void join(const uint8_t* first, const uint8_t* second, size_t count, uint16_t* entries) {
  for (size_t i = 0; i < count; ++i) {
    entries[i] = static_cast<uint16_t>(first[i] * 16 + second[i] * (16 * (kOutside + 1)));
  }
}

// Codes of the plain channels of one pixel, from its packed signs.
void plain_codes(const uint64_t* words, int word_count, int skipped, int nibbles, uint8_t* codes) {
  const int shift = skipped % 64;
  for (int done = 0, w = skipped / 64; done < nibbles; done += 16, ++w) {
    uint64_t word = words[w] >> shift;
    if (shift > 0 && w + 1 < word_count) word |= words[w + 1] << (64 - shift);
    Isa::expand(word, codes + done);
  }
}

// Entries of one input row for every column that a kernel of an even output column reads, left to right.
void plain_row(const BinaryConv& conv, const BinaryCall& call, int n, int row, int columns, Scratch& scratch,
               uint16_t* entries) {
  const int nibbles = nibbles_of(conv.plain_channels()), radius = conv.kernel_size / 2;
  const size_t count = static_cast<size_t>(columns) * nibbles;
  const int height = call.size.height, width = call.size.width, words = words_of(conv.in_channels);
  if (row < 0 || row >= height) {
    std::fill_n(entries, count, static_cast<uint16_t>(16 * kOutside * (kOutside + 2)));
    return;
  }
  const size_t pixel = (static_cast<size_t>(n) * height + row) * width;
  const uint64_t* bits = call.bits ? call.bits + pixel * words : nullptr;
  if (!bits) {
    uint64_t* packed = room(scratch.words, static_cast<size_t>(width) * words);
    pack_signs_here(call.x + pixel * conv.in_channels, width, conv.in_channels, packed);
    bits = packed;
  }
  const int last = columns + conv.stride;  // the second pixel of the last pair
  uint8_t* codes = room(scratch.codes, static_cast<size_t>(last) * nibbles + 64);
  for (int i = 0; i < last; ++i) {
    const int column = i - radius;
    if (column < 0 || column >= width) {
      std::memset(codes + static_cast<size_t>(i) * nibbles, kOutside, nibbles);
    } else {
      plain_codes(bits + static_cast<size_t>(column) * words, words, conv.differing, nibbles,
                  codes + static_cast<size_t>(i) * nibbles);
    }
  }
  join(codes, codes + static_cast<size_t>(conv.stride) * nibbles, count, entries);
}

// Entries of the difference signs of output rows [y0, y0 + rows), one run of nibbles per pixel pair.
void difference_entries(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int rows, Scratch& scratch,
                        uint16_t* entries) {
  const Window window(conv, call.size);
  const int nibbles = conv.difference.nibbles, columns = steps(call.size.width, conv.stride);
  const int first = y0 * conv.stride - window.reach, input_rows = (rows - 1) * conv.stride + 2 * window.reach + 1;
  const float* image = call.x + static_cast<size_t>(n) * call.size.height * call.size.width * conv.in_channels;
  float* copied = room(scratch.window, input_rows * window.row_size());
  for (int i = 0; i < input_rows; ++i) window.copy_row(image, first + i, copied + i * window.row_size());
  uint8_t* codes = room(scratch.codes, static_cast<size_t>(columns + 1) * nibbles + 32);
  for (int y = 0; y < rows; ++y) {
    difference_codes(window, copied + (y * conv.stride + window.reach) * window.row_size(), codes);
    std::memset(codes + static_cast<size_t>(columns) * nibbles, 0, nibbles);
    for (int x = 0; x < columns; x += 2, entries += nibbles) {
      const uint8_t* pixel = codes + static_cast<size_t>(x) * nibbles;
      join(pixel, pixel + nibbles, (nibbles + 15) / 16 * 16, entries);  // whole vectors; the next run overwrites
    }
  }
}

// --- epilogue ------------------------------------------------------------------------------------------------------

// The order of the operations is that of the torch layers, so that results agree to the last bit where fma is fused.
inline Floats normalise(const uint16_t* mismatches, float products, const float* scale, const float* shift) {
  const Floats sums = Isa::multiply_add(Isa::widen(mismatches), Floats{} - 2.0f, Floats{} + products);  // exact
  return Isa::multiply_add(sums, load(scale), load(shift));
}

inline Floats activate(Floats v, const Epilogue::Activation& rprelu) {
  v += load(rprelu.before);
  const Floats zero = {}, scaled = v * load(rprelu.slope);
  v = v > zero ? v : scaled;
  return v + load(rprelu.after);
}

struct PixelSums {
  const uint16_t *difference, *plain;  // mismatches of one pixel and one output block
  int difference_products, plain_products;
};

enum class Branches { kPlain, kDifference, kBoth, kBothActivated };

// One pixel, one block of outputs: floats and their signs, a byte for every eight.
template <Branches kBranches, bool kShortcut>
void finish_block(const Epilogue* epilogue, const PixelSums& sums, const float* shortcut, float* y, uint8_t* signs) {
  constexpr bool kPlain = kBranches != Branches::kDifference, kDifference = kBranches != Branches::kPlain;
  const uint16_t *plain = sums.plain, *difference = sums.difference;  // locals: stores of signs alias everything else
  const float products = static_cast<float>(sums.plain_products);
  const float other_products = static_cast<float>(sums.difference_products);
  uint64_t word = 0;
#pragma GCC unroll 8
  for (int i = 0; i < kBlock; i += kLanes, ++epilogue) {
    Floats v, w;
    if (kDifference) {
      v = normalise(difference + i, other_products, epilogue->difference_scale, epilogue->difference_shift);
    }
    if (kPlain) w = normalise(plain + i, products, epilogue->plain_scale, epilogue->plain_shift);
    if (kBranches == Branches::kBothActivated) {
      v = activate(v, epilogue->activation[0]) + activate(w, epilogue->activation[1]);
    } else {
      v = activate(kBranches == Branches::kBoth ? v + w : kPlain ? w : v, epilogue->activation[0]);
    }
    if (kShortcut) v += load(shortcut + i);
    store(y + i, v);
    word |= static_cast<uint64_t>(Isa::at_least(v, Floats{})) << i;
  }
  std::memcpy(signs, &word, sizeof(word));
}

using Finish = void (*)(const Epilogue*, const PixelSums&, const float*, float*, uint8_t*);

template <bool kShortcut>
Finish choose_finish(const BinaryConv& conv) {
  if (!conv.differing) return finish_block<Branches::kPlain, kShortcut>;
  if (!conv.plain_channels()) return finish_block<Branches::kDifference, kShortcut>;
  if (conv.activations == 2) return finish_block<Branches::kBothActivated, kShortcut>;
  return finish_block<Branches::kBoth, kShortcut>;
}

// The last block may be narrower than kBlock: it is computed whole and copied in part.
void finish_part(Finish finish, const Epilogue* epilogue, const PixelSums& sums, int valid, const float* shortcut,
                 float* y, uint8_t* signs) {
  float added[kBlock] = {}, result[kBlock];
  if (shortcut) std::memcpy(added, shortcut, valid * sizeof(float));
  finish(epilogue, sums, shortcut ? added : nullptr, result, signs);
  std::memcpy(y, result, valid * sizeof(float));
  uint64_t word;
  std::memcpy(&word, signs, sizeof(word));
  word &= (uint64_t{1} << valid) - 1;
  std::memcpy(signs, &word, sizeof(word));
}

void write_sums(const uint16_t* mismatches, int products, int count, int32_t* sums) {
  for (int i = 0; i < count; ++i) sums[i] = products - 2 * mismatches[i];
}

// --- one band ------------------------------------------------------------------------------------------------------

struct Band {
  const BinaryConv& conv;
  const BinaryCall& call;
  int n, y0, rows, height, columns, pairs;  // the band's first row and rows; rows, columns and pairs per row of outputs
  int entry_columns;                  // columns of entries per input row
  size_t plain_row_size;              // entries per input row
  Scratch& scratch;

  int inside(int centre, int side) const {
    const int radius = conv.kernel_size / 2;
    return std::min(centre + radius, side - 1) - std::max(centre - radius, 0) + 1;
  }

  void prepare() {
    const int radius = conv.kernel_size / 2;
    if (conv.plain.nibbles) {
      const int input_rows = (rows - 1) * conv.stride + conv.kernel_size;
      uint16_t* entries = room(scratch.plain, input_rows * plain_row_size);
      for (int i = 0; i < input_rows; ++i) {
        plain_row(conv, call, n, y0 * conv.stride - radius + i, entry_columns, scratch, entries + i * plain_row_size);
      }
    }
    if (conv.difference.nibbles) {
      const size_t row = static_cast<size_t>(pairs) * conv.difference.nibbles;
      uint16_t* entries = room(scratch.difference, rows * row + 16);
      difference_entries(conv, call, n, y0, rows, scratch, entries);
    }
  }

  // The first entry of pixel pair `index` of the band.
  const uint16_t* plain_run(int index) const {
    const size_t row = static_cast<size_t>(index / pairs) * conv.stride;
    const size_t column = static_cast<size_t>(index % pairs) * 2 * conv.stride;
    return scratch.plain.data() + row * plain_row_size + column * nibbles_of(conv.plain_channels());
  }
  const uint16_t* difference_run(int index) const {
    return scratch.difference.data() + static_cast<size_t>(index) * conv.difference.nibbles;
  }

  // Mismatches of `count` pixel pairs from `first` on with kBlocks blocks of outputs from `block` on.
  template <int kBlocks>
  void count_mismatches(const BranchWeights& weights, bool plain, int first, int count, int block,
                        uint16_t (*sums)[kTilePairs * kPairSums]) {
    const uint8_t* tables = pair_tables();
    const BranchWeights::Line* lines[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      lines[b] = weights.lines.data() + static_cast<size_t>(block + b) * weights.nibbles;
    }
    const uint16_t* entries[kTilePairs];
    for (int i = 0; i < count; ++i) entries[i] = plain ? plain_run(first + i) : difference_run(first + i);
    bool fresh = true;
    for (const Chunk& chunk : weights.chunks) {
      const size_t offset = chunk.row * plain_row_size + chunk.column;
      const uint8_t* bytes[kBlocks];
      for (int b = 0; b < kBlocks; ++b) bytes[b] = lines[b][chunk.line].bytes;
      for (int i = 0; i < count; ++i) {
        uint16_t* targets[kBlocks];
        for (int b = 0; b < kBlocks; ++b) targets[b] = sums[b] + i * kPairSums;
        Isa::template accumulate<kBlocks>(tables, entries[i] + offset, bytes, chunk.nibbles, fresh, targets);
      }
      fresh = false;
    }
  }

  void finish_pixel(Finish finish, int y, int x, int block, const uint16_t* difference, const uint16_t* plain) {
    const int inner = inside(y * conv.stride, call.size.height) * inside(x * conv.stride, call.size.width);
    const PixelSums sums{difference, plain, conv.difference_bits(), inner * conv.plain_channels()};
    const int outputs = conv.out_channels, first = block * kBlock, valid = std::min(kBlock, outputs - first);
    const size_t pixel = (static_cast<size_t>(n) * height + y) * columns + x, place = pixel * outputs + first;
    if (call.y) {
      const float* shortcut = call.shortcut ? call.shortcut + place : nullptr;
      const Epilogue* epilogue = &conv.epilogue[first / kLanes];
      auto* signs = reinterpret_cast<uint8_t*>(call.y_bits + pixel * words_of(outputs) + block);
      if (valid == kBlock) {
        finish(epilogue, sums, shortcut, call.y + place, signs);
      } else {
        finish_part(finish, epilogue, sums, valid, shortcut, call.y + place, signs);
      }
    }
    if (call.difference_sums && conv.differing) {
      write_sums(difference, conv.difference_bits(), valid, call.difference_sums + place);
    }
    if (call.plain_sums && conv.plain_channels()) {
      write_sums(plain, sums.plain_products, valid, call.plain_sums + place);
    }
  }

  template <int kBlocks>
  void compute_tile(Finish finish, int first, int count, int block) {
    if (conv.difference.nibbles) {
      count_mismatches<kBlocks>(conv.difference, false, first, count, block, scratch.sums[0]);
    }
    if (conv.plain.nibbles) count_mismatches<kBlocks>(conv.plain, true, first, count, block, scratch.sums[1]);
    int y = y0 + first / pairs, x = first % pairs * 2;
    for (int i = 0; i < 2 * count; ++i) {
      for (int b = 0; b < kBlocks && x < columns; ++b) {
        finish_pixel(finish, y, x, block + b, scratch.sums[0][b] + i * kBlock, scratch.sums[1][b] + i * kBlock);
      }
      if (++x == 2 * pairs) {
        x = 0;
        ++y;
      }
    }
  }

  void compute(int b0, int b1) {
    const int total = rows * pairs;
    const Finish finish = call.shortcut ? choose_finish<true>(conv) : choose_finish<false>(conv);
    for (int first = 0; first < total; first += kTilePairs) {
      const int count = std::min(kTilePairs, total - first);
      int block = b0;
      for (; block + 2 <= b1; block += 2) compute_tile<2>(finish, first, count, block);
      if (block < b1) compute_tile<1>(finish, first, count, block);
    }
  }
};

void binary_band_here(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int y1, int b0, int b1) {
  static thread_local Scratch scratch;
  const int columns = steps(call.size.width, conv.stride), pairs = (columns + 1) / 2;
  const int entry_columns = (pairs - 1) * 2 * conv.stride + conv.kernel_size;
  const size_t row_size = static_cast<size_t>(entry_columns) * nibbles_of(conv.plain_channels());
  const int height = steps(call.size.height, conv.stride);
  Band band{conv, call, n, y0, y1 - y0, height, columns, pairs, entry_columns, row_size, scratch};
  band.prepare();
  band.compute(b0, b1);
}

// --- float convolution ---------------------------------------------------------------------------------------------

constexpr int kFloatPixels = 6;  // 6 x 16 outputs: 12 accumulators

// The pixels under the kernel, [ky, kx, channel], zeros outside.
void gather(const FloatConv& conv, MapSize size, const float* image, int y, int x, float* patch) {
  const int radius = conv.kernel_size / 2, channels = conv.in_channels, length = conv.kernel_size * channels;
  const int left = x * conv.stride - radius, top = y * conv.stride - radius;
  const int from = std::max(0, -left), to = std::min(conv.kernel_size, size.width - left);  // columns inside
  for (int ky = 0; ky < conv.kernel_size; ++ky, patch += length) {
    const int row = top + ky;
    if (row < 0 || row >= size.height) {
      std::fill_n(patch, length, 0.0f);
      continue;
    }
    const float* pixels = image + (static_cast<ptrdiff_t>(row) * size.width + left) * channels;
    std::fill_n(patch, from * channels, 0.0f);
    std::copy(pixels + from * channels, pixels + to * channels, patch + from * channels);
    std::fill_n(patch + to * channels, length - to * channels, 0.0f);
  }
}

void multiply(const float* patches, int taps, const float* weights, Floats (&sums)[kFloatPixels][2]) {
  Floats total[kFloatPixels][2] = {};
  for (int t = 0; t < taps; ++t, weights += kFloatBlock) {
    const Floats w0 = load(weights), w1 = load(weights + kLanes);
    for (int p = 0; p < kFloatPixels; ++p) {
      const float value = patches[static_cast<size_t>(p) * taps + t];
      const Floats x = {value, value, value, value, value, value, value, value};
      total[p][0] = Isa::multiply_add(x, w0, total[p][0]);
      total[p][1] = Isa::multiply_add(x, w1, total[p][1]);
    }
  }
  std::memcpy(&sums, &total, sizeof(total));
}

void float_band_here(const FloatConv& conv, MapSize size, const float* x, float* y, int n, int y0, int y1) {
  static thread_local std::vector<float> buffer;
  const int taps = conv.kernel_size * conv.kernel_size * conv.in_channels;
  const int columns = steps(size.width, conv.stride), height = steps(size.height, conv.stride);
  const int blocks = (conv.out_channels + kFloatBlock - 1) / kFloatBlock;
  const float* image = x + static_cast<size_t>(n) * size.height * size.width * conv.in_channels;
  float* result = y + (static_cast<size_t>(n) * height + y0) * columns * conv.out_channels;
  float* patches = room(buffer, static_cast<size_t>(kFloatPixels) * taps);
  const int total = (y1 - y0) * columns;
  for (int first = 0; first < total; first += kFloatPixels) {
    const int count = std::min(kFloatPixels, total - first);
    for (int p = 0; p < count; ++p) {
      gather(conv, size, image, y0 + (first + p) / columns, (first + p) % columns,
             patches + static_cast<size_t>(p) * taps);
    }
    for (int block = 0; block < blocks; ++block) {
      Floats sums[kFloatPixels][2];
      multiply(patches, taps, conv.weights.data() + static_cast<size_t>(block) * taps * kFloatBlock, sums);
      for (int p = 0; p < count; ++p) {
        for (int half = 0; half < 2; ++half) {
          const int channel = block * kFloatBlock + half * kLanes;
          const int valid = std::min(kLanes, conv.out_channels - channel);
          if (valid <= 0) continue;
          const Epilogue& epilogue = conv.epilogue[channel / kLanes];
          Floats v = Isa::multiply_add(sums[p][half], load(epilogue.plain_scale), load(epilogue.plain_shift));
          if (conv.activated) v = activate(v, epilogue.activation[0]);
          std::memcpy(result + static_cast<size_t>(first + p) * conv.out_channels + channel, &v,
                      valid * sizeof(float));
        }
      }
    }
  }
}
