// The Python face of the packed kernels; part of pixeldiff._native.
#include "packed_module.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>

#include "packed/network.hpp"
#include "packed/packed.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace pixeldiff {
namespace {

template <class T, size_t kDims>
using Array = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using Maps = Array<float, 4>;  // (N, H, W, C)
using Bits = Array<uint64_t, 4>;
using Signs = Array<uint8_t, 1>;
template <class T>
using Result = nb::ndarray<nb::numpy, T>;

// An array that NumPy will own; not initialised, the kernels fill it.
template <class T>
struct Owned {
  std::unique_ptr<T[]> data;
  std::vector<size_t> shape;

  explicit Owned(std::vector<size_t> sides) : shape(std::move(sides)) {
    size_t size = 1;
    for (size_t side : shape) size *= side;
    data.reset(new T[size]);
  }
  Result<T> release() {
    T* raw = data.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Result<T>(raw, shape.size(), shape.data(), owner);
  }
};

void check(bool fine, const char* message) {
  if (!fine) throw std::invalid_argument(message);
}

MapSize size_of(const Maps& x, int channels) {
  check(x.shape(3) == static_cast<size_t>(channels), "the map's channels are not the layer's");
  for (size_t i = 0; i < 3; ++i) check(x.shape(i) > 0 && x.shape(i) <= 65535, "sides of maps are 1 to 65535");
  return {static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)), static_cast<int>(x.shape(2))};
}

std::vector<size_t> shape_of(MapSize size, int stride, int channels) {
  return {static_cast<size_t>(size.count), static_cast<size_t>(steps(size.height, stride)),
          static_cast<size_t>(steps(size.width, stride)), static_cast<size_t>(channels)};
}

template <class A>
void check_shape(const A& array, const std::vector<size_t>& shape, const char* message) {
  for (size_t i = 0; i < shape.size(); ++i) check(array.shape(i) == shape[i], message);
}

BinaryConv* make_binary(int in_channels, int out_channels, int kernel_size, int stride, int differing,
                        const std::vector<std::array<int, 4>>& pairs, Signs plain_signs, Signs difference_signs,
                        std::optional<Array<float, 2>> plain_norm, std::optional<Array<float, 2>> difference_norm,
                        Array<float, 3> activations) {
  check(in_channels > 0 && out_channels > 0 && kernel_size > 0, "channels and kernel size are positive");
  check(differing >= 0 && differing <= in_channels, "differing channels are among the input channels");
  const size_t outputs = out_channels, taps = static_cast<size_t>(kernel_size) * kernel_size;
  check(plain_signs.size() == outputs * (in_channels - differing) * taps, "wrong number of plain signs");
  check(difference_signs.size() == outputs * differing * pairs.size(), "wrong number of difference signs");
  check(activations.shape(0) >= 1 && activations.shape(0) <= 2 && activations.shape(1) == 3 &&
            activations.shape(2) == outputs,
        "activations are (1 or 2, 3, outputs)");
  for (const auto* norm : {&plain_norm, &difference_norm}) {
    check(!*norm || ((*norm)->shape(0) == 2 && (*norm)->shape(1) == outputs), "norms are (2, outputs)");
  }
  std::vector<PixelPair> offsets;
  for (const auto& p : pairs) offsets.push_back({p[0], p[1], p[2], p[3]});
  auto conv = std::make_unique<BinaryConv>(in_channels, out_channels, kernel_size, stride, std::move(offsets),
                                           differing, plain_signs.data(), difference_signs.data(), choose_kernels());
  const float* d = difference_norm ? difference_norm->data() : nullptr;
  const float* p = plain_norm ? plain_norm->data() : nullptr;
  conv->set_norms(d, d ? d + outputs : nullptr, p, p ? p + outputs : nullptr);
  for (size_t i = 0; i < activations.shape(0); ++i) {
    const float* a = activations.data() + i * 3 * outputs;
    conv->add_activation(a, a + outputs, a + 2 * outputs);
  }
  return conv.release();
}

