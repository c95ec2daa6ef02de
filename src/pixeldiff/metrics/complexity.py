"""How much a network computes and stores: FLOPs, BOPs, OPs, parameters, memory.

The counting rule, chosen so that the paper's tables come out (section 7.2; their own rule is not written down):

- FLOPs: one per multiply-add of a float convolution (pixel differences are folded first, so radial counts 5x5).
  Per element, 1 for a batch norm that an activation follows (its shift merges into the next one), 2 for the batch norm
  of a shortcut, 2 for RPReLU, 1 for PReLU. ReLU, pooling, additions, upsampling and sigmoid count 0.
- BOPs: one per product of two signs, borders counted as if they were full.
- OPs = FLOPs + BOPs / 64.
- Parameters: binary ones have 1 bit, all others (batch norm: scale and shift; RPReLU: 3 per channel;
  PReLU: 1) have 32.
  Memory is in 10^6 bits. The last linear layer is listed, but it is in no total, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

BITS = 32
BINARY_OPS_PER_OP = 64


@dataclass(frozen=True)
class LayerRecord:
    """What one layer costs. `counted` is False for the last linear layer."""

    name: str
    operation: str
    output: tuple[int, ...]  # channels, height, width
    flops: int = 0
    bops: int = 0
    fp_params: int = 0
    binary_params: int = 0
    counted: bool = True


@dataclass(frozen=True)
class Complexity:
    """Sums over layers; JSON uses these names."""

    flops: int
    bops: int
    fp_params: int
    binary_params: int

    @property
    def ops(self) -> float:
        return self.flops + self.bops / BINARY_OPS_PER_OP

    @property
    def memory_mbit(self) -> float:
        return (BITS * self.fp_params + self.binary_params) / 1e6

    def as_json(self) -> dict[str, float]:
        return {**asdict(self), "ops": self.ops, "memory_mbit": self.memory_mbit}


def total(records: Sequence[LayerRecord]) -> Complexity:
    """The sum over the counted layers."""
    counted = [record for record in records if record.counted]
    return Complexity(
        flops=sum(record.flops for record in counted),
        bops=sum(record.bops for record in counted),
        fp_params=sum(record.fp_params for record in counted),
        binary_params=sum(record.binary_params for record in counted),
    )


def as_json(records: Sequence[LayerRecord]) -> dict[str, Any]:
    """The totals, and the layers under `layers`."""
    return {**total(records).as_json(), "layers": [asdict(record) for record in records]}


def _short(n: float) -> str:
    """Three digits for a table that fits a terminal; JSON has them all."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if n >= 0.9995 * unit:  # what rounds to 1000 of a unit is 1 of the next
            return f"{n / unit:.3g}{letter}"
    return f"{n:g}" if n else ""


def layer_table(records: Sequence[LayerRecord]) -> str:
    """Format the layers as a table, a row per layer."""
    rows = [["layer", "operation", "output", "FLOPs", "BOPs", "params", "1-bit"]]
    for record in records:
        size = "x".join(map(str, record.output))
        numbers = [_short(n) for n in (record.flops, record.bops, record.fp_params, record.binary_params)]
        rows.append([record.name, record.operation + ("" if record.counted else " uncounted"), size, *numbers])
    widths = [max(len(row[i]) for row in rows) for i in range(7)]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
