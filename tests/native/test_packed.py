"""The packed kernels against their NumPy definitions, on every instruction set that this machine has."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from pixeldiff import _native
from tests.references import packed as reference
from tests.references.packed import CENTRAL, PAIRS


@pytest.fixture(params=_native.instruction_sets(), autouse=True)
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PIXELDIFF_ISA", request.param)
    return request.param


@dataclass
class Layer:
    """Random weights of one layer and the native layer made of them."""

    rng: np.random.Generator
    inputs: int
    outputs: int
    differing: int = 0
    size: int = 3
    stride: int = 1
    pairs: list = field(default_factory=lambda: CENTRAL)
    activations: int = 1

    def __post_init__(self) -> None:
        rng, outputs = self.rng, self.outputs
        self.plain = rng.integers(0, 2, (outputs, self.inputs - self.differing, self.size, self.size), np.uint8)
        self.difference = rng.integers(0, 2, (outputs, self.differing, len(self.pairs)), np.uint8)
        self.plain_norm, self.difference_norm = rng.normal(0, 0.1, (2, 2, outputs)).astype(np.float32)
        self.activation = rng.normal(0, 0.5, (self.activations, 3, outputs)).astype(np.float32)
        self.native = _native.BinaryConv(
            self.inputs,
            outputs,
            self.size,
            self.stride,
            self.differing,
            self.pairs,
            self.plain.ravel(),
            self.difference.ravel(),
            self.plain_norm,
            self.difference_norm,
            self.activation,
        )

    def sums(self, x: NDArray) -> tuple[NDArray, NDArray]:
        plain = reference.plain_sums(x[..., self.differing :], self.plain, self.stride)
        if not self.differing:
            return np.zeros_like(plain), plain
        return reference.difference_sums(x, self.difference, self.pairs, self.stride), plain


def maps(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Few distinct values, so that equal pixels, zeros and negative zeros are among them."""
    x = rng.integers(-3, 4, shape).astype(np.float32) / 2
    x[rng.random(shape) < 0.05] = -0.0
    return x


def test_the_forced_instruction_set_is_used(rng, instruction_set):
    assert Layer(rng, 4, 4).native.instruction_set == instruction_set


def test_unknown_instruction_set_names_those_here(rng, monkeypatch):
    monkeypatch.setenv("PIXELDIFF_ISA", "mmx")
    with pytest.raises(ValueError, match=r"mmx.*portable"):
        Layer(rng, 4, 4)


def test_an_engine_without_an_extension_takes_its_base(rng, monkeypatch):
    monkeypatch.setenv("PIXELDIFF_ISA", "portable+extension")
    assert Layer(rng, 4, 4).native.instruction_set == "portable"


@pytest.mark.parametrize("channels", [1, 7, 8, 63, 64, 65, 100])
def test_pack_signs(rng, channels):
    x = maps(rng, 2, 5, 3, channels)
    assert np.array_equal(_native.pack_signs(x), reference.pack_signs(x))


def test_convention_sign_of_zero_is_plus():
    x = np.array([0.0, -0.0, -1e-45, 1e-45, np.nan], np.float32).reshape(1, 1, 1, 5)
    assert _native.pack_signs(x)[0, 0, 0, 0] == 0b01011


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("channels", "differing"), [(1, 1), (7, 7), (65, 13), (100, 20), (64, 64), (12, 3)])
@pytest.mark.parametrize("stride", [1, 2])
def test_pack_differences(rng, kind, channels, differing, stride):
    layer = Layer(rng, channels, 2, differing, stride=stride, pairs=PAIRS[kind])
    x = maps(rng, 2, 7, 5, channels)
    expected = reference.pack_differences(x, differing, layer.pairs, stride)
    assert np.array_equal(layer.native.pack_differences(x), expected)


@pytest.mark.parametrize("channels", [1, 7, 63, 64, 65, 100])
@pytest.mark.parametrize("outputs", [1, 64, 100])
def test_plain_sums_for_any_channel_count(rng, channels, outputs):
    layer = Layer(rng, channels, outputs)
    x = maps(rng, 2, 6, 7, channels)
    for sums, expected in zip(layer.native.sums(x), layer.sums(x), strict=True):
        assert np.array_equal(sums, expected)


@pytest.mark.parametrize("size", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 9), (7, 5), (33, 1)])
def test_plain_sums_for_any_size_and_stride(rng, size, stride, height, width):
    layer = Layer(rng, 13, 9, size=size, stride=stride)
    x = maps(rng, 1, height, width, 13)
    assert np.array_equal(layer.native.sums(x)[1], layer.sums(x)[1])


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("channels", "differing", "stride"), [(64, 12, 1), (65, 65, 2), (100, 20, 1), (7, 1, 2)])
def test_mixed_sums(rng, kind, channels, differing, stride):
    layer = Layer(rng, channels, 70, differing, stride=stride, pairs=PAIRS[kind])
    x = maps(rng, 2, 9, 6, channels)
    for sums, expected in zip(layer.native.sums(x), layer.sums(x), strict=True):
        assert np.array_equal(sums, expected)


