"""Types of the C++ kernels (native/python/module.cpp)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def nms(map: NDArray[np.float32], radius: int = 1) -> NDArray[np.float32]: ...
def thin(map: NDArray[np.uint8]) -> NDArray[np.uint8]: ...
def trace(map: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
def match(
    prediction: NDArray[np.uint8], truth: NDArray[np.uint8], radius: float, annotator: int = 0
) -> tuple[NDArray[np.int32], int]: ...
def count_boundary(
    map: NDArray[np.uint8], levels: list[int], thinned: bool, truths: NDArray[np.uint8], radius: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def instruction_sets() -> list[str]: ...
def pack_signs(x: NDArray[np.float32]) -> NDArray[np.uint64]: ...
def average_pool(x: NDArray[np.float32], threads: int = 0) -> NDArray[np.float32]: ...
def max_pool(x: NDArray[np.float32], threads: int = 0) -> NDArray[np.float32]: ...
def replicate(x: NDArray[np.float32], copies: int, parts: int) -> NDArray[np.float32]: ...

class BinaryConv:
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int,
        differing: int,
        pairs: list[tuple[int, int, int, int]],
        plain_signs: NDArray[np.uint8],
        difference_signs: NDArray[np.uint8],
        plain_norm: NDArray[np.float32] | None,
        difference_norm: NDArray[np.float32] | None,
        activations: NDArray[np.float32],
    ) -> None: ...
    def __call__(
        self,
        x: NDArray[np.float32],
        bits: NDArray[np.uint64] | None = None,
        shortcut: NDArray[np.float32] | None = None,
        threads: int = 0,
    ) -> tuple[NDArray[np.float32], NDArray[np.uint64]]: ...
    def sums(self, x: NDArray[np.float32], threads: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
    def pack_differences(self, x: NDArray[np.float32]) -> NDArray[np.uint64]: ...
    @property
    def instruction_set(self) -> str: ...

class FloatConv:
    def __init__(
        self,
        weight: NDArray[np.float32],
        stride: int,
        norm: NDArray[np.float32],
        activation: NDArray[np.float32] | None = None,
    ) -> None: ...
    def __call__(self, x: NDArray[np.float32], threads: int = 0) -> NDArray[np.float32]: ...

class PackedNetwork:
    def __init__(self) -> None: ...
    def add_float(self, conv: FloatConv) -> None: ...
    def add_max_pool(self) -> None: ...
    def add_mean(self, linear: FloatConv) -> None: ...
    def add_flatten(self, linear: FloatConv) -> None: ...
    def add_binary(
        self,
        conv: BinaryConv,
        projection: FloatConv | None = None,
        copies: int = 0,
        parts: int = 0,
        pool: bool = False,
    ) -> None: ...
    def __call__(
        self, x: NDArray[np.float32], threads: int = 0, first: int = 0, last: int = -1
    ) -> NDArray[np.float32]: ...

def float_instruction_sets() -> list[str]: ...
def edge_weight_sizes(
    width: int, side_channels: int, kernel_sizes: Sequence[int], cdcm: bool, csam: bool, shortcuts: bool
) -> list[int]: ...
def fma_peak() -> float: ...

class EdgeNetwork:
    def __init__(
        self,
        width: int,
        side_channels: int,
        kernel_sizes: Sequence[int],
        cdcm: bool,
        csam: bool,
        shortcuts: bool,
        weights: NDArray[np.float32],
    ) -> None: ...
    def picture(
        self,
        picture: NDArray[np.uint8],
        table: NDArray[np.float32],
        sides: bool = False,
        threads: int = 0,
        memory: int = ...,
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]: ...
    def planes(
        self, planes: NDArray[np.float32], sides: bool = False, threads: int = 0, memory: int = ...
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]: ...
    @property
    def instruction_set(self) -> str: ...
