// The kernels for WebAssembly with its 128-bit vectors, which have no fused multiply-add.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers.hpp"

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

namespace pixeldiff::pidinet {
namespace {

struct Isa {
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  static constexpr int lanes = 4, tile = 3, blocks = 1;  // quicker than 2 in V8, although it spills
  static V repeat(float v) { return (V)wasm_f32x4_splat(v); }
  static V fma(V a, V b, V c) { return a * b + c; }
  static V max(V a, V b) { return (V)wasm_f32x4_pmax((v128_t)b, (v128_t)a); }
  static V pin(V v) { return v; }
  static V even(V a, V b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
  static V odd(V a, V b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
  static V gather(const float* p, I i) { return V{p[i[0]], p[i[1]], p[i[2]], p[i[3]]}; }
};

#include "rows.inl"

bool supported() { return true; }

}  // namespace

const Kernels wasm_kernels = {
    "wasm", supported, stem_here, block_here, pool_here, dilate_here, attend_here, fuse_here, multiply_adds_here,
};

}  // namespace pixeldiff::pidinet
#endif
