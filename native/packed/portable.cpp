// The packed kernels in plain C++: the baseline of every machine and the specification of the others.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "packed.hpp"

namespace pixeldiff {
namespace {

// a * b + c with one rounding, without the library's fma: that may be slow. The product is exact in double, and a sum
// rounded to odd there is rounded right when it becomes a float (Boldo and Melquiond, 2008).
float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c;
  const double other = sum - product, error = (product - (sum - other)) + (c - other);
  int64_t bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  if (error != 0 && bits % 2 == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  double odd;
  std::memcpy(&odd, &bits, sizeof(odd));
  return static_cast<float>(odd);
}

struct Isa {
  using Wide = Floats;
  using Count = uint16_t;
  static constexpr int wide = 8, float_blocks = 1;
  // Mismatches of both pixels of one pair; the loops over a block become whatever vectors the compiler has.
  static void count(const uint16_t* entries, const uint8_t* weights, int nibbles, uint16_t* sums) {
    uint8_t first[kBlock] = {}, second[kBlock] = {};
    for (int k = 0; k < nibbles; ++k, weights += kBlock) {
      const int code = entries[k] / 16, a = code % (kOutside + 1), b = code / (kOutside + 1);
      add_mismatches(weights, a, first);
      add_mismatches(weights, b, second);
    }
    for (int o = 0; o < kBlock; ++o) sums[o] = static_cast<uint16_t>(sums[o] + first[o]);
    for (int o = 0; o < kBlock; ++o) sums[kBlock + o] = static_cast<uint16_t>(sums[kBlock + o] + second[o]);
  }
  static void add_mismatches(const uint8_t* weights, int code, uint8_t* counts) {
    const uint8_t mask = code == kOutside ? 0 : 15;
    for (int o = 0; o < kBlock; ++o) {
      const uint8_t differing = static_cast<uint8_t>((weights[o] ^ code) & mask);
      const uint8_t halves = static_cast<uint8_t>(differing - ((differing >> 1) & 5));
      counts[o] = static_cast<uint8_t>(counts[o] + (halves & 3) + (halves >> 2));
    }
  }
  template <int kBlocks>
  static void accumulate(const uint8_t*, const uint16_t* entries, const Run* runs, const Run* end,
                         const uint8_t* const (&weights)[kBlocks], bool fresh, uint16_t* const (&sums)[kBlocks]) {
    for (int b = 0; b < kBlocks; ++b) {
      if (fresh) std::fill_n(sums[b], 2 * kBlock, uint16_t{0});
      const uint8_t* line = weights[b];
      for (const Run* run = runs; run < end; line += run++->nibbles * kBlock) {
        count(entries + run->offset, line, static_cast<int>(run->nibbles), sums[b]);
      }
    }
  }
  static unsigned at_least(Floats a, Floats b) {
    unsigned mask = 0;
    for (int i = 0; i < 8; ++i) mask |= static_cast<unsigned>(a[i] >= b[i]) << i;
    return mask;
  }
  static Entries alternate(Ints a, Ints b) {
    const Ints low = Ints{} + 0xffff;
    return (Entries)((a & low) | (b & ~low));
  }
  static Floats widen(const uint16_t* counts) {
    return __builtin_convertvector(__builtin_convertvector(*reinterpret_cast<const Shorts*>(counts), Ints), Floats);
  }
  static void expand(uint64_t word, uint8_t* codes) {
    for (int i = 0; i < 16; ++i) codes[i] = (word >> (4 * i)) & 15;
  }
  static Floats repeat(float v) { return Floats{v, v, v, v, v, v, v, v}; }
  static Floats multiply_add(Floats a, Floats b, Floats c) {
    for (int i = 0; i < kLanes; ++i) c[i] = fused(a[i], b[i], c[i]);
    return c;
  }
};

#include "band.inl"
#include "nibbles.inl"

bool supported() { return true; }

}  // namespace

const Kernels portable_kernels = {
    "portable",       supported,    1,          pack_signs_here, difference_row_here, binary_band_here, float_band_here,
    average_row_here, max_row_here, count_here,
};

}  // namespace pixeldiff
