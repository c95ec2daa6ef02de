// Adds the float engine of edge networks to the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace pixeldiff {

void bind_float(nanobind::module_& m);

}  // namespace pixeldiff