nb::tuple call_binary(const BinaryConv& conv, Maps x, std::optional<Bits> bits, std::optional<Maps> shortcut,
                      int threads) {
  const MapSize size = size_of(x, conv.in_channels);
  const auto shape = shape_of(size, conv.stride, conv.out_channels);
  if (bits) check_shape(*bits, shape_of(size, 1, words_of(conv.in_channels)), "the bits are not those of the map");
  if (shortcut) check_shape(*shortcut, shape, "the shortcut's shape is not the output's");
  Owned<float> y(shape);
  Owned<uint64_t> y_bits(shape_of(size, conv.stride, words_of(conv.out_channels)));
  {
    nb::gil_scoped_release release;
    const BinaryCall call{size,
                          x.data(),
                          bits ? bits->data() : nullptr,
                          shortcut ? shortcut->data() : nullptr,
                          y.data.get(),
                          y_bits.data.get(),
                          nullptr,
                          nullptr};
    run(conv, call, useful_threads(threads));
  }
  return nb::make_tuple(y.release(), y_bits.release());
}

nb::tuple binary_sums(const BinaryConv& conv, Maps x, int threads) {
  const MapSize size = size_of(x, conv.in_channels);
  const auto shape = shape_of(size, conv.stride, conv.out_channels);
  Owned<int32_t> difference(shape), plain(shape);
  const size_t total = shape[0] * shape[1] * shape[2] * shape[3];
  std::fill_n(difference.data.get(), total, 0);
  std::fill_n(plain.data.get(), total, 0);
  {
    nb::gil_scoped_release release;
    const BinaryCall call{size, x.data(), nullptr, nullptr, nullptr, nullptr, difference.data.get(), plain.data.get()};
    run(conv, call, useful_threads(threads));
  }
  return nb::make_tuple(difference.release(), plain.release());
}

Result<uint64_t> difference_bits(const BinaryConv& conv, Maps x) {
  const MapSize size = size_of(x, conv.in_channels);
  check(conv.differing > 0, "this layer takes no differences");
  Owned<uint64_t> words(shape_of(size, conv.stride, words_of(conv.difference_bits())));
  {
    nb::gil_scoped_release release;
    pack_differences(conv, x.data(), size, words.data.get());
  }
  return words.release();
}

Result<uint64_t> sign_bits(Maps x) {
  const int channels = static_cast<int>(x.shape(3));
  const MapSize size = size_of(x, channels);
  Owned<uint64_t> words(shape_of(size, 1, words_of(channels)));
  {
    nb::gil_scoped_release release;
    pack_signs(choose_kernels(), x.data(), x.shape(0) * x.shape(1) * x.shape(2), channels, words.data.get());
  }
  return words.release();
}

FloatConv* make_float(Array<float, 4> weight, int stride, Array<float, 2> norm, std::optional<Array<float, 2>> act) {
  check(weight.shape(2) == weight.shape(3), "kernels are square");
  check(weight.shape(0) > 0 && weight.shape(0) < 65536 && weight.shape(1) > 0 && weight.shape(1) < 65536 &&
            weight.shape(2) < 256,
        "weights are (out, in, k, k)");
  const size_t outputs = weight.shape(0);
  check(norm.shape(0) == 2 && norm.shape(1) == outputs, "the norm is (2, outputs)");
  check(!act || (act->shape(0) == 3 && act->shape(1) == outputs), "the activation is (3, outputs)");
  auto conv = std::make_unique<FloatConv>(static_cast<int>(weight.shape(1)), static_cast<int>(outputs),
                                          static_cast<int>(weight.shape(2)), stride, weight.data(), norm.data(),
                                          norm.data() + outputs, choose_kernels());
  if (act) conv->set_activation(act->data(), act->data() + outputs, act->data() + 2 * outputs);
  return conv.release();
}

Result<float> call_float(const FloatConv& conv, Maps x, int threads) {
  const MapSize size = size_of(x, conv.in_channels);
  Owned<float> y(shape_of(size, conv.stride, conv.out_channels));
  {
    nb::gil_scoped_release release;
    run(conv, size, x.data(), y.data.get(), useful_threads(threads));
  }
  return y.release();
}

template <void (*kPool)(const float*, MapSize, int, float*, int)>
Result<float> pool(Maps x, int threads) {
  const int channels = static_cast<int>(x.shape(3));
  const MapSize size = size_of(x, channels);
  Owned<float> y(shape_of(size, 2, channels));
  {
    nb::gil_scoped_release release;
    kPool(x.data(), size, channels, y.data.get(), useful_threads(threads));
  }
  return y.release();
}

Result<float> replicate_channels(Maps x, int copies, int parts) {
  const int channels = static_cast<int>(x.shape(3));
  const MapSize size = size_of(x, channels);
  check(copies > 0 && parts > 0 && channels % parts == 0, "copies and parts are positive, parts divide the channels");
  Owned<float> y(shape_of(size, 1, copies * channels + channels / parts));
  {
    nb::gil_scoped_release release;
    replicate(x.data(), x.shape(0) * x.shape(1) * x.shape(2), channels, copies, parts, y.data.get());
  }
  return y.release();
}

