// Adds the packed kernels to the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace pixeldiff {

void bind_packed(nanobind::module_& m);

}  // namespace pixeldiff
