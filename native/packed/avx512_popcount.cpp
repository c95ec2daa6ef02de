// The packed kernels for AVX-512 with VPOPCNTDQ: bits are counted in words, of eight outputs at once.
#include "packed.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,avx2,fma,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,avx2,fma,bmi2")
#endif

namespace pixeldiff {
namespace {

#include "sixteen.inl"

struct Isa : SixteenLanes {
  using Count = int32_t;
  static Wide widen(const int32_t* counts) { return (Wide)_mm512_maskz_cvtepi32_ps(0xffff, _mm512_load_si512(counts)); }
};

#include "band.inl"
#include "words.inl"

bool supported() {
  return __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}

}  // namespace

const Kernels avx512_popcount_kernels = {
    "avx512+vpopcntdq", supported,           0,
    pack_signs_here,    difference_row_here, binary_band_here,
    float_band_here,    average_row_here,    max_row_here,
    count_here,
};

}  // namespace pixeldiff
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
