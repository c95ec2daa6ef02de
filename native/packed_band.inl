// The work of one thread, written once and compiled for each instruction set. The including file defines `Isa`:
//
//   accumulate(entries_a, entries_b, weights, nibbles, sums_a, sums_b)   mismatches of two pairs, added to sums
//   at_least(a, b)                                                       8 bits: a[i] >= b[i]
//   expand(word, codes)                                                  64 bits -> 16 nibbles, one per byte
//   multiply_add(a, b, c)                                                a * b + c, fused where the set has it
//
// Everything here sits in an anonymous namespace, because each instruction set has its own copy.

constexpr int kPairSums = 2 * kBlock;  // two pixels
constexpr int kTilePairs = 16;         // pixel pairs that share one walk over a block's weights

void pack_signs_here(const float* x, size_t pixels, int channels, uint64_t* words) {
  const Floats zero = {};
  for (size_t p = 0; p < pixels; ++p, x += channels) {
    for (int first = 0; first < channels; first += 64) {
      const int count = std::min(64, channels - first);
      uint64_t word = 0;
      int i = 0;
      for (; i + kLanes <= count; i += kLanes) {
        word |= static_cast<uint64_t>(Isa::at_least(*reinterpret_cast<const Floats*>(x + first + i), zero)) << i;
      }
      for (; i < count; ++i) word |= static_cast<uint64_t>(x[first + i] >= 0.0f) << i;
      *words++ = word;
    }
  }
}

// --- differences ---------------------------------------------------------------------------------------------------

// Signs of 8 channels of every pair; `room` channels can be read.
void compare(const float* const* plus, const float* const* minus, int pairs, int channel, int room, uint8_t* masks) {
  if (room >= kLanes) {
    for (int i = 0; i < pairs; ++i) {
      masks[i] = static_cast<uint8_t>(Isa::at_least(*reinterpret_cast<const Floats*>(plus[i] + channel),
                                                    *reinterpret_cast<const Floats*>(minus[i] + channel)));
    }
    return;
  }
  for (int i = 0; i < pairs; ++i) {
    unsigned mask = 0;
    for (int j = 0; j < room; ++j) mask |= static_cast<unsigned>(plus[i][channel + j] >= minus[i][channel + j]) << j;
    masks[i] = static_cast<uint8_t>(mask);
  }
}

// The last quad holds fewer than four channels: its bits are closed up, so that no lookup is wasted.
void close_up(const uint8_t* masks, int pairs, int shift, int channels, uint8_t* codes) {
  uint64_t bits = 0;
  int held = 0;
  const unsigned keep = (1u << channels) - 1;
  for (int i = 0; i < pairs; ++i) {
    bits |= static_cast<uint64_t>((masks[i] >> shift) & keep) << held;
    held += channels;
    for (; held >= 4; held -= 4, bits >>= 4) *codes++ = bits & 15;
  }
  if (held > 0) *codes = bits & 15;
}

void difference_pixel(const float* const* plus, const float* const* minus, int pairs, int differing, int channels,
                      uint8_t* codes) {
  uint8_t masks[256];
  for (int channel = 0; channel < differing; channel += kLanes) {
    compare(plus, minus, pairs, channel, channels - channel, masks);
    for (int half = 0; half < kLanes; half += 4) {
      const int left = differing - channel - half;
      if (left >= 4) {
        for (int i = 0; i < pairs; ++i) codes[i] = (masks[i] >> half) & 15;
        codes += pairs;
      } else if (left > 0) {
        close_up(masks, pairs, half, left, codes);
      }
    }
  }
}

