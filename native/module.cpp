// The Python face of the native kernels: pixeldiff._native.
#include <nanobind/nanobind.h>

NB_MODULE(_native, m) { m.doc() = "C++ kernels of pixeldiff."; }
