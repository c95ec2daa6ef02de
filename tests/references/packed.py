"""The packed kernels in NumPy, written from their definitions: the specification of native/packed/.

Maps are (N, H, W, C) float32. Pixel pairs are rows (plus y, plus x, minus y, minus x). Signs are 1 for +1, 0 for -1.
"""

import numpy as np
from numpy.typing import NDArray

CENTRAL = [(y, x, 0, 0) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]
CLOCKWISE = {(-1, -1): (-1, 0), (-1, 0): (-1, 1), (-1, 1): (0, 1), (0, -1): (-1, -1), (0, 1): (1, 1), (1, -1): (0, -1)}
CLOCKWISE |= {(1, 0): (1, -1), (1, 1): (1, 0)}
PAIRS = {
    "central": CENTRAL,
    "angular": [(*plus, *minus) for plus, minus in CLOCKWISE.items()],
    "radial": [(2 * y, 2 * x, y, x) for y, x in CLOCKWISE],
}


def pack(bits: NDArray) -> NDArray[np.uint64]:
    """Bits along the last axis to words of 64, the first bit lowest, zeros at the end."""
    count = bits.shape[-1]
    padded = np.zeros((*bits.shape[:-1], -(-count // 64) * 64), np.uint8)
    padded[..., :count] = bits
    return np.packbits(padded, axis=-1, bitorder="little").view("<u8")


def pack_signs(x: NDArray) -> NDArray[np.uint64]:
    return pack(x >= 0)


def shifted(x: NDArray, y: int, column: int, stride: int, radius: int) -> NDArray:
    """The pixels at an offset from each output pixel; 0 outside the map."""
    padded = np.pad(x, ((0, 0), (radius, radius), (radius, radius), (0, 0)))
    height, width = x.shape[1:3]
    rows = padded[:, radius + y : radius + y + height : stride]
    return rows[:, :, radius + column : radius + column + width : stride]


def difference_bits(x: NDArray, differing: int, pairs: list, stride: int) -> NDArray:
    """(N, H', W', differing, pairs): x_i >= x'_i, zeros padded before the sign."""
    radius = max(abs(v) for pair in pairs for v in pair)
    x = x[..., :differing]
    planes = [shifted(x, a, b, stride, radius) >= shifted(x, c, d, stride, radius) for a, b, c, d in pairs]
    return np.stack(planes, axis=-1)


def pack_differences(x: NDArray, differing: int, pairs: list, stride: int) -> NDArray[np.uint64]:
    """Channel by channel, the pairs of each."""
    bits = difference_bits(x, differing, pairs, stride)
    return pack(bits.reshape(*bits.shape[:3], -1))


def difference_sums(x: NDArray, signs: NDArray, pairs: list, stride: int) -> NDArray[np.int64]:
    """Sum of w * Sign(x_i - x'_i); signs (out, differing, pairs)."""
    products = 2 * difference_bits(x, signs.shape[1], pairs, stride).astype(np.int64) - 1
    return np.einsum("nyxcp,ocp->nyxo", products, 2 * signs.astype(np.int64) - 1)


def plain_sums(x: NDArray, signs: NDArray, stride: int) -> NDArray[np.int64]:
    """Sum of w * Sign(x), zeros padded after the sign; signs (out, in, k, k)."""
    size = signs.shape[-1]
    activations = np.where(x >= 0, 1, -1)
    weights = 2 * signs.astype(np.int64) - 1
    total = 0
    for ky in range(size):
        for kx in range(size):
            pixels = shifted(activations, ky - size // 2, kx - size // 2, stride, size // 2)
            total = total + np.einsum("nyxc,oc->nyxo", pixels, weights[:, :, ky, kx])
    return total


def rprelu(y: NDArray, activation: NDArray) -> NDArray:
    before, slope, after = activation
    y = y + before
    return np.where(y > 0, y, slope * y) + after


def mixed_layer(
    difference: NDArray | None,
    plain: NDArray | None,
    difference_norm: NDArray,
    plain_norm: NDArray,
    activations: NDArray,
    shortcut: NDArray | None = None,
) -> NDArray:
    """Two batch norms, RPReLU after the sum or on each branch, the shortcut; in float64."""
    norms = ((difference, difference_norm), (plain, plain_norm))
    branches = [sums * norm[0].astype(float) + norm[1] for sums, norm in norms if sums is not None]
    if len(activations) == len(branches):
        y = sum(rprelu(branch, act) for branch, act in zip(branches, activations.astype(float), strict=True))
    else:
        y = rprelu(sum(branches), activations[0].astype(float))
    return y if shortcut is None else y + shortcut


def float_conv(x: NDArray, weight: NDArray, stride: int, norm: NDArray, activation: NDArray | None) -> NDArray:
    size = weight.shape[-1]
    total = 0
    for ky in range(size):
        for kx in range(size):
            pixels = shifted(x.astype(float), ky - size // 2, kx - size // 2, stride, size // 2)
            total = total + pixels @ weight[:, :, ky, kx].T.astype(float)
    y = total * norm[0] + norm[1]
    return y if activation is None else rprelu(y, activation)


def average_pool(x: NDArray) -> NDArray:
    rows, columns = range(0, x.shape[1], 2), range(0, x.shape[2], 2)
    return np.stack(
        [np.stack([x[:, r : r + 2, c : c + 2].mean((1, 2)) for c in columns], axis=1) for r in rows], axis=1
    )


def max_pool(x: NDArray) -> NDArray:
    rows, columns = range(0, x.shape[1], 2), range(0, x.shape[2], 2)
    window = lambda r, c: x[:, max(r - 1, 0) : r + 2, max(c - 1, 0) : c + 2].max((1, 2))  # noqa: E731
    return np.stack([np.stack([window(r, c) for c in columns], axis=1) for r in rows], axis=1)
