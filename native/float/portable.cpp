// The kernels in plain C++: the baseline of every machine and the specification of the others.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers.hpp"

namespace pixeldiff::pidinet {
namespace {

struct Isa {
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  static constexpr int lanes = 4, tile = 2, blocks = 1;
  static V repeat(float v) { return V{v, v, v, v}; }
  static V fma(V a, V b, V c) { return a * b + c; }
  static V max(V a, V b) { return a > b ? a : b; }
  static V pin(V v) { return v; }
  static V even(V a, V b) { return V{a[0], a[2], b[0], b[2]}; }
  static V odd(V a, V b) { return V{a[1], a[3], b[1], b[3]}; }
  static V gather(const float* p, I i) { return V{p[i[0]], p[i[1]], p[i[2]], p[i[3]]}; }
};

#include "rows.inl"

bool supported() { return true; }

}  // namespace

const Kernels portable_kernels = {
    "portable", supported, stem_here, block_here, pool_here, dilate_here, attend_here, fuse_here, multiply_adds_here,
};

}  // namespace pixeldiff::pidinet
