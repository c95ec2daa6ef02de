// The Python face of the float engine; part of pixeldiff._native.
#include "float_module.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "float/pidinet.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace pixeldiff {
namespace {

using namespace pidinet;

template <class T, size_t kDims>
using Array = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, float>;

struct Owned {
  std::unique_ptr<float[]> data;
  size_t height, width;

  Owned(size_t height, size_t width) : data(new float[height * width]), height(height), width(width) {}
  Result release() {
    float* raw = data.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return Result(raw, {height, width}, owner);
  }
};

void check(bool fine, const char* message) {
  if (!fine) throw std::invalid_argument(message);
}

Picture bytes_picture(const Array<uint8_t, 3>& picture, const Array<float, 2>& table) {
  check(picture.shape(2) == 3 && table.shape(0) == 3 && table.shape(1) == 256,
        "pictures are (height, width, 3), their table is (3, 256)");
  check(std::max(picture.shape(0), picture.shape(1)) <= kLargest, "sides of pictures are at most 65535 pixels");
  return {static_cast<int>(picture.shape(0)), static_cast<int>(picture.shape(1)), picture.data(), table.data(),
          nullptr};
}

Picture planes_picture(const Array<float, 3>& planes) {
  check(planes.shape(0) == 3, "planes are (3, height, width)");
  check(std::max(planes.shape(1), planes.shape(2)) <= kLargest, "sides of pictures are at most 65535 pixels");
  return {static_cast<int>(planes.shape(1)), static_cast<int>(planes.shape(2)), nullptr, nullptr, planes.data()};
}

// Ctrl-C is seen between two bands.
void look_for_signals() {
  nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals()) throw nb::python_error();
}

nb::tuple run(const Network& network, const Picture& picture, bool sides, int threads, size_t memory) {
  const size_t height = picture.height, width = picture.width;
  check(height >= kSmallest && width >= kSmallest, "sides of pictures are at least 8 pixels");
  Owned edges(height, width);
  std::vector<Owned> logits;
  Maps maps{edges.data.get(), {}};
  for (int s = 0; sides && s < kStages; ++s) {
    logits.emplace_back(height >> s, width >> s);
    maps.sides[s] = logits.back().data.get();
  }
  {
    nb::gil_scoped_release release;
    detect(network, picture, maps, useful_threads(threads), memory, look_for_signals);
  }
  nb::list given;
  for (Owned& map : logits) given.append(map.release());
  return nb::make_tuple(edges.release(), given);
}

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const Kernels* kernels : available_kernels()) found.emplace_back(name_of(*kernels));
  return found;
}

}  // namespace

void bind_float(nb::module_& m) {
  m.def("float_instruction_sets", &names,
        "The instruction sets of the float engine that this machine runs, best first.");
  m.def(
      "edge_weight_sizes",
      [](int width, int side_channels, const std::vector<int>& kernel_sizes, bool cdcm, bool csam, bool shortcuts) {
        return weight_sizes({width, side_channels, kinds_of(kernel_sizes), cdcm, csam, shortcuts});
      },
      "width"_a, "side_channels"_a, "kernel_sizes"_a, "cdcm"_a, "csam"_a, "shortcuts"_a,
      "Return the number of floats of each tensor of an edge network, in the order in which EdgeNetwork takes them.");
  m.def(
      "fma_peak", [] { return fma_peak(choose_kernels()) / 1e9; }, "Billions of multiply-adds per second of a core.");
  nb::class_<Network>(m, "EdgeNetwork")
      .def(
          "__init__",
          [](Network* self, int width, int side_channels, const std::vector<int>& kernel_sizes, bool cdcm, bool csam,
             bool shortcuts, Array<float, 1> weights) {
            new (self) Network({width, side_channels, kinds_of(kernel_sizes), cdcm, csam, shortcuts}, weights.data(),
                               weights.size(), choose_kernels());
          },
          "width"_a, "side_channels"_a, "kernel_sizes"_a, "cdcm"_a, "csam"_a, "shortcuts"_a, "weights"_a)
      .def_prop_ro("instruction_set", [](const Network& self) { return std::string(name_of(self.kernels())); })
      .def(
          "picture",
          [](const Network& self, Array<uint8_t, 3> picture, Array<float, 2> table, bool sides, int threads,
             size_t memory) { return run(self, bytes_picture(picture, table), sides, threads, memory); },
          "picture"_a, "table"_a, "sides"_a = false, "threads"_a = 0, "memory"_a = size_t{96} << 20,
          "Edges of bytes, and the side logits if asked for; `table` has the value of each byte and channel.")
      .def(
          "planes",
          [](const Network& self, Array<float, 3> planes, bool sides, int threads, size_t memory) {
            return run(self, planes_picture(planes), sides, threads, memory);
          },
          "planes"_a, "sides"_a = false, "threads"_a = 0, "memory"_a = size_t{96} << 20,
          "The same of normalised planes.");
}

}  // namespace pixeldiff