void difference_codes_here(const BinaryConv& conv, const float* x, MapSize size, int y, uint8_t* codes) {
  const int pairs = static_cast<int>(conv.pairs.size()), channels = conv.in_channels;
  const int nibbles = conv.difference.nibbles, columns = steps(size.width, conv.stride);
  static thread_local std::vector<float> zeros;
  if (zeros.size() < static_cast<size_t>(channels)) zeros.assign(channels, 0.0f);
  std::vector<const float*> plus(pairs), minus(pairs);
  int reach = 0;
  for (const PixelPair& pair : conv.pairs) {
    reach = std::max({reach, std::abs(pair.plus_x), std::abs(pair.minus_x)});
  }
  const auto at = [&](int row, int column) -> const float* {
    if (row < 0 || row >= size.height || column < 0 || column >= size.width) return zeros.data();
    return x + (static_cast<size_t>(row) * size.width + column) * channels;
  };
  const auto row_inside = [&](int offset) {
    return y * conv.stride + offset >= 0 && y * conv.stride + offset < size.height;
  };
  bool moving = false;  // the pointers are those of the column before
  for (int column = 0; column < columns; ++column, codes += nibbles) {
    const int centre = column * conv.stride;
    const bool inside = centre >= reach && centre + reach < size.width;
    for (int i = 0; i < pairs; ++i) {
      const PixelPair& pair = conv.pairs[i];
      if (inside && moving) {
        if (row_inside(pair.plus_y)) plus[i] += static_cast<ptrdiff_t>(conv.stride) * channels;
        if (row_inside(pair.minus_y)) minus[i] += static_cast<ptrdiff_t>(conv.stride) * channels;
      } else {
        plus[i] = at(y * conv.stride + pair.plus_y, centre + pair.plus_x);
        minus[i] = at(y * conv.stride + pair.minus_y, centre + pair.minus_x);
      }
    }
    moving = inside;
    difference_pixel(plus.data(), minus.data(), pairs, conv.differing, channels, codes);
  }
}

// --- entries -------------------------------------------------------------------------------------------------------

