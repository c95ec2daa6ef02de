// The operations that AVX2 and AVX-512 share; those on floats are of eight lanes.

struct EightLanes {
  using Wide = Floats;
  using Count = uint16_t;
  static constexpr int wide = 8, float_blocks = 1;
  static unsigned at_least(Floats a, Floats b) {
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GE_OQ));
  }
  static Entries alternate(Ints a, Ints b) { return (Entries)_mm256_blend_epi16((__m256i)a, (__m256i)b, 0xaa); }
  static Floats widen(const uint16_t* counts) {
    const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(counts));
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(loaded));
  }
  static void expand(uint64_t word, uint8_t* codes) {
    const __m128i w = _mm_cvtsi64_si128(static_cast<long long>(word)), mask = _mm_set1_epi8(15);
    const __m128i low = _mm_and_si128(w, mask), high = _mm_and_si128(_mm_srli_epi16(w, 4), mask);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm_unpacklo_epi8(low, high));
  }
  static Floats repeat(float v) { return (Floats)_mm256_set1_ps(v); }
  static Floats multiply_add(Floats a, Floats b, Floats c) {
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  }
};