Result<float> call_network(const PackedNetwork& network, Maps x, int threads, int first, int last) {
  const MapSize size = size_of(x, static_cast<int>(x.shape(3)));
  const MapShape in{size.height, size.width, static_cast<int>(x.shape(3))};
  if (last < 0) last = network.layers();
  const MapShape out = network.shape(in, first, last);
  Owned<float> y(
      {x.shape(0), static_cast<size_t>(out.height), static_cast<size_t>(out.width), static_cast<size_t>(out.channels)});
  {
    nb::gil_scoped_release release;
    network.run(x.data(), size.count, in, y.data.get(), useful_threads(threads), first, last);
  }
  return y.release();
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels* kernels : available_kernels()) names.push_back(kernels->name);
  return names;
}

}  // namespace

void bind_packed(nb::module_& m) {
  m.def("instruction_sets", &instruction_sets, "What the packed kernels can use here, best first.");
  m.def(
      "binary_peak", [] { return binary_peak(choose_kernels()) / 1e9; },
      "Billions of binary multiply-adds per second of a core.");
  m.def("pack_signs", &sign_bits, "x"_a, "Bit c % 64 of word c // 64 is x[..., c] >= 0; (N, H, W, C) float32.");
  m.def("average_pool", &pool<average_pool>, "x"_a, "threads"_a = 0, "2x2 / 2; windows are cut at odd sides.");
  m.def("max_pool", &pool<max_pool>, "x"_a, "threads"_a = 0, "3x3 / 2, padding 1.");
  m.def("replicate", &replicate_channels, "x"_a, "copies"_a, "parts"_a,
        "`copies` copies of the channels, then the mean of their `parts` equal parts.");
  nb::class_<BinaryConv>(m, "BinaryConv", "The mixed binary layer; see native/packed/packed.hpp.")
      .def(nb::new_(&make_binary), "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a, "differing"_a,
           "pairs"_a, "plain_signs"_a, "difference_signs"_a, "plain_norm"_a.none(), "difference_norm"_a.none(),
           "activations"_a)
      .def("__call__", &call_binary, "x"_a, "bits"_a = nb::none(), "shortcut"_a = nb::none(), "threads"_a = 0,
           "The layer's output plus the shortcut, and its packed signs.")
      .def("sums", &binary_sums, "x"_a, "threads"_a = 0, "The integer sums of the difference and the plain branch.")
      .def("pack_differences", &difference_bits, "x"_a,
           "Signs of the differences, channel by channel, the pairs of each.")
      .def_prop_ro("instruction_set", [](const BinaryConv& conv) { return std::string(conv.kernels->name); });
  nb::class_<FloatConv>(m, "FloatConv", "Float convolution, scale and shift, RPReLU.")
      .def(nb::new_(&make_float), "weight"_a, "stride"_a, "norm"_a, "activation"_a = nb::none())
      .def("__call__", &call_float, "x"_a, "threads"_a = 0);
  nb::class_<PackedNetwork>(m, "PackedNetwork", "Layers one after the other; see native/packed/network.hpp.")
      .def(nb::init<>())
      .def("add_float", nb::overload_cast<const FloatConv&>(&PackedNetwork::add), "conv"_a, nb::keep_alive<1, 2>())
      .def("add_max_pool", &PackedNetwork::add_max_pool)
      .def("add_mean", &PackedNetwork::add_mean, "linear"_a, nb::keep_alive<1, 2>(), "A linear layer of the mean.")
      .def("add_flatten", &PackedNetwork::add_flatten, "linear"_a, nb::keep_alive<1, 2>(),
           "A linear layer of all pixels.")
      .def(
          "add_binary",
          [](PackedNetwork& self, const BinaryConv& conv, const FloatConv* projection, int copies, int parts,
             bool pool) {
            self.add(conv, {projection, copies, parts, pool});
          },
          "conv"_a, "projection"_a = nb::none(), "copies"_a = 0, "parts"_a = 0, "pool"_a = false,
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), "The shortcut is the input where nothing is said.")
      .def("__call__", &call_network, "x"_a, "threads"_a = 0, "first"_a = 0, "last"_a = -1,
           "What layers [first, last) make of maps; -1 for all.");
}

}  // namespace pixeldiff
