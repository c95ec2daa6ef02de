"""The learning rate over a run: what a recipe's [schedule] says, and what it means for a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pixeldiff.errors import InputError

SCHEDULES = ("multistep", "cosine")


@dataclass(frozen=True)
class Schedule:
    """Length of the run and its learning rate."""

    samples: int  # length: images that the network is trained on, each as often as it is used
    name: str = "multistep"  # or "cosine", which ends at zero
    milestones: tuple[float, ...] = (0.5, 0.8)  # multistep: fractions of the run after which lr is multiplied by factor
    factor: float = 0.1
    warmup_steps: int = 0  # linear from zero

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise InputError(f"unknown schedule.name {self.name!r}; expected {' or '.join(SCHEDULES)}")
        for rule, value, holds in (
            ("samples must be 1 to 10**12", self.samples, 1 <= self.samples <= 10**12),
            ("factor must be more than 0", self.factor, self.factor > 0),
            ("milestones must be 0 to 1", list(self.milestones), all(0 <= m <= 1 for m in self.milestones)),
            ("warmup_steps must be at least 0", self.warmup_steps, self.warmup_steps >= 0),
        ):
            if not holds:
                raise InputError(f"schedule.{rule}, got {value}")

    def steps(self, step_size: int) -> int:
        """Return the number of optimizer steps of `step_size` samples each."""
        return -(-self.samples // step_size)


def learning_rate(schedule: Schedule, lr: float, step: int, steps: int) -> float:
    """Return the learning rate of step `step` of `steps`."""
    if step < schedule.warmup_steps:
        return lr * (step + 1) / schedule.warmup_steps
    if schedule.name == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * step / steps))
    return lr * schedule.factor ** sum(step / steps >= milestone for milestone in schedule.milestones)
