// See packed.hpp. Layers are checked, laid out for the lookup, cut into bands of rows and given to the threads.
#include "packed.hpp"

#include <algorithm>
#include <ctime>
#include <stdexcept>

#include "isa.hpp"
#include "threads.hpp"

namespace pixeldiff {
namespace {

// Where output `o` of a block sits among the block's bytes. Vectors of the lookup are split into even and odd bytes when
// their counts are widened, so each vector holds the first half of its outputs in even bytes.
int byte_of_output(int o, int vector_bytes) {
  if (vector_bytes == 1) return o;
  const int vector = o / vector_bytes, i = o % vector_bytes, half = vector_bytes / 2;
  return vector * vector_bytes + (i < half ? 2 * i : 2 * (i - half) + 1);
}

void resize_nibbles(BranchWeights& weights, int blocks, int rows, int row_nibbles) {
  weights.nibbles = rows * row_nibbles;
  weights.lines.assign(static_cast<size_t>(blocks) * weights.nibbles, {});
  const int parts = (weights.nibbles + kMostNibbles - 1) / kMostNibbles;
  // Lookups go by threes: chunks are multiples of three but for the last.
  const int step = parts ? ((weights.nibbles + parts - 1) / parts + 2) / 3 * 3 : 0;
  for (int first = 0; first < weights.nibbles; first += step) {
    weights.chunks.push_back({{}, static_cast<size_t>(first)});
    const int end = std::min(first + step, weights.nibbles);
    for (int next, at = first; at < end; at = next) {
      next = std::min(end, (at / row_nibbles + 1) * row_nibbles);
      weights.chunks.back().segments.push_back({at / row_nibbles, at % row_nibbles, next - at});
    }
  }
}

void set_nibble_bit(BranchWeights& weights, int output, int nibble, int bit, int vector_bytes) {
  auto& line = weights.lines[static_cast<size_t>(output / kBlock) * weights.nibbles + nibble];
  line.bytes[byte_of_output(output % kBlock, vector_bytes)] |= static_cast<uint8_t>(1 << bit);
}

void resize_words(BranchWeights& weights, int blocks, int bits) {
  weights.words = words_of(bits);
  weights.lines.assign(static_cast<size_t>(blocks) * weights.words * (kBlock / 8), {});
}

void set_word_bit(BranchWeights& weights, int output, int place) {
  const size_t word = static_cast<size_t>(output / kBlock) * weights.words + place / 64;
  const int group = output % kBlock / kGroup, i = output % kGroup;
  auto& line = weights.lines[word * (kBlock / 8) + 2 * group + i % 2];
  line.bytes[i / 2 * 8 + place % 64 / 8] |= static_cast<uint8_t>(1 << place % 8);
}

void set_activation(std::vector<Epilogue>& epilogue, int which, int count, const float* before, const float* slope,
                    const float* after) {
  for (int o = 0; o < count; ++o) {
    Epilogue::Activation& target = epilogue[o / kGroup].activation[which];
    target.before[o % kGroup] = before[o];
    target.slope[o % kGroup] = slope[o];
    target.after[o % kGroup] = after[o];
  }
}

void check(bool fine, const char* message) {
  if (!fine) throw std::invalid_argument(message);
}

std::vector<uint8_t> make_tables() {
  std::vector<uint8_t> bytes(16 * (kOutside + 1) * (kOutside + 1) + 16);
  const auto mismatches = [](int code, int w) { return code == kOutside ? 0 : __builtin_popcount(code ^ w); };
  uint8_t* aligned = bytes.data() + (16 - reinterpret_cast<uintptr_t>(bytes.data()) % 16) % 16;
  for (int b = 0; b <= kOutside; ++b) {
    for (int a = 0; a <= kOutside; ++a) {
      for (int w = 0; w < 16; ++w) *aligned++ = static_cast<uint8_t>(mismatches(a, w) | mismatches(b, w) << 4);
    }
  }
  return bytes;
}

}  // namespace

const uint8_t* pair_tables() {
  static const std::vector<uint8_t> bytes = make_tables();
  return bytes.data() + (16 - reinterpret_cast<uintptr_t>(bytes.data()) % 16) % 16;
}

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> all;
#if defined(__x86_64__) && defined(__GNUC__)
  all = {&avx512_popcount_kernels, &avx512_kernels, &avx2_kernels};
#elif defined(__aarch64__) && defined(__GNUC__)
  all = {&neon_kernels};
#endif
  all.push_back(&portable_kernels);
  all.erase(std::remove_if(all.begin(), all.end(), [](const Kernels* k) { return !k->supported(); }), all.end());
  return all;
}