// Buffers that a thread keeps between calls.
struct Scratch {
  std::vector<uint8_t> codes;
  std::vector<uint64_t> words;
  std::vector<uint16_t> plain, difference;
  alignas(64) uint16_t sums[2][(kTilePairs + 1) * kPairSums];
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

// Entries of the difference signs of one output row, one run of nibbles per pixel pair.
void difference_row(const BinaryConv& conv, const BinaryCall& call, int n, int y, Scratch& scratch,
                    uint16_t* entries) {
  const int nibbles = conv.difference.nibbles, columns = steps(call.size.width, conv.stride);
  uint8_t* codes = room(scratch.codes, static_cast<size_t>(columns + 1) * nibbles);
  const size_t image = static_cast<size_t>(call.size.height) * call.size.width * conv.in_channels;
  difference_codes_here(conv, call.x + n * image, call.size, y, codes);
  std::memset(codes + static_cast<size_t>(columns) * nibbles, 0, nibbles);
  for (int x = 0; x < columns; x += 2, entries += nibbles) {
    const uint8_t* first = codes + static_cast<size_t>(x) * nibbles;
    join(first, first + nibbles, nibbles, entries);
  }
}

// --- epilogue ------------------------------------------------------------------------------------------------------

inline Floats load(const float* p) { return *reinterpret_cast<const Floats*>(p); }
inline void store(float* p, Floats v) { *reinterpret_cast<Floats*>(p) = v; }

inline Floats normalise(const uint16_t* mismatches, int products, const Affine& norm, int channel) {
  const Ints counts = __builtin_convertvector(*reinterpret_cast<const Shorts*>(mismatches), Ints);
  const Floats sums = __builtin_convertvector(products - 2 * counts, Floats);
  return Isa::multiply_add(sums, load(&norm.scale[channel]), load(&norm.shift[channel]));
}

// The order of the operations is that of the torch layers, so that results agree to the last bit where fma is fused.
inline Floats activate(Floats v, const Activation& act, int channel) {
  v += load(&act.before[channel]);
  const Floats zero = {};
  const Floats scaled = v * load(&act.slope[channel]);
  v = v > zero ? v : scaled;
  return v + load(&act.after[channel]);
}

struct PixelSums {
  const uint16_t *difference, *plain;  // mismatches of one pixel and one output block
  int plain_products;
};

// One pixel, one block of outputs: floats and, if asked for, the word of their signs.
template <bool kDifference, bool kPlain>
void finish(const BinaryConv& conv, const PixelSums& sums, int block, const float* shortcut, float* y,
            uint64_t* y_word) {
  const int first = block * kBlock, valid = std::min(kBlock, conv.out_channels - first);
  alignas(32) float added[kBlock], result[kBlock];
  const bool whole = valid == kBlock;
  if (shortcut && !whole) {
    std::memcpy(added, shortcut + first, valid * sizeof(float));
    std::fill(added + valid, added + kBlock, 0.0f);
  }
  const float* addend = whole && shortcut ? shortcut + first : added;
  float* target = whole ? y + first : result;
  const bool per_branch = kDifference && kPlain && conv.activations.size() == 2;
  const int difference_products = conv.difference_bits();
  uint64_t word = 0;
  for (int i = 0; i < kBlock; i += kLanes) {
    Floats v = {};
    if (kDifference) {
      v = normalise(sums.difference + i, difference_products, conv.difference_norm, first + i);
      if (per_branch) v = activate(v, conv.activations[0], first + i);
    }
    if (kPlain) {
      Floats w = normalise(sums.plain + i, sums.plain_products, conv.plain_norm, first + i);
      if (per_branch) w = activate(w, conv.activations[1], first + i);
      v = kDifference ? v + w : w;
    }
    if (!per_branch && !conv.activations.empty()) v = activate(v, conv.activations[0], first + i);
    if (shortcut) v += load(addend + i);
    store(target + i, v);
    word |= static_cast<uint64_t>(Isa::at_least(v, Floats{})) << i;
  }
  if (!whole) std::memcpy(y + first, result, valid * sizeof(float));
  if (y_word) y_word[block] = whole ? word : word & ((uint64_t{1} << valid) - 1);
}

void write_sums(const uint16_t* mismatches, int products, int count, int32_t* sums) {
  for (int i = 0; i < count; ++i) sums[i] = products - 2 * mismatches[i];
}

// --- one band ------------------------------------------------------------------------------------------------------

struct Band {
  const BinaryConv& conv;
  const BinaryCall& call;
  int n, y0, rows, columns, pairs;    // output rows, columns, and pixel pairs per output row
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
      uint16_t* entries = room(scratch.difference, rows * row);
      for (int i = 0; i < rows; ++i) difference_row(conv, call, n, y0 + i, scratch, entries + i * row);
    }
  }

  // The first entry of pixel pair `index` of the band.
  const uint16_t* plain_entries(int index) const {
    const size_t row = static_cast<size_t>(index / pairs) * conv.stride;
    const size_t column = static_cast<size_t>(index % pairs) * 2 * conv.stride;
    return scratch.plain.data() + row * plain_row_size + column * nibbles_of(conv.plain_channels());
  }
  const uint16_t* difference_entries(int index) const {
    return scratch.difference.data() + static_cast<size_t>(index) * conv.difference.nibbles;
  }

  // Mismatches of `count` pixel pairs from `first` on.
  void count_mismatches(const BranchWeights& weights, bool plain, int first, int count, int block, uint16_t* sums) {
    std::memset(sums, 0, count * kPairSums * sizeof(uint16_t));
    const uint8_t* bytes = weights.bytes.data() + static_cast<size_t>(block) * weights.nibbles * kBlock;
    const uint16_t* entries[kTilePairs + 1];
    for (int i = 0; i < count; ++i) entries[i] = plain ? plain_entries(first + i) : difference_entries(first + i);
    entries[count] = entries[count - 1];  // pairs go two by two; the spare one has its own sums
    for (const Chunk& chunk : weights.chunks) {
      const size_t offset = chunk.row * plain_row_size + chunk.column;
      for (int i = 0; i < count; i += 2) {
        Isa::accumulate(entries[i] + offset, entries[i + 1] + offset, bytes + chunk.weight, chunk.nibbles,
                        sums + i * kPairSums, sums + (i + 1) * kPairSums);
      }
    }
  }

  void finish_pixel(int y, int x, int block, const uint16_t* difference, const uint16_t* plain) {
    const int inner = inside(y * conv.stride, call.size.height) * inside(x * conv.stride, call.size.width);
    const PixelSums sums{difference, plain, inner * conv.plain_channels()};
    const int outputs = conv.out_channels;
    const size_t height = steps(call.size.height, conv.stride);
    const size_t pixel = (n * height + y) * columns + x;
    if (call.y) {
      const float* shortcut = call.shortcut ? call.shortcut + pixel * outputs : nullptr;
      uint64_t* word = call.y_bits ? call.y_bits + pixel * words_of(outputs) : nullptr;
      const auto step = !conv.differing                  ? &finish<false, true>
                        : conv.plain_channels() == 0 ? &finish<true, false>
                                                     : &finish<true, true>;
      step(conv, sums, block, shortcut, call.y + pixel * outputs, word);
    }
    const int first = block * kBlock, valid = std::min(kBlock, outputs - first);
    const size_t place = pixel * outputs + first;
    if (call.difference_sums && conv.differing) {
      write_sums(difference, conv.difference_bits(), valid, call.difference_sums + place);
    }
    if (call.plain_sums && conv.plain_channels()) {
      write_sums(plain, sums.plain_products, valid, call.plain_sums + place);
    }
  }

  void compute(int b0, int b1) {
    const int total = rows * pairs;
    for (int first = 0; first < total; first += kTilePairs) {
      const int count = std::min(kTilePairs, total - first);
      for (int block = b0; block < b1; ++block) {
        if (conv.difference.nibbles) {
          count_mismatches(conv.difference, false, first, count, block, scratch.sums[0]);
        }
        if (conv.plain.nibbles) count_mismatches(conv.plain, true, first, count, block, scratch.sums[1]);
        for (int i = 0; i < 2 * count; ++i) {
          const int y = y0 + (first + i / 2) / pairs, x = (first + i / 2) % pairs * 2 + i % 2;
          if (x < columns) finish_pixel(y, x, block, scratch.sums[0] + i * kBlock, scratch.sums[1] + i * kBlock);
        }
      }
    }
  }
};

