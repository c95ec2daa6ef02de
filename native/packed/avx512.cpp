// The packed kernels for AVX-512 (F, BW, VL): one vector holds a whole block of outputs.
#include "packed.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi2"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi2")
#endif

namespace pixeldiff {
namespace {

#include "lookup.inl"

struct Avx512 {
  using type = __m512i;
  static constexpr int bytes = 64;
  static type zero() { return _mm512_setzero_si512(); }
  static type load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static type table(const uint8_t* p) {
    // Masked, because the plain one makes GCC 12 warn of an undefined value.
    return _mm512_maskz_broadcast_i32x4(0xffff, _mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static type lookup(type table, type indices) { return _mm512_shuffle_epi8(table, indices); }
  static type add(type a, type b) { return _mm512_add_epi8(a, b); }
  static type high(type v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
  static type minus_sixteen_times(type total, type high) {
    const type low_bits = _mm512_and_si512(high, _mm512_set1_epi8(15));
    return _mm512_sub_epi8(total, _mm512_slli_epi16(low_bits, 4));
  }
  // Even bytes are the first half of the outputs, odd bytes the second: weights are laid out for that.
  template <bool kAdd>
  static void split(type counts, uint16_t* sums) {
    const type even = _mm512_and_si512(counts, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(counts, 8);
    _mm512_storeu_si512(sums, kAdd ? _mm512_add_epi16(_mm512_loadu_si512(sums), even) : even);
    _mm512_storeu_si512(sums + 32, kAdd ? _mm512_add_epi16(_mm512_loadu_si512(sums + 32), odd) : odd);
  }
};

#include "sixteen.inl"

struct Isa : SixteenLanes, Lookup<Avx512> {
  static Wide widen(const uint16_t* counts) {
    const __m256i loaded = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(counts));
    return (Wide)_mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, loaded));
  }
};

#include "band.inl"
#include "nibbles.inl"

bool supported() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

}  // namespace

const Kernels avx512_kernels = {
    "avx512",         supported,       Avx512::bytes,    pack_signs_here, difference_row_here,
    binary_band_here, float_band_here, average_row_here, max_row_here,    count_here,
};

}  // namespace pixeldiff
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