const Kernels& choose_kernels() { return choose_isa(available_kernels()); }

double binary_peak(const Kernels& kernels) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    const double count = kernels.count(20000);
    best =
        std::max(best, count * CLOCKS_PER_SEC / static_cast<double>(std::max<std::clock_t>(1, std::clock() - start)));
  }
  return best;
}

BinaryConv::BinaryConv(int in_channels, int out_channels, int kernel_size, int stride, std::vector<PixelPair> pairs,
                       int differing, const uint8_t* plain_signs, const uint8_t* difference_signs,
                       const Kernels& kernels)
    : in_channels(in_channels),
      out_channels(out_channels),
      kernel_size(kernel_size),
      stride(stride),
      differing(differing),
      pairs(std::move(pairs)),
      epilogue(static_cast<size_t>(blocks()) * (kBlock / kGroup)),
      kernels(&kernels) {
  check(in_channels > 0 && out_channels > 0 && stride > 0, "channels and stride are positive");
  check(kernel_size > 0 && kernel_size % 2 == 1, "the kernel size is odd");
  check(differing >= 0 && differing <= in_channels, "differing channels are among the input channels");
  check(differing == 0 || (!this->pairs.empty() && this->pairs.size() <= 255), "there are 1 to 255 pixel pairs");
  const int taps = kernel_size * kernel_size, count = static_cast<int>(this->pairs.size());
  check(static_cast<int64_t>(in_channels) * std::max(taps, count) <= kMostProducts, "too many products per output");
  const int channels = plain_channels(), width = nibbles_of(channels), lanes = kernels.vector_bytes;
  if (channels && lanes) resize_nibbles(plain, blocks(), kernel_size, kernel_size * width);
  if (channels && !lanes) resize_words(plain, blocks(), channels * taps);
  difference.nibbles = 2 * differing * ((count + 7) / 8);
  if (differing && lanes) resize_nibbles(difference, blocks(), 1, difference.nibbles);
  if (differing && !lanes) resize_words(difference, blocks(), pair_bits() * count);
  if (!lanes) ones.assign(static_cast<size_t>(blocks()) * taps * kBlock, 0);
  for (int o = 0; o < out_channels; ++o) {
    for (int c = 0; c < channels; ++c) {
      for (int t = 0; t < taps; ++t) {
        if (!*plain_signs++) continue;
        if (lanes) {
          set_nibble_bit(plain, o, t * width + c / 4, c % 4, lanes);
        } else {
          set_word_bit(plain, o, t * channels + c);
          ++ones[(static_cast<size_t>(o / kBlock) * taps + t) * kBlock + o % kBlock];
        }
      }
    }
    for (int c = 0; c < differing; ++c) {
      for (int i = 0; i < count; ++i) {
        if (!*difference_signs++) continue;
        const int place = difference_place(c, i);
        if (lanes) {
          set_nibble_bit(difference, o, place / 4, place % 4, lanes);
        } else {
          set_word_bit(difference, o, 16 * (c / 16 * count + i) + c % 16);
        }
      }
    }
  }
}

void BinaryConv::set_norms(const float* difference_scale, const float* difference_shift, const float* plain_scale,
                           const float* plain_shift) {
  for (int o = 0; o < out_channels; ++o) {
    Epilogue& target = epilogue[o / kGroup];
    if (difference_scale) target.difference_scale[o % kGroup] = difference_scale[o];
    if (difference_shift) target.difference_shift[o % kGroup] = difference_shift[o];
    if (plain_scale) target.plain_scale[o % kGroup] = plain_scale[o];
    if (plain_shift) target.plain_shift[o % kGroup] = plain_shift[o];
  }
}

