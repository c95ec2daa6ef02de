// The kernels for AVX2 with FMA. The target is set here, after the headers, so that no shared code is built for it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace pixeldiff::pidinet {
namespace {

struct Isa {
  typedef float V __attribute__((vector_size(32)));
  typedef int32_t I __attribute__((vector_size(32)));
  static constexpr int lanes = 8, tile = 3, blocks = 1;  // 12 sums, 3 inputs and a weight fill the 16 registers
  static V repeat(float v) { return (V)_mm256_set1_ps(v); }
  static V fma(V a, V b, V c) { return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
  static V max(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
  static V pin(V v) {
    asm("" : "+x"(v));
    return v;
  }
  static V even(V a, V b) { return order(_mm256_shuffle_ps((__m256)a, (__m256)b, 0x88)); }
  static V odd(V a, V b) { return order(_mm256_shuffle_ps((__m256)a, (__m256)b, 0xdd)); }
  static V order(__m256 v) { return (V)_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8); }
  static V gather(const float* p, I i) { return (V)_mm256_i32gather_ps(p, (__m256i)i, 4); }
};

#include "rows.inl"

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

const Kernels avx2_kernels = {
    "avx2", supported, stem_here, block_here, pool_here, dilate_here, attend_here, fuse_here, multiply_adds_here,
};

}  // namespace pixeldiff::pidinet
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
