"""Pixel pairs and fold against the definition sum_i w_i (x_i - x'_i), written as loops."""

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.nn.ops import PixelPairs, fold, pixel_pairs, radial_depthwise
from tests.references.packed import PAIRS


def difference_sum(x, weight, pairs):
    """One output value per center pixel of `x` (H, W) for one kernel (k, k); no padding."""
    radius = pairs.support // 2
    height, width = x.shape
    out = torch.zeros(height - 2 * radius, width - 2 * radius, dtype=x.dtype)
    for y in range(radius, height - radius):
        for c in range(radius, width - radius):
            for w, pair in zip(weight.flatten(), pairs.pairs, strict=True):
                if pair is None:
                    continue
                (py, px), minus = pair
                value = x[y + py, c + px]
                if minus is not None:
                    value = value - x[y + minus[0], c + minus[1]]
                out[y - radius, c - radius] += w * value
    return out


@pytest.mark.parametrize("kind", ["vanilla", "central", "angular", "radial"])
@pytest.mark.parametrize("size", [3, 5])
def test_fold_equals_the_definition(kind, size):
    torch.manual_seed(0)
    pairs = pixel_pairs(kind, size)
    x = torch.randn(pairs.support + 6, pairs.support + 3, dtype=torch.float64)
    weight = torch.randn(size, size, dtype=torch.float64)
    plain = torch.nn.functional.conv2d(x[None, None], fold(weight, kind)[None, None])[0, 0]
    torch.testing.assert_close(plain, difference_sum(x, weight, pairs))


def test_fold_of_user_pairs_equals_the_definition():
    torch.manual_seed(0)
    pairs = PixelPairs.from_list([((-3, 0), (3, 0)), ((0, -1), (0, 1)), ((1, 1), (0, 0))], kernel_size=3)
    assert pairs.support == 7
    x, weight = torch.randn(11, 9, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    plain = torch.nn.functional.conv2d(x[None, None], fold(weight, pairs)[None, None])[0, 0]
    torch.testing.assert_close(plain, difference_sum(x, weight, pairs))


def test_fold_gradient():
    weight = torch.randn(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    for kind in ("central", "angular", "radial"):
        assert torch.autograd.gradcheck(lambda w, kind=kind: fold(w, kind), weight)


@pytest.mark.parametrize("size", [(8, 6), (7, 5), (1, 9)])
def test_radial_depthwise_equals_the_folded_convolution(size):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    plain = torch.nn.functional.conv2d(x, fold(weight, "radial"), padding=2, groups=3)
    ours = radial_depthwise(x, weight)
    torch.testing.assert_close(ours, plain)
    seed = torch.randn_like(plain)
    expected = torch.autograd.grad(plain, (x, weight), seed)
    torch.testing.assert_close(torch.autograd.grad(ours, (x, weight), seed), expected)


def test_radial_depthwise_has_second_derivatives():
    torch.manual_seed(0)
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(radial_depthwise, (x, weight))


def test_fold_in_inference_leaves_gradients_possible():
    fold_anew = 7  # a size that no other test has cached
    weight = torch.randn(1, fold_anew, fold_anew)
    with torch.inference_mode():
        fold(weight, "central")
    weight.requires_grad_()
    fold(weight, "central").sum().backward()
    assert weight.grad is not None


def test_convention_angular_goes_clockwise():
    # The paper's figure: w1 (x1 - x2) + w2 (x2 - x3) + w3 (x3 - x6) + ..., so w4 belongs to (x4 - x1).
    pairs = pixel_pairs("angular").pairs
    assert pairs[0] == ((-1, -1), (-1, 0))
    assert pairs[2] == ((-1, 1), (0, 1))
    assert pairs[3] == ((0, -1), (-1, -1))
    assert pairs[8] == ((1, 1), (1, 0))
    assert pairs[4] is None


def test_convention_radial_reads_5x5_outer_minus_inner():
    pairs = pixel_pairs("radial")
    assert pairs.support == 5
    assert pairs.pairs[0] == ((-2, -2), (-1, -1))
    assert pairs.pairs[5] == ((0, 2), (0, 1))
    assert pairs.pairs[4] is None


def test_differences_of_a_constant_are_zero():
    torch.manual_seed(0)
    for kind in ("central", "angular", "radial"):
        assert fold(torch.randn(4, 3, 3, dtype=torch.float64), kind).sum((-1, -2)).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pixel_pairs("diagonal"), "unknown kind 'diagonal'"),
        (lambda: pixel_pairs("central", 4), "odd kernel size, got 4"),
        (lambda: PixelPairs.from_list([], 3), "takes 1 to 9"),
        (lambda: PixelPairs.from_list([((0, 0), (0, 1))] * 10, 3), "got 10 pixel pairs"),
        (lambda: fold(torch.zeros(2, 3), "central"), "square kernels"),
        (lambda: fold(torch.zeros(5, 5), pixel_pairs("central", 3)), "for kernels of 3x3"),
    ],
)
def test_bad_input_is_explained(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_are_those_the_packed_kernels_are_tested_with(kind):
    assert [(*plus, *minus) for plus, minus in pixel_pairs(kind).differences] == PAIRS[kind]