void BinaryConv::add_activation(const float* before, const float* slope, const float* after) {
  check(activations < 2, "there are one or two activations");
  set_activation(epilogue, activations++, out_channels, before, slope, after);
}

FloatConv::FloatConv(int in_channels, int out_channels, int kernel_size, int stride, const float* weight,
                     const float* scale, const float* shift, const Kernels& kernels)
    : in_channels(in_channels),
      out_channels(out_channels),
      kernel_size(kernel_size),
      stride(stride),
      epilogue(static_cast<size_t>(out_channels + kFloatBlock - 1) / kFloatBlock * (kFloatBlock / kGroup)),
      kernels(&kernels) {
  check(in_channels > 0 && out_channels > 0 && stride > 0, "channels and stride are positive");
  check(kernel_size > 0 && kernel_size % 2 == 1, "the kernel size is odd");
  const int taps = kernel_size * kernel_size, depth = taps * in_channels;
  weights.assign(static_cast<size_t>(out_channels + kFloatBlock - 1) / kFloatBlock * depth * kFloatBlock, 0.0f);
  for (int o = 0; o < out_channels; ++o) {
    epilogue[o / kGroup].plain_scale[o % kGroup] = scale[o];
    epilogue[o / kGroup].plain_shift[o % kGroup] = shift[o];
    for (int c = 0; c < in_channels; ++c) {
      for (int t = 0; t < taps; ++t) {
        const size_t row = static_cast<size_t>(o / kFloatBlock) * depth + t * in_channels + c;
        weights[row * kFloatBlock + o % kFloatBlock] = *weight++;
      }
    }
  }
}

void FloatConv::set_activation(const float* before, const float* slope, const float* after) {
  pixeldiff::set_activation(epilogue, 0, out_channels, before, slope, after);
  activated = true;
}

void run(const BinaryConv& conv, const BinaryCall& call, int threads) {
  const int rows = steps(call.size.height, conv.stride), blocks = conv.blocks();
  // Threads share either rows or output blocks, whichever divides more evenly; entries are then built once per thread.
  const auto waste = [&](int units) { return (units + threads - 1) / threads * threads / static_cast<double>(units); };
  const bool by_rows = call.size.count >= threads || waste(rows) <= waste(blocks);
  // Two bands per thread where there are rows enough, so that a thread held up by other work delays less.
  const int wanted = by_rows && rows >= 8 * threads && threads > 1 ? 2 * threads : threads;
  const int parts = std::max(1, std::min(wanted, by_rows ? rows : blocks));
  const int per_image = call.size.count >= threads ? 1 : parts;
  parallel(call.size.count * per_image, threads, [&](int task) {
    const int n = task / per_image, part = task % per_image;
    const int y0 = by_rows ? rows * part / per_image : 0, y1 = by_rows ? rows * (part + 1) / per_image : rows;
    const int b0 = by_rows ? 0 : blocks * part / per_image, b1 = by_rows ? blocks : blocks * (part + 1) / per_image;
    if (call.shortcut_rows) {
      static thread_local std::vector<float> rows;
      const size_t floats = static_cast<size_t>(y1 - y0) * steps(call.size.width, conv.stride) * conv.out_channels;
      if (rows.size() < floats) rows.resize(floats);
      call.shortcut_rows(y0, y1, b0, b1, rows.data());
      BinaryCall added = call;
      added.shortcut = rows.data();
      added.first_shortcut_row = y0;
      conv.kernels->binary_band(conv, added, n, y0, y1, b0, b1);
    } else {
      conv.kernels->binary_band(conv, call, n, y0, y1, b0, b1);
    }
  });
}