void binary_band_here(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int y1, int b0, int b1) {
  static thread_local Scratch scratch;
  const int columns = steps(call.size.width, conv.stride), pairs = (columns + 1) / 2;
  const int entry_columns = (pairs - 1) * 2 * conv.stride + conv.kernel_size;
  Band band{conv,  call,          n, y0, y1 - y0, columns,
            pairs, entry_columns, static_cast<size_t>(entry_columns) * nibbles_of(conv.plain_channels()), scratch};
  band.prepare();
  band.compute(b0, b1);
}

// --- float convolution ---------------------------------------------------------------------------------------------

constexpr int kFloatPixels = 6;  // 6 x 16 outputs: 12 accumulators

// The pixels under the kernel, [ky, kx, channel], zeros outside.
void gather(const FloatConv& conv, MapSize size, const float* image, int y, int x, float* patch) {
  const int radius = conv.kernel_size / 2, channels = conv.in_channels;
  for (int ky = 0; ky < conv.kernel_size; ++ky) {
    for (int kx = 0; kx < conv.kernel_size; ++kx, patch += channels) {
      const int row = y * conv.stride + ky - radius, column = x * conv.stride + kx - radius;
      if (row < 0 || row >= size.height || column < 0 || column >= size.width) {
        std::memset(patch, 0, channels * sizeof(float));
      } else {
        std::memcpy(patch, image + (static_cast<size_t>(row) * size.width + column) * channels,
                    channels * sizeof(float));
      }
    }
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
          Floats v = Isa::multiply_add(sums[p][half], load(&conv.norm.scale[channel]), load(&conv.norm.shift[channel]));
          if (!conv.activation.empty()) v = activate(v, conv.activation[0], channel);
          std::memcpy(result + static_cast<size_t>(first + p) * conv.out_channels + channel, &v,
                      valid * sizeof(float));
        }
      }
    }
  }
}
