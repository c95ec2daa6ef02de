// The kernels for NEON (AArch64).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers.hpp"

#if defined(__aarch64__) && defined(__GNUC__)
#include <arm_neon.h>

namespace pixeldiff::pidinet {
namespace {

struct Isa {
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  static constexpr int lanes = 4, tile = 6, blocks = 1;  // 24 sums of 32 registers
  static V repeat(float v) { return (V)vdupq_n_f32(v); }
  static V fma(V a, V b, V c) { return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
  static V max(V a, V b) { return (V)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
  static V pin(V v) {
    asm("" : "+w"(v));
    return v;
  }
  static V even(V a, V b) { return (V)vuzp1q_f32((float32x4_t)a, (float32x4_t)b); }
  static V odd(V a, V b) { return (V)vuzp2q_f32((float32x4_t)a, (float32x4_t)b); }
  static V gather(const float* p, I i) { return V{p[i[0]], p[i[1]], p[i[2]], p[i[3]]}; }
};

#include "rows.inl"

bool supported() { return true; }

}  // namespace

const Kernels neon_kernels = {
    "neon", supported, stem_here, block_here, pool_here, dilate_here, attend_here, fuse_here, multiply_adds_here,
};

}  // namespace pixeldiff::pidinet
#endif