def test_users_own_pairs(rng):
    layer = Layer(rng, 11, 5, 6, pairs=[(-2, 0, 0, 1), (0, 0, 3, -3), (1, 1, -1, -1)])
    x = maps(rng, 1, 8, 9, 11)
    for sums, expected in zip(layer.native.sums(x), layer.sums(x), strict=True):
        assert np.array_equal(sums, expected)


def test_sums_of_a_deep_layer_do_not_overflow(rng):
    layer = Layer(rng, 3640, 3)
    x = np.where(layer.plain[0, :, 1, 1] > 0, -1, 1).astype(np.float32) * np.ones((1, 3, 3, 1), np.float32)
    assert np.array_equal(layer.native.sums(x)[1], layer.sums(x)[1])
    with pytest.raises(ValueError, match="too many products"):
        Layer(rng, 3641, 1)


@pytest.mark.parametrize("activations", [1, 2])
@pytest.mark.parametrize(("channels", "differing", "outputs"), [(64, 12, 64), (20, 20, 10), (9, 0, 100)])
def test_epilogue(rng, channels, differing, outputs, activations):
    activations = min(activations, bool(differing) + bool(channels - differing))
    layer = Layer(rng, channels, outputs, differing, activations=activations)
    x = maps(rng, 2, 5, 7, channels)
    shortcut = rng.normal(size=(2, 5, 7, outputs)).astype(np.float32)
    difference, plain = layer.sums(x)
    for added in (None, shortcut):
        y, bits = layer.native(x, None, added)
        expected = reference.mixed_layer(
            difference if differing else None,
            plain if differing < channels else None,
            layer.difference_norm,
            layer.plain_norm,
            layer.activation,
            added,
        )
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
        assert np.array_equal(bits, reference.pack_signs(y))


def test_given_bits_replace_packing(rng):
    layer = Layer(rng, 70, 8, 14)
    x = maps(rng, 1, 4, 4, 70)
    assert np.array_equal(layer.native(x, _native.pack_signs(x))[0], layer.native(x)[0])
    assert not np.array_equal(layer.native(x, ~_native.pack_signs(x))[0], layer.native(x)[0])


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("side", [1, 7, 16])
def test_threads_change_nothing(rng, count, side):
    layer = Layer(rng, 30, 200, 6)
    x = maps(rng, count, side, side, 30)
    alone = layer.native(x, threads=1)
    for threads in (2, 3, 8, 2**30):
        together = layer.native(x, threads=threads)
        assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 2), (7, 2)])
@pytest.mark.parametrize("outputs", [1, 16, 37])
def test_float_conv(rng, size, stride, outputs):
    weight = rng.normal(size=(outputs, 3, size, size)).astype(np.float32)
    norm, activation = (rng.normal(size=(n, outputs)).astype(np.float32) for n in (2, 3))
    x = rng.normal(size=(2, 9, 11, 3)).astype(np.float32)
    for act in (None, activation):
        y = _native.FloatConv(weight, stride, norm, act)(x)
        np.testing.assert_allclose(y, reference.float_conv(x, weight, stride, norm, act), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (4, 6), (7, 5)])
def test_pools(rng, height, width):
    x = rng.normal(size=(2, height, width, 5)).astype(np.float32)
    np.testing.assert_allclose(_native.average_pool(x), reference.average_pool(x), rtol=1e-6, atol=1e-6)
    assert np.array_equal(_native.max_pool(x), reference.max_pool(x))


def test_replicate(rng):
    x = rng.normal(size=(1, 2, 3, 6)).astype(np.float32)
    expected = np.concatenate([x, x, x.reshape(1, 2, 3, 3, 2).mean(3)], axis=-1)
    np.testing.assert_allclose(_native.replicate(x, 2, 3), expected, rtol=1e-6)


def test_wrong_shapes_are_refused(rng):
    layer = Layer(rng, 8, 4)
    x = maps(rng, 1, 4, 4, 8)
    with pytest.raises(ValueError, match="channels"):
        layer.native(x[..., :7].copy())
    with pytest.raises(ValueError, match="bits"):
        layer.native(x, np.zeros((1, 4, 4, 2), np.uint64))
    with pytest.raises(ValueError, match="shortcut"):
        layer.native(x, None, np.zeros((1, 4, 4, 3), np.float32))
    with pytest.raises(ValueError, match="plain signs"):
        _native.BinaryConv(
            8, 4, 3, 1, 0, [], np.zeros(5, np.uint8), np.zeros(0, np.uint8), None, None, layer.activation
        )
