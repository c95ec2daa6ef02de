"""The least-squares similarity and the bilinear warp, as they are defined: normal equations, and pixel by pixel."""

import numpy as np


def similarity(points, onto):
    """2 x 3: x' = p x - q y + u, y' = q x + p y + v."""
    rows, values = [], []
    for (x, y), (to_x, to_y) in zip(points, onto, strict=True):
        rows += [[x, -y, 1, 0], [y, x, 0, 1]]
        values += [to_x, to_y]
    p, q, u, v = np.linalg.lstsq(np.array(rows, float), np.array(values, float), rcond=None)[0]
    return np.array([[p, -q, u], [q, p, v]])


def warp(image, matrix, size):
    """Each pixel of the result from the place it comes from; beyond the image its edge goes on."""
    height, width = image.shape[:2]
    back = np.linalg.inv(matrix[:, :2])
    result = np.empty((*size, 3))
    for row in range(size[0]):
        for column in range(size[1]):
            x, y = back @ (np.array([column, row]) - matrix[:, 2])
            x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
            left, top = int(x), int(y)
            right, below = min(left + 1, width - 1), min(top + 1, height - 1)
            upper = image[top, left] * (1 - (x - left)) + image[top, right] * (x - left)
            lower = image[below, left] * (1 - (x - left)) + image[below, right] * (x - left)
            result[row, column] = upper * (1 - (y - top)) + lower * (y - top)
    return result
