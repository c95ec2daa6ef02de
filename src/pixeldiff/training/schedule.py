"""The learning rate over a run: what a recipe's [schedule] says, and what it means for a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pixeldiff.errors import UserError


@dataclass(frozen=True)
class Schedule:
    """The learning rate over the run, in epochs (one epoch = every entry of the training set once)."""

    epochs: float = 20.0
    kind: str = "multistep"  # or "cosine": down to zero at the end
    milestones: tuple[float, ...] = (10.0, 16.0)  # multistep: times `factor` at these epochs
    factor: float = 0.1
    warmup_steps: int = 0  # linear from zero

    def __post_init__(self) -> None:
        if self.kind not in ("multistep", "cosine"):
            raise UserError(f"schedule.kind is multistep or cosine, got {self.kind!r}")
        for rule, value, holds in (
            ("epochs is more than 0 and at most a million", self.epochs, 0 < self.epochs <= 1e6),
            ("factor is more than 0", self.factor, self.factor > 0),
            ("milestones are at least 0", list(self.milestones), all(m >= 0 for m in self.milestones)),
            ("warmup_steps is at least 0", self.warmup_steps, self.warmup_steps >= 0),
        ):
            if not holds:
                raise UserError(f"schedule.{rule}, got {value}")


def learning_rate(schedule: Schedule, lr: float, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps`."""
    if step < schedule.warmup_steps:
        return lr * (step + 1) / schedule.warmup_steps
    if schedule.kind == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * step / steps))
    epoch = step / steps * schedule.epochs
    return lr * schedule.factor ** sum(epoch >= milestone for milestone in schedule.milestones)
