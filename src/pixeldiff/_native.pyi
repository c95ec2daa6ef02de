"""Types of the C++ kernels (native/module.cpp)."""

import numpy as np
from numpy.typing import NDArray

def thin(map: NDArray[np.uint8]) -> NDArray[np.uint8]: ...
def match(
    prediction: NDArray[np.uint8], truth: NDArray[np.uint8], radius: float, annotator: int = 0
) -> tuple[NDArray[np.int32], int]: ...
def count_boundary(
    map: NDArray[np.uint8], levels: list[int], thinned: bool, truths: NDArray[np.uint8], radius: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
