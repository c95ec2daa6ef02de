// The packed kernels for NEON (AArch64).
#include "packed.hpp"

#if defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace pixeldiff {
namespace {

#include "lookup.inl"

struct Neon {
  using type = uint8x16_t;
  static constexpr int bytes = 16;
  static type zero() { return vdupq_n_u8(0); }
  static type load(const uint8_t* p) { return vld1q_u8(p); }
  static type table(const uint8_t* p) { return vld1q_u8(p); }
  static type lookup(type table, type indices) { return vqtbl1q_u8(table, indices); }
  static type add(type a, type b) { return vaddq_u8(a, b); }
  static type high(type v) { return vshrq_n_u8(v, 4); }
  static type minus_sixteen_times(type total, type high) { return vsubq_u8(total, vshlq_n_u8(high, 4)); }
  // Even bytes are the first half of the outputs, odd bytes the second: weights are laid out for that.
  template <bool kAdd>
  static void split(type counts, uint16_t* sums) {
    const uint16x8_t words = vreinterpretq_u16_u8(counts);
    const uint16x8_t even = vandq_u16(words, vdupq_n_u16(255)), odd = vshrq_n_u16(words, 8);
    vst1q_u16(sums, kAdd ? vaddq_u16(vld1q_u16(sums), even) : even);
    vst1q_u16(sums + 8, kAdd ? vaddq_u16(vld1q_u16(sums + 8), odd) : odd);
  }
};

struct Halves {
  float32x4_t low, high;

  explicit Halves(Floats v) { std::memcpy(this, &v, sizeof(v)); }
  Halves(float32x4_t low, float32x4_t high) : low(low), high(high) {}
  Floats join() const {
    Floats v;
    std::memcpy(&v, this, sizeof(v));
    return v;
  }
};

struct Isa : Lookup<Neon> {
  using Wide = Floats;
  using Count = uint16_t;
  static constexpr int wide = 8, float_blocks = 1;
  static unsigned at_least(Floats a, Floats b) {
    const uint32x4_t places = {1, 2, 4, 8};
    const Halves x(a), y(b);
    return vaddvq_u32(vandq_u32(vcgeq_f32(x.low, y.low), places)) |
           vaddvq_u32(vandq_u32(vcgeq_f32(x.high, y.high), places)) << 4;
  }
  static Entries alternate(Ints a, Ints b) {
    const Ints low = Ints{} + 0xffff;
    return (Entries)((a & low) | (b & ~low));
  }
  static Floats widen(const uint16_t* counts) {
    const uint16x8_t v = vld1q_u16(counts);
    return Halves(vcvtq_f32_u32(vmovl_u16(vget_low_u16(v))), vcvtq_f32_u32(vmovl_high_u16(v))).join();
  }
  static void expand(uint64_t word, uint8_t* codes) {
    const uint8x8_t v = vcreate_u8(word), low = vand_u8(v, vdup_n_u8(15)), high = vshr_n_u8(v, 4);
    vst1q_u8(codes, vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
  }
  static Floats repeat(float v) { return Floats{v, v, v, v, v, v, v, v}; }
  static Floats multiply_add(Floats a, Floats b, Floats c) {
    const Halves x(a), y(b), z(c);
    return Halves(vfmaq_f32(z.low, x.low, y.low), vfmaq_f32(z.high, x.high, y.high)).join();
  }
};

#include "band.inl"
#include "nibbles.inl"

bool supported() { return true; }

}  // namespace

const Kernels neon_kernels = {
    "neon",           supported,       Neon::bytes,      pack_signs_here, difference_row_here,
    binary_band_here, float_band_here, average_row_here, max_row_here,    count_here,
};

}  // namespace pixeldiff
#endif
