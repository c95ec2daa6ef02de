// The eight-lane operations that AVX2 and AVX-512 share.

struct EightLanes {
  static unsigned at_least(Floats a, Floats b) {
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GE_OQ));
  }
  // Comparisons narrowed to bytes, channel j of a quad weighted 1 << j, each quad's four bytes added up.
  template <bool kOneMinus>
  static void compare(const float* centre, const ptrdiff_t* plus, const ptrdiff_t* minus, uint8_t* quads) {
    const auto signs = [&](int i) {
      const __m256 a = _mm256_loadu_ps(centre + plus[i]), b = _mm256_loadu_ps(centre + minus[kOneMinus ? 0 : i]);
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
    const __m128i both = _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(quads), both);
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
