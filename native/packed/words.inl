// Counting bits in words, the work of one thread. The patches of all pixels of a band are made first, as [word][pixel];
// then every block of outputs meets them.

using Word8 = __m512i;  // the same word of eight pixels, or of eight outputs

constexpr int kWordTile = 2;               // pixels whose sums with a block stay in registers
constexpr int kBlockVectors = kBlock / 8;  // of words
constexpr ptrdiff_t kWordSlack = 16;       // words beyond a row that whole vectors read or write

typedef uint16_t Quarter __attribute__((may_alias));  // of a word

// Buffers that a thread keeps between calls.
struct Scratch {
  std::vector<uint64_t> words, row, plain, difference;
  std::vector<float> window;
  alignas(64) Count sums[2][kWordTile][kBlock];
};

inline Word8 load_words(const uint64_t* p) { return _mm512_loadu_si512(p); }

// Eight words, `step` apart.
inline Word8 load_words(const uint64_t* p, ptrdiff_t step) {
  if (step == 1) return load_words(p);
  const Word8 places = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(step));
  return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), 0xff, places, p, sizeof(uint64_t));
}

// Puts bits one behind the other, for eight pixels at once, into words that are `step` apart.
class Joined {
 public:
  Joined(uint64_t* target, size_t step) : target_(target), step_(step) {}

  // The lowest `count` bits; higher ones are 0.
  void add(Word8 bits, int count) {
    words_ = _mm512_or_si512(words_, _mm512_maskz_sll_epi64(0xff, bits, _mm_cvtsi32_si128(used_)));
    used_ += count;
    if (used_ < 64) return;
    store();
    used_ -= 64;
    words_ = _mm512_maskz_srl_epi64(0xff, bits, _mm_cvtsi32_si128(count - used_));  // by 64: nothing is left
  }
  void finish() {
    if (used_) store();
  }

 private:
  void store() {
    _mm512_storeu_si512(target_, words_);
    target_ += step_;
  }

  uint64_t* target_;
  size_t step_;
  Word8 words_ = _mm512_setzero_si512();
  int used_ = 0;
};

// --- counting --------------------------------------------------------------------------------------------------------

// Mismatches of some pixels, whose words lie `plane` apart, with a block of outputs.
template <int kPixels>
void count_mismatches(const uint64_t* patches, size_t plane, const BranchWeights& weights, int block,
                      Count (*sums)[kBlock]) {
  Word8 total[kPixels][kBlockVectors];
  const auto* line = weights.lines.data() + static_cast<size_t>(block) * weights.words * kBlockVectors;
  const auto add_word = [&](auto first) {
    Word8 bits[kPixels];
    for (int p = 0; p < kPixels; ++p) bits[p] = _mm512_set1_epi64(static_cast<long long>(patches[p]));
    for (int v = 0; v < kBlockVectors; ++v) {
      const Word8 weight = _mm512_load_si512(line[v].bytes);
      for (int p = 0; p < kPixels; ++p) {
        const Word8 count = _mm512_popcnt_epi64(_mm512_xor_si512(weight, bits[p]));
        total[p][v] = first ? count : _mm512_add_epi64(total[p][v], count);
      }
    }
    patches += plane;
    line += kBlockVectors;
  };
  add_word(std::true_type());
  for (int k = 1; k < weights.words; ++k) add_word(std::false_type());
  for (int p = 0; p < kPixels; ++p) {
    for (int v = 0; v < kBlockVectors; v += 2) {  // the sums of even and of odd outputs, one beside the other
      const Word8 both = _mm512_mask_shuffle_epi32(total[p][v], 0xaaaa, total[p][v + 1], _MM_PERM_CCAA);
      _mm512_store_si512(sums[p] + 8 * v, both);
    }
  }
}

struct WordBand : Outputs {
  Scratch& scratch;
  size_t pixels, plane;  // of the band; words from one word of a patch to the next

  WordBand(const Outputs& outputs, Scratch& scratch) : Outputs(outputs), scratch(scratch) {
    pixels = static_cast<size_t>(rows) * columns;
    plane = pixels + kWordSlack;
  }

  // --- plain pixels ---

  int row_words() const { return words_of(conv.plain_channels()); }
  size_t row_plane() const { return call.size.width + 2 * (conv.kernel_size / 2) + 8 * conv.stride + kWordSlack; }

  // The plain channels' bits of one input row, [word][column], zeros beside and outside the map.
  void plain_row(int row, uint64_t* target) {
    const int words = words_of(conv.in_channels), count = row_words(), radius = conv.kernel_size / 2;
    const int skipped = conv.differing / 64, shift = conv.differing % 64, last = conv.plain_channels() % 64;
    std::fill_n(target, count * row_plane(), uint64_t{0});
    if (row < 0 || row >= call.size.height) return;
    const size_t pixel = (static_cast<size_t>(n) * call.size.height + row) * call.size.width;
    const uint64_t* bits = call.bits ? call.bits + pixel * words : nullptr;
    if (!bits) {
      uint64_t* packed = room(scratch.words, static_cast<size_t>(call.size.width) * words);
      pack_signs_here(call.x + pixel * conv.in_channels, call.size.width, conv.in_channels, packed);
      bits = packed;
    }
    for (int w = 0; w < count; ++w) {
      const uint64_t mask = last && w == count - 1 ? (uint64_t{1} << last) - 1 : ~uint64_t{0};
      const uint64_t* in = bits + skipped + w;
      const bool joined = shift && skipped + w + 1 < words;
      uint64_t* out = target + w * row_plane() + radius;
      for (int x = 0; x < call.size.width; ++x, in += words) {
        uint64_t word = *in >> shift;
        if (joined) word |= in[1] << (64 - shift);
        out[x] = word & mask;
      }
    }
  }

