"""Local binary patterns: codes, transitions, uniform patterns."""

import numpy as np
import pytest

from pixeldiff.nn import lbp


def test_code_reads_the_ring_anticlockwise_from_the_right() -> None:
    positions = [(1, 2), (0, 2), (0, 1), (0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]
    for bit, (row, column) in enumerate(positions):
        kernel = -np.ones((3, 3))
        kernel[row, column] = 1
        kernel[1, 1] = 1  # the center has no bit
        assert lbp.lbp_codes(kernel) == 1 << bit


def test_zero_counts_as_plus_one() -> None:
    assert lbp.lbp_codes(np.zeros((3, 3))) == 255


def test_kernels_and_codes_are_inverse() -> None:
    codes = np.arange(256)
    np.testing.assert_array_equal(lbp.lbp_codes(lbp.kernels_of(codes)), codes)


def test_transitions_by_definition() -> None:
    for code in range(256):
        bits = [code >> i & 1 for i in range(8)]
        assert lbp.transitions(np.array(code)) == sum(bits[i] != bits[(i + 1) % 8] for i in range(8))


def test_58_uniform_codes_of_9_shapes() -> None:
    codes = lbp.uniform_codes()
    rotations = {min((c >> r | c << (8 - r)) & 255 for r in range(8)) for c in codes.tolist()}
    assert (len(codes), len(rotations)) == (58, 9)


def test_fixed_kernels(rng: np.random.Generator) -> None:
    for share in (None, 0.8):
        kernels = lbp.fixed_kernels(2000, rng, share)
        assert set(np.unique(kernels)) == {-1, 1}
        uniform = np.isin(lbp.lbp_codes(kernels), lbp.uniform_codes()).mean()
        assert uniform == (pytest.approx(58 / 256, abs=0.04) if share is None else 0.8)


def test_wrong_shape() -> None:
    with pytest.raises(ValueError, match="3x3"):
        lbp.lbp_codes(np.zeros((4, 5)))