void run(const FloatConv& conv, MapSize size, const float* x, float* y, int threads) {
  const int rows = steps(size.height, conv.stride), blocks = conv.blocks();
  const bool by_rows = size.count * rows >= threads;  // a linear layer has one row
  const int parts = by_rows ? std::min(threads > 1 ? 4 * threads : 1, rows) : std::min(threads, blocks);
  parallel(size.count * parts, threads, [&](int task) {
    const int n = task / parts, part = task % parts;
    const auto from = [&](int units, int k) { return units * k / parts; };
    const int y0 = by_rows ? from(rows, part) : 0, y1 = by_rows ? from(rows, part + 1) : rows;
    const size_t row = static_cast<size_t>(n) * rows + y0;
    conv.kernels->float_band(conv, size, x + static_cast<size_t>(n) * size.height * size.width * conv.in_channels,
                             y + row * steps(size.width, conv.stride) * conv.out_channels, y0, y1,
                             by_rows ? 0 : from(blocks, part), by_rows ? blocks : from(blocks, part + 1));
  });
}

void pack_signs(const Kernels& kernels, const float* x, size_t pixels, int channels, uint64_t* words) {
  kernels.pack_signs(x, pixels, channels, words);
}

void pack_differences(const BinaryConv& conv, const float* x, MapSize size, uint64_t* words) {
  const int rows = steps(size.height, conv.stride), columns = steps(size.width, conv.stride);
  const int nibbles = conv.difference.nibbles, pairs = static_cast<int>(conv.pairs.size());
  std::vector<uint16_t> entries(static_cast<size_t>(columns + 1) / 2 * nibbles + 16);
  const size_t image = static_cast<size_t>(size.height) * size.width * conv.in_channels;
  const size_t count = words_of(conv.difference_bits());
  for (int n = 0; n < size.count; ++n) {
    for (int y = 0; y < rows; ++y) {
      conv.kernels->difference_row(conv, x + n * image, size, y, entries.data());
      for (int column = 0; column < columns; ++column, words += count) {
        std::fill_n(words, count, 0);
        const uint16_t* run = entries.data() + static_cast<size_t>(column / 2) * nibbles;
        for (int bit = 0; bit < conv.difference_bits(); ++bit) {
          const int place = conv.difference_place(bit / pairs, bit % pairs), both = run[place / 4] / 16;
          const int code = column % 2 ? both / (kOutside + 1) : both % (kOutside + 1);
          words[bit / 64] |= static_cast<uint64_t>(code >> place % 4 & 1) << bit % 64;
        }
      }
    }
  }
}

void average_pool(const float* x, MapSize size, int channels, float* y, int threads) {
  const int rows = steps(size.height, 2), columns = steps(size.width, 2);
  const Kernels& kernels = choose_kernels();
  parallel(size.count * rows, threads, [&](int task) {
    const float* image = x + static_cast<size_t>(task / rows) * size.height * size.width * channels;
    kernels.average_row(image, size, channels, task % rows, y + static_cast<size_t>(task) * columns * channels);
  });
}

void max_pool(const float* x, MapSize size, int channels, float* y, int threads) {
  const int rows = steps(size.height, 2), columns = steps(size.width, 2);
  const size_t row_size = static_cast<size_t>(size.width) * channels;
  const Kernels& kernels = choose_kernels();
  parallel(size.count * rows, threads, [&](int task) {
    const float* image = x + static_cast<size_t>(task / rows) * size.height * row_size;
    const int row = task % rows * 2;
    const float* inputs[3];
    int count = 0;
    for (int r = std::max(row - 1, 0); r <= std::min(row + 1, size.height - 1); ++r) {
      inputs[count++] = image + r * row_size;
    }
    kernels.max_row(inputs, count, size.width, channels, y + static_cast<size_t>(task) * columns * channels);
  });
}

void replicate(const float* x, size_t pixels, int channels, int copies, int parts, float* y) {
  const int width = channels / parts;
  for (size_t p = 0; p < pixels; ++p, x += channels) {
    for (int i = 0; i < copies; ++i, y += channels) std::copy(x, x + channels, y);
    for (int c = 0; c < width; ++c) y[c] = 0.0f + x[c];
    for (int part = 1; part < parts; ++part) {
      for (int c = 0; c < width; ++c) y[c] += x[part * width + c];
    }
    for (int c = 0; parts > 1 && c < width; ++c) y[c] /= static_cast<float>(parts);
    y += width;
  }
}

}  // namespace pixeldiff
