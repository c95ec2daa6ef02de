// The kernels for AVX-512 (F, VL).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx2,fma")
#endif

namespace pixeldiff::pidinet {
namespace {

struct Isa {
  typedef float V __attribute__((vector_size(64)));
  typedef int32_t I __attribute__((vector_size(64)));
  static constexpr int lanes = 16, tile = 4, blocks = 1;  // 16 sums of 32 registers
  static V repeat(float v) { return (V)_mm512_set1_ps(v); }
  static V fma(V a, V b, V c) { return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
  static V max(V a, V b) { return (V)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b); }
  static V pin(V v) {
    asm("" : "+v"(v));
    return v;
  }
  static V even(V a, V b) {
    const __m512i places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return (V)_mm512_permutex2var_ps((__m512)a, places, (__m512)b);
  }
  static V odd(V a, V b) {
    const __m512i places = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return (V)_mm512_permutex2var_ps((__m512)a, places, (__m512)b);
  }
  static V gather(const float* p, I i) {
    return (V)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff, (__m512i)i, p, 4);
  }
};

#include "rows.inl"

bool supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
}

}  // namespace

const Kernels avx512_kernels = {
    "avx512", supported, stem_here, block_here, pool_here, dilate_here, attend_here, fuse_here, multiply_adds_here,
};

}  // namespace pixeldiff::pidinet
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
