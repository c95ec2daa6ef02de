"""Optimizers: what a recipe's [optimizer] says, and the class behind each name.

To add an optimizer, add one entry to OPTIMIZERS: a subclass of torch.optim.Optimizer that takes lr, betas and
weight_decay. If it keeps more than Adam's two moments per weight, it says how many as STATE_COPIES.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pixeldiff.errors import InputError
from pixeldiff.training.soap import Soap

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "soap": Soap}


@dataclass(frozen=True)
class Optimizer:
    """Name and settings of an optimizer. SOAP learns more per step than Adam. The defaults are the paper's."""

    name: str = "adam"
    lr: float = 0.005
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise InputError(f"unknown optimizer.name {self.name!r}; expected {' or '.join(OPTIMIZERS)}")
        for rule, value, holds in (
            ("lr must be more than 0", self.lr, self.lr > 0),
            ("betas must be 0 to below 1", list(self.betas), all(0 <= beta < 1 for beta in self.betas)),
            ("weight_decay must be at least 0", self.weight_decay, self.weight_decay >= 0),
        ):
            if not holds:
                raise InputError(f"optimizer.{rule}, got {value}")


def make_optimizer(settings: Optimizer, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Build the optimizer of a run."""
    kind = OPTIMIZERS[settings.name]
    return kind(  # type: ignore[call-arg]
        parameters, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay
    )


def state_copies(name: str) -> int:
    """Numbers that the optimizer keeps per weight."""
    return getattr(OPTIMIZERS[name], "STATE_COPIES", 2)
