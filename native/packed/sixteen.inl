// The operations of AVX-512; those on floats are of sixteen lanes.
#include "x86.inl"

struct SixteenLanes : EightLanes {
  typedef float Wide __attribute__((vector_size(64)));
  static constexpr int wide = 16, float_blocks = 4;
  static unsigned at_least(Wide a, Wide b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ); }
  static Wide repeat(float v) { return (Wide)_mm512_set1_ps(v); }
  static Wide multiply_add(Wide a, Wide b, Wide c) { return (Wide)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
};