  // Patches of one row of outputs from the rows of bits under its kernel; whole vectors write beyond it.
  void plain_patches(const uint64_t* input, size_t row_size, uint64_t* target) const {
    const int channels = conv.plain_channels(), count = row_words();
    for (int x = 0; x < columns; x += 8) {
      Joined patch(target + x, plane);
      for (int ky = 0; ky < conv.kernel_size; ++ky) {
        for (int kx = 0; kx < conv.kernel_size; ++kx) {
          const uint64_t* words = input + ky * row_size + static_cast<ptrdiff_t>(x) * conv.stride + kx;
          for (int w = 0; w < count; ++w) {
            patch.add(load_words(words + w * row_plane(), conv.stride), std::min(64, channels - 64 * w));
          }
        }
      }
      patch.finish();
    }
  }

  // --- differences ---

  // Patches of one row of outputs from the window's rows around it: the signs of sixteen channels of one pair after the
  // other, all pairs of the first channels before those of the next.
  template <bool kOneMinus, int kPairs>
  void compare_pairs(const Window& window, const float* row, uint64_t* target) const {
    const ptrdiff_t step = static_cast<ptrdiff_t>(conv.stride) * window.depth;
    const int pairs = kPairs ? kPairs : static_cast<int>(conv.pairs.size());
    const ptrdiff_t *plus = window.plus, *minus = window.minus;
    const int parts = conv.pair_bits() / 16;
    // The place of a part among the quarters of words; a word's first is its lowest.
    const auto quarters = [&](int at) { return reinterpret_cast<Quarter*>(target + at / 4 * plane) + at % 4; };
    const float* centre = row + static_cast<size_t>(window.reach) * window.depth;
    for (int part = 0; part < parts; ++part, centre += 16) {
      const auto lanes = static_cast<__mmask16>((1u << std::min(16, conv.differing - 16 * part)) - 1);
      for (int first = 0; first < pairs; first += 8) {
        const int count = kPairs ? kPairs : std::min(8, pairs - first);
        const float *more[8], *less[8];
        Quarter* out[8];
        for (int i = 0; i < count; ++i) {
          more[i] = centre + plus[first + i];
          less[i] = centre + minus[first + i];
          out[i] = quarters(part * pairs + first + i);
        }
        for (ptrdiff_t x = 0, at = 0; x < columns; ++x, at += step) {
          const __m512 shared = _mm512_loadu_ps(less[0] + at);
#pragma GCC unroll 8
          for (int i = 0; i < count; ++i) {
            const __m512 other = kOneMinus ? shared : _mm512_loadu_ps(less[i] + at);
            out[i][4 * x] = _mm512_mask_cmp_ps_mask(lanes, _mm512_loadu_ps(more[i] + at), other, _CMP_GE_OQ);
          }
        }
      }
    }
    for (int at = parts * pairs; at % 4; ++at) {
      for (int x = 0; x < columns; ++x) quarters(at)[4 * x] = 0;
    }
  }

  void difference_patches(const Window& window, const float* row, uint64_t* target) const {
    const bool eight = conv.pairs.size() == 8;  // as all kinds of 3x3 have
    if (window.one_minus && eight) return compare_pairs<true, 8>(window, row, target);
    if (window.one_minus) return compare_pairs<true, 0>(window, row, target);
    if (eight) return compare_pairs<false, 8>(window, row, target);
    return compare_pairs<false, 0>(window, row, target);
  }

  // One walk over the input rows: their bits, the window, and the patches of every row that has all it needs.
  void prepare() {
    const Window window(conv, call.size);
    const int radius = conv.kernel_size / 2, reach = window.reach, margin = std::max(radius, reach);
    const int top = y0 * conv.stride, bottom = top + (rows - 1) * conv.stride, input_rows = bottom - top + 1;
    const float* image = call.x + static_cast<size_t>(n) * call.size.height * call.size.width * conv.in_channels;
    const size_t row_size = row_words() * row_plane();
    uint64_t* bits = room(scratch.row, (input_rows + 2 * radius) * row_size);
    uint64_t* plain = room(scratch.plain, conv.plain.words * plane);
    uint64_t* difference = room(scratch.difference, conv.difference.words * plane);
    float* copied = aligned(room(scratch.window, (input_rows + 2 * reach) * window.row_size() + 2 * kLine));
    for (int row = top - margin; row <= bottom + margin; ++row) {
      if (conv.plain.words && row >= top - radius && row <= bottom + radius) {
        plain_row(row, bits + (row - top + radius) * row_size);
        const int first = row - radius - top;  // the row of outputs that has all its rows now
        if (first >= 0 && first % conv.stride == 0) {
          plain_patches(bits + first * row_size, row_size, plain + static_cast<size_t>(first / conv.stride) * columns);
        }
      }
      if (!conv.differing || row < top - reach || row > bottom + reach) continue;
      window.copy_row(image, row, copied + (row - top + reach) * window.row_size());
      const int centre = row - reach - top;
      if (centre >= 0 && centre % conv.stride == 0) {
        difference_patches(window, copied + (centre + reach) * window.row_size(),
                           difference + static_cast<size_t>(centre / conv.stride) * columns);
      }
    }
  }

