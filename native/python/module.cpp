// The Python face of the native kernels: pixeldiff._native. Every call releases the GIL while it works.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "edges/boundary.hpp"
#include "edges/match.hpp"
#include "edges/nms.hpp"
#include "edges/thin.hpp"
#include "edges/trace.hpp"
#include "float_module.hpp"
#include "packed_module.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace pixeldiff;

using Map = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatMap = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Stack = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using Result = nb::ndarray<nb::numpy, T>;

namespace {

template <class T>
Result<T> to_numpy(std::vector<T>&& values, std::initializer_list<size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Result<T>(owned->data(), shape, owner);
}

template <class T>
Result<T> to_numpy(std::vector<T>&& values) {
  const size_t size = values.size();
  return to_numpy(std::move(values), {size});
}

std::vector<int32_t> set_pixels(const uint8_t* map, size_t size) {
  std::vector<int32_t> pixels;
  for (size_t i = 0; i < size; ++i) {
    if (map[i]) pixels.push_back(static_cast<int32_t>(i));
  }
  return pixels;
}

struct Size {
  int height, width;
};

// Pixels have 32-bit numbers, also with a border of one around the map.
Size size_of(size_t height, size_t width) {
  if (!height || !width) throw std::invalid_argument("maps have at least one pixel");
  if (height > 65535 || width > 65535 || (height + 2) * (width + 2) > INT32_MAX) {
    throw std::invalid_argument("maps are at most 65535 pixels high and wide, and 2^31 pixels together");
  }
  return {static_cast<int>(height), static_cast<int>(width)};
}

Result<float> nms_map(FloatMap map, int radius) {
  const auto [height, width] = size_of(map.shape(0), map.shape(1));
  std::vector<float> kept;
  {
    nb::gil_scoped_release release;
    kept = nms(map.data(), height, width, radius);
  }
  return to_numpy(std::move(kept), {map.shape(0), map.shape(1)});
}

Result<uint8_t> thin_map(Map map) {
  const auto [height, width] = size_of(map.shape(0), map.shape(1));
  std::vector<uint8_t> thinned(static_cast<size_t>(height) * width, 0);
  {
    nb::gil_scoped_release release;
    for (int32_t pixel : thin(map.data(), height, width)) thinned[pixel] = 1;
  }
  return to_numpy(std::move(thinned), {static_cast<size_t>(height), static_cast<size_t>(width)});
}

nb::tuple trace_map(Map map) {
  const auto [height, width] = size_of(map.shape(0), map.shape(1));
  Chains chains;
  {
    nb::gil_scoped_release release;
    chains = trace(map.data(), height, width);
  }
  return nb::make_tuple(to_numpy(std::move(chains.pixels)), to_numpy(std::move(chains.starts)));
}

// (pixel, pixel) rows: predicted and true pixel of each pair; and the total cost.
nb::tuple match_maps(Map prediction, Map truth, double radius, uint32_t annotator) {
  const auto [height, width] = size_of(prediction.shape(0), prediction.shape(1));
  if (truth.shape(0) != prediction.shape(0) || truth.shape(1) != prediction.shape(1)) {
    throw std::invalid_argument("prediction and truth differ in size");
  }
  std::vector<int32_t> pairs;
  int64_t cost = 0;
  {
    nb::gil_scoped_release release;
    const auto predicted = set_pixels(prediction.data(), prediction.size());
    const auto true_pixels = set_pixels(truth.data(), truth.size());
    Matcher matcher(predicted, true_pixels, height, width, radius, annotator);
    for (size_t p = 0; p < predicted.size(); ++p) matcher.insert(static_cast<int32_t>(p));
    for (size_t p = 0; p < predicted.size(); ++p) {
      const int32_t t = matcher.mate(static_cast<int32_t>(p));
      if (t >= 0) pairs.insert(pairs.end(), {predicted[p], true_pixels[t]});
    }
    cost = matcher.cost();
  }
  const size_t rows = pairs.size() / 2;
  return nb::make_tuple(to_numpy(std::move(pairs), {rows, 2}), cost);
}

nb::tuple count_map(Map map, const std::vector<int>& levels, bool thinned, Stack truths, double radius) {
  const auto [height, width] = size_of(map.shape(0), map.shape(1));
  if (truths.shape(1) != map.shape(0) || truths.shape(2) != map.shape(1)) {
    throw std::invalid_argument("map and truths differ in size");
  }
  BoundaryCounts counts;
  {
    nb::gil_scoped_release release;
    std::vector<std::vector<int32_t>> pixels;
    for (size_t k = 0; k < truths.shape(0); ++k) {
      pixels.push_back(set_pixels(truths.data() + k * map.size(), map.size()));
    }
    counts = count_boundary(map.data(), height, width, levels, thinned, pixels, radius);
  }
  return nb::make_tuple(to_numpy(std::move(counts.matched_truth)), to_numpy(std::move(counts.matched_prediction)),
                        to_numpy(std::move(counts.all_prediction)), to_numpy(std::move(counts.cost)));
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "C++ kernels of pixeldiff.";
  m.def("nms", &nms_map, "map"_a, "radius"_a = 1, "Non-maximum suppression of a float32 map in [0, 1].");
  bind_float(m);
  bind_packed(m);
  m.def("thin", &thin_map, "map"_a, "Guo-Hall thinning of the non-zero pixels of a uint8 map, to convergence.");
  m.def("trace", &trace_map, "map"_a,
        "Chains of linked pixels of a thin uint8 map: all their row-major indices, and where each chain begins.");
  m.def("match", &match_maps, "prediction"_a, "truth"_a, "radius"_a, "annotator"_a = 0,
        "One-to-one pairs of the non-zero pixels of two uint8 maps, (n, 2) row-major indices, and their total cost.");
  m.def("count_boundary", &count_map, "map"_a, "levels"_a, "thinned"_a, "truths"_a, "radius"_a,
        "(matched truth, matched prediction, all prediction, cost) of a uint8 map for each lowest level.");
}
