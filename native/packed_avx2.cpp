// The packed kernels for AVX2. The target is set here, after the headers, so that no shared code is built for it.
#include "packed.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi2")

namespace pixeldiff {
namespace {

#include "packed_lookup.inl"

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
  static void add_split(type counts, uint16_t* sums) {
    auto* p = reinterpret_cast<__m256i*>(sums);
    const type even = _mm256_and_si256(counts, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(counts, 8);
    _mm256_store_si256(p, _mm256_add_epi16(_mm256_load_si256(p), even));
    _mm256_store_si256(p + 1, _mm256_add_epi16(_mm256_load_si256(p + 1), odd));
  }
};

struct Isa {
  static void accumulate(const uint8_t* tables, const uint16_t* a, const uint16_t* b, const uint8_t* weights, int nibbles,
                         uint16_t* sums_a, uint16_t* sums_b) {
    accumulate_by_lookup<Avx2, 2>(tables, {a, b}, weights, nibbles, {sums_a, sums_b});
  }
  static unsigned at_least(Floats a, Floats b) {
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GE_OQ));
  }
  // Comparisons narrowed to bytes, channel j of a quad weighted 1 << j, each quad's four bytes added up.
  static void compare(const float* centre, const int* plus, const int* minus, uint64_t* quads) {
    const auto signs = [&](int i) {
      const __m256 a = _mm256_loadu_ps(centre + plus[i]), b = _mm256_loadu_ps(centre + minus[i]);
      return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
    };
    const auto codes = [&](int i) {
      const __m256i low = _mm256_packs_epi32(signs(i), signs(i + 1));
      const __m256i high = _mm256_packs_epi32(signs(i + 2), signs(i + 3));
      const __m256i weighted = _mm256_and_si256(_mm256_packs_epi16(low, high), _mm256_set1_epi32(0x08040201));
      return _mm256_madd_epi16(_mm256_maddubs_epi16(weighted, _mm256_set1_epi8(1)), _mm256_set1_epi16(1));
    };
    const __m256i words = _mm256_packus_epi32(codes(0), codes(4));
    const __m256i bytes = _mm256_packus_epi16(words, words);
    quads[0] = static_cast<uint64_t>(_mm256_extract_epi64(bytes, 0));
    quads[1] = static_cast<uint64_t>(_mm256_extract_epi64(bytes, 2));
  }
  static uint64_t extract(uint64_t word, uint64_t mask) { return _pext_u64(word, mask); }
  static Floats widen(const uint16_t* counts) {
    const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(counts));
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(loaded));
  }
  static void expand(uint64_t word, uint8_t* codes) {
    const __m128i w = _mm_cvtsi64_si128(static_cast<long long>(word)), mask = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(w, mask), high = _mm_and_si128(_mm_srli_epi16(w, 4), mask);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm_unpacklo_epi8(low, high));
  }
  static Floats multiply_add(Floats a, Floats b, Floats c) {
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  }
};

#include "packed_band.inl"

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"); }

}  // namespace

const Kernels avx2_kernels = {
    "avx2", supported, Avx2::bytes, pack_signs_here, difference_codes_here, binary_band_here, float_band_here,
};

}  // namespace pixeldiff
#pragma GCC pop_options
#endif