  // Takes off what weights outside the map have counted: bits there are 0.
  void correct_border(int top, int left, int block, Count* sums) const {
    const int size = conv.kernel_size;
    const int32_t* ones = conv.ones.data() + static_cast<size_t>(block) * size * size * kBlock;
    for (int ky = 0; ky < size; ++ky) {
      for (int kx = 0; kx < size; ++kx, ones += kBlock) {
        const int row = top + ky, column = left + kx;
        if (row >= 0 && row < call.size.height && column >= 0 && column < call.size.width) continue;
        for (int o = 0; o < kBlock; ++o) sums[o] -= ones[o];
      }
    }
  }

  template <int kPixels>
  void compute_tile(size_t first, int y, int x, int block, const Block& place) {
    fetch((static_cast<size_t>(n) * height + y0) * columns + first, kPixels, place);
    if (conv.difference.words) {
      count_mismatches<kPixels>(scratch.difference.data() + first, plane, conv.difference, block, scratch.sums[0]);
    }
    if (conv.plain.words)
      count_mismatches<kPixels>(scratch.plain.data() + first, plane, conv.plain, block, scratch.sums[1]);
    const size_t pixel = (static_cast<size_t>(n) * height + y0) * columns + first;
    const Count *difference = scratch.sums[0][0], *plain = scratch.sums[1][0];
    const int size = conv.kernel_size, radius = size / 2;
    const bool inner_row = y * conv.stride >= radius && y * conv.stride + radius < call.size.height;
    if (inner_row && x * conv.stride >= radius && (x + kPixels - 1) * conv.stride + radius < call.size.width) {
      return finish_pixels(pixel, kPixels, size * size, place, difference, plain);
    }
    for (int p = 0; p < kPixels; ++p, difference += kBlock, plain += kBlock) {
      if (conv.plain.words)
        correct_border(y * conv.stride - radius, x * conv.stride - radius, block, scratch.sums[1][p]);
      const int inner = inside(y * conv.stride, call.size.height) * inside(x * conv.stride, call.size.width);
      finish_pixels(pixel + p, 1, inner, place, difference, plain);
      if (++x == columns) {
        x = 0;
        ++y;
      }
    }
  }

  // As many blocks as have their weights in the nearest cache take a tile one after the other: its results then lie side
  // by side.
  void compute(int b0, int b1) {
    constexpr int kCache = 24 * 1024;
    const int bytes = (conv.plain.words + conv.difference.words) * kBlock * static_cast<int>(sizeof(uint64_t));
    const int together = std::max(1, kCache / bytes);
    for (; b0 < b1; b0 += together) {
      const int last = std::min(b0 + together, b1);
      size_t first = 0;
      int y = y0, x = 0;
      const auto next = [&](int count) {
        first += count;
        for (x += count; x >= columns; x -= columns) ++y;
      };
      for (; first + kWordTile <= pixels; next(kWordTile)) {
        for (int block = b0; block < last; ++block) compute_tile<kWordTile>(first, y, x, block, block_at(block));
      }
      for (; first < pixels; next(1)) {
        for (int block = b0; block < last; ++block) compute_tile<1>(first, y, x, block, block_at(block));
      }
    }
  }
};

void binary_band_here(const BinaryConv& conv, const BinaryCall& call, int n, int y0, int y1, int b0, int b1) {
  static thread_local Scratch scratch;
  WordBand band(Outputs(conv, call, n, y0, y1), scratch);
  band.prepare();
  band.compute(b0, b1);
}

double count_here(int rounds) {
  constexpr int kWords = 36;  // 256 channels, 3x3
  BranchWeights weights;
  weights.words = kWords;
  weights.lines.assign(kWords * kBlockVectors, {});
  const std::vector<uint64_t> patches(kWords * kWordTile, 0x0123456789abcdef);
  alignas(64) Count sums[kWordTile][kBlock];
  double total = 0;
  for (int i = 0; i < rounds; ++i) {
    count_mismatches<kWordTile>(patches.data(), kWordTile, weights, 0, sums);
    asm volatile("" : : "r"(sums) : "memory");  // or the rounds might be found to be all the same
    total += sums[0][0];
  }
  return total > 0 ? 64.0 * kWords * kBlock * kWordTile * rounds : 0;
}
