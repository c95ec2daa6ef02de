// The one choice of an instruction set, for every engine: the best that is available, or the one of PIXELDIFF_ISA.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace pixeldiff {

// `available` lists kernels with a `name`, best first. A set with an extension is called base+extension; an engine
// without the extension takes the base: avx512 for avx512+vpopcntdq. Throws std::invalid_argument if it has neither.
template <class Kernels>
const Kernels& choose_isa(const std::vector<const Kernels*>& available) {
  const char* variable = std::getenv("PIXELDIFF_ISA");
  const std::string wanted = variable ? variable : "";
  if (wanted.empty()) return *available.front();
  const std::string base = wanted.substr(0, wanted.find('+'));
  const Kernels* fallback = nullptr;
  std::string names;
  for (const Kernels* kernels : available) {
    if (kernels->name == wanted) return *kernels;
    if (kernels->name == base) fallback = kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->name);
  }
  if (!fallback) throw std::invalid_argument("PIXELDIFF_ISA is '" + wanted + "'; this machine has " + names);
  return *fallback;
}

}  // namespace pixeldiff
