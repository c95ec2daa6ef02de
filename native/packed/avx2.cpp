// The packed kernels for AVX2. The target is set here, after the headers, so that no shared code is built for it.
#include "packed.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")
#endif

namespace pixeldiff {
namespace {

#include "lookup.inl"

struct Avx2 {
  using type = __m256i;
  static constexpr int bytes = 32;
  static type zero() { return _mm256_setzero_si256(); }
  static type load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static type table(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static type lookup(type table, type indices) { return _mm256_shuffle_epi8(table, indices); }
  static type add(type a, type b) { return _mm256_add_epi8(a, b); }
  static type high(type v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
  static type minus_sixteen_times(type total, type high) {
    const type low_bits = _mm256_and_si256(high, _mm256_set1_epi8(15));
    return _mm256_sub_epi8(total, _mm256_slli_epi16(low_bits, 4));
  }
  // Even bytes are the first half of the outputs, odd bytes the second: weights are laid out for that.
  template <bool kAdd>
  static void split(type counts, uint16_t* sums) {
    auto* p = reinterpret_cast<__m256i*>(sums);
    const type even = _mm256_and_si256(counts, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(counts, 8);
    _mm256_store_si256(p, kAdd ? _mm256_add_epi16(_mm256_load_si256(p), even) : even);
    _mm256_store_si256(p + 1, kAdd ? _mm256_add_epi16(_mm256_load_si256(p + 1), odd) : odd);
  }
};

#include "x86.inl"

struct Isa : EightLanes, Lookup<Avx2> {};

#include "band.inl"
#include "nibbles.inl"

bool supported() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

}  // namespace

const Kernels avx2_kernels = {
    "avx2",           supported,       Avx2::bytes,      pack_signs_here, difference_row_here,
    binary_band_here, float_band_here, average_row_here, max_row_here,    count_here,
};

}  // namespace pixeldiff
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
