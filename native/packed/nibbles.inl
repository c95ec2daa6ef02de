// Counting by lookup of nibbles, the work of one thread. Besides what band.inl needs, `Isa` has
//
//   accumulate(tables, entries, runs, end, weights, fresh, sums)         mismatches of a pair with one or two blocks of
//                                                                        outputs, written to sums if fresh, else added
//   expand(word, codes)                                                  64 bits -> 16 nibbles, one per byte

constexpr int kPairSums = 2 * kBlock;  // two pixels
constexpr int kTilePairs = 16;         // pixel pairs that share one walk over a block's weights

// --- entries -------------------------------------------------------------------------------------------------------

// Buffers that a thread keeps between calls.
struct Scratch {
  std::vector<uint8_t> codes;
  std::vector<uint64_t> words;
  std::vector<float> window;
  std::vector<uint16_t> plain, difference;
  std::vector<Run> runs;
  alignas(64) Count sums[2][2][kTilePairs * kPairSums];  // [branch][block]
};

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

// --- one band ------------------------------------------------------------------------------------------------------

struct Band : Outputs {
  Scratch& scratch;
  int pairs;              // per row of outputs
  int entry_columns;      // columns of entries per input row
  size_t plain_row_size;  // entries per input row

  Band(const Outputs& outputs, Scratch& scratch) : Outputs(outputs), scratch(scratch) {
    pairs = (columns + 1) / 2;
    entry_columns = (pairs - 1) * 2 * conv.stride + conv.kernel_size;
    plain_row_size = static_cast<size_t>(entry_columns) * nibbles_of(conv.plain_channels());
  }

  void prepare() {
    const Window window(conv, call.size);
    const int radius = conv.kernel_size / 2, reach = window.reach, margin = std::max(radius, reach);
    const int top = y0 * conv.stride, bottom = top + (rows - 1) * conv.stride, input_rows = bottom - top + 1;
    const float* image = call.x + static_cast<size_t>(n) * call.size.height * call.size.width * conv.in_channels;
    const size_t length = static_cast<size_t>(pairs) * conv.difference.nibbles;
    uint16_t* plain = room(scratch.plain, (input_rows + 2 * radius) * plain_row_size);
    float* copied = aligned(room(scratch.window, (input_rows + 2 * reach) * window.row_size() + kLine));
    uint16_t* difference = room(scratch.difference, rows * length + 16);
    // One walk over the map, which is larger than the nearest caches, and over the window, which may be.
    for (int row = top - margin; row <= bottom + margin; ++row) {
      if (conv.plain.nibbles && row >= top - radius && row <= bottom + radius) {
        plain_row(conv, call, n, row, entry_columns, scratch, plain + (row - top + radius) * plain_row_size);
      }
      if (!conv.differing || row < top - reach || row > bottom + reach) continue;
      window.copy_row(image, row, copied + (row - top + reach) * window.row_size());
      const int centre = row - reach - top;  // the row that has all its neighbours now
      if (centre >= 0 && centre % conv.stride == 0) {
        const size_t y = centre / conv.stride;
        difference_row(window, copied + (centre + reach) * window.row_size(), difference + y * length);
      }
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
                        Count (*sums)[kTilePairs * kPairSums]) {
    const uint8_t* tables = pair_tables();
    const BranchWeights::Line* lines[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      lines[b] = weights.lines.data() + static_cast<size_t>(block + b) * weights.nibbles;
    }
    const uint16_t* entries[kTilePairs];
    for (int i = 0; i < count; ++i) entries[i] = plain ? plain_run(first + i) : difference_run(first + i);
    bool fresh = true;
    for (const Chunk& chunk : weights.chunks) {
      scratch.runs.clear();
      for (const Segment& s : chunk.segments) {
        scratch.runs.push_back({s.row * plain_row_size + s.column, static_cast<size_t>(s.nibbles)});
      }
      const Run *runs = scratch.runs.data(), *end = runs + scratch.runs.size();
      const uint8_t* bytes[kBlocks];
      for (int b = 0; b < kBlocks; ++b) bytes[b] = lines[b][chunk.line].bytes;
      for (int i = 0; i < count; ++i) {
        Count* targets[kBlocks];
        for (int b = 0; b < kBlocks; ++b) targets[b] = sums[b] + i * kPairSums;
        Isa::template accumulate<kBlocks>(tables, entries[i], runs, end, bytes, fresh, targets);
      }
      fresh = false;
    }
  }

  template <int kBlocks>
  void compute_tile(int first, int count, int block) {
    if (conv.difference.nibbles) {
      count_mismatches<kBlocks>(conv.difference, false, first, count, block, scratch.sums[0]);
    }
    if (conv.plain.nibbles) count_mismatches<kBlocks>(conv.plain, true, first, count, block, scratch.sums[1]);
    int y = y0 + first / pairs, x = first % pairs * 2;
    for (int i = 0; i < 2 * count; ++i) {
      for (int b = 0; b < kBlocks && x < columns; ++b) {
        finish_pixel(y, x, block_at(block + b), scratch.sums[0][b] + i * kBlock, scratch.sums[1][b] + i * kBlock);
      }
      if (++x == 2 * pairs) {
        x = 0;
        ++y;
      }
    }
  }

  void compute(int b0, int b1) {
    const int total = rows * pairs;
    for (int first = 0; first < total; first += kTilePairs) {
      const int count = std::min(kTilePairs, total - first);
      int block = b0;
      for (; block + 2 <= b1; block += 2) compute_tile<2>(first, count, block);
      if (block < b1) compute_tile<1>(first, count, block);
    }
  }
};

void binary_band_here(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int y1, int b0, int b1) {
  static thread_local Scratch scratch;
  Band band(Outputs(conv, call, n, y0, y1), scratch);
  band.prepare();
  band.compute(b0, b1);
}

double count_here(int rounds) {
  constexpr int kNibbles = kMostNibbles;
  const std::vector<BranchWeights::Line> lines(2 * kNibbles);
  const std::vector<uint16_t> entries(kNibbles, 16 * (5 + 10 * (kOutside + 1)));
  const Run run{0, kNibbles};
  const uint8_t* weights[2] = {lines[0].bytes, lines[kNibbles].bytes};
  alignas(64) Count sums[2][kPairSums];
  Count* targets[2] = {sums[0], sums[1]};
  double total = 0;
  for (int i = 0; i < rounds; ++i) {
    Isa::accumulate<2>(pair_tables(), entries.data(), &run, &run + 1, weights, true, targets);
    asm volatile("" : : "r"(sums) : "memory");  // or the rounds might be found to be all the same
    total += sums[0][0];
  }
  return total > 0 ? 4.0 * kNibbles * 2 * kPairSums * rounds : 0;
}
