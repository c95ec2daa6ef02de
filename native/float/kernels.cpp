// Which instruction set runs: the best that this CPU has and that agrees with the portable one.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "isa.hpp"
#include "layers.hpp"

namespace pixeldiff::pidinet {
namespace {

std::vector<float> small_map(const Kernels& kernels) {
  const Config config{5, 3, "carvrcavvrcaravc", true, true, true};
  uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
  };
  std::vector<float> weights(weight_count(config)), planes(3 * 23 * 43), edges(23 * 43);
  for (float& v : weights) v = 0.4f * next();
  for (float& v : planes) v = next();
  const Network network(config, weights.data(), weights.size(), kernels);
  detect(network, {23, 43, nullptr, nullptr, planes.data()}, {edges.data(), {}}, 1);
  return edges;
}

// Some instruction sets could not be tried where this was written: they prove themselves before they are used.
bool agrees(const Kernels& kernels, const std::vector<float>& expected) {
  const std::vector<float> edges = small_map(kernels);
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!(std::fabs(edges[i] - expected[i]) <= 1e-4f)) return false;
  }
  return true;
}

std::vector<const Kernels*> find_kernels() {
  std::vector<const Kernels*> found;
  const auto add = [&](const Kernels& kernels) {
    if (kernels.supported() && agrees(kernels, small_map(portable_kernels))) found.push_back(&kernels);
  };
  (void)add;
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  add(avx512_kernels);
  add(avx2_kernels);
#elif defined(__aarch64__) && defined(__GNUC__)
  add(neon_kernels);
#elif defined(__wasm_simd128__)
  add(wasm_kernels);
#endif
  found.push_back(&portable_kernels);
  return found;
}

}  // namespace

std::vector<const Kernels*> available_kernels() {
  static const std::vector<const Kernels*> found = find_kernels();
  return found;
}

double fma_peak(const Kernels& kernels) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    const double count = kernels.multiply_adds(4000000);
    best =
        std::max(best, count * CLOCKS_PER_SEC / static_cast<double>(std::max<std::clock_t>(1, std::clock() - start)));
  }
  return best;
}

const Kernels& choose_kernels() { return choose_isa(available_kernels()); }

}  // namespace pixeldiff::pidinet
