"""Which images a step sees: an endless sequence of shuffled epochs, cut into batches; a sampler without state.

Step t takes places t * batch to (t + 1) * batch of the sequence. Epoch e is the permutation of (seed, e): any step of
any process can be told without the ones before it, and a run that goes on sees what it would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pixeldiff.errors import UserError
from pixeldiff.training.recipe import Recipe

Key = tuple[int, int]  # (epoch, index) of a sample


class ResumableBatchSampler:
    """The keys of each forward pass of this process, from step `start` on: a batch sampler without state."""

    def __init__(self, length: int, recipe: Recipe, start: int, steps: int, rank: int = 0, world: int = 1) -> None:
        self.length, self.seed, self.start, self.steps = length, recipe.seed, start, steps
        self.batch, self.rank, self.world = recipe.loop.batch, rank, world
        whole, rest = divmod(recipe.loop.accumulate, world)
        self.passes = whole if rest == 0 else recipe.loop.accumulate  # forward passes of this process in a step
        self._epoch = -1
        if self.batch % (self.passes * world):
            raise UserError(
                f"loop.batch = {self.batch} in {recipe.loop.accumulate} forward passes does not divide among {world} "
                "processes; change loop.batch, loop.accumulate or the number of processes"
            )

    def __len__(self) -> int:
        return (self.steps - self.start) * self.passes

    def __iter__(self) -> Iterator[list[Key]]:
        part = self.batch // (self.world * self.passes)
        for step in range(self.start, self.steps):
            keys = self.keys(step)
            for k in range(self.passes):
                first = (k * self.world + self.rank) * part
                yield keys[first : first + part]

    def keys(self, step: int) -> list[Key]:
        """All images of a step, over all processes."""
        places = range(step * self.batch, (step + 1) * self.batch)
        return [(p // self.length, int(self._order(p // self.length)[p % self.length])) for p in places]

    def _order(self, epoch: int) -> np.ndarray:
        if self._epoch != epoch:
            self._epoch = epoch
            self._permutation = np.random.default_rng((self.seed, epoch)).permutation(self.length)
        return self._permutation
