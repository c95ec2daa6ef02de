"""Which images a step uses: an endless sequence of shuffled epochs, cut into batches, by a sampler without state.

With b = batch_size * grad_accum_steps, step t takes places t * b to (t + 1) * b of the sequence. Epoch e is the
permutation of (seed, e). So any process can compute any step without the ones before it, and a resumed run uses the
images that it would have used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pixeldiff.errors import InputError
from pixeldiff.training.recipe import Recipe

Key = tuple[int, int]  # (epoch, index) of a sample


class ResumableBatchSampler:
    """Yield the keys of each forward pass of this process, from step `start` on."""

    def __init__(self, length: int, recipe: Recipe, start: int, steps: int, rank: int = 0, world: int = 1) -> None:
        self.length, self.seed, self.start, self.steps = length, recipe.seed, start, steps
        self.step_size, self.rank, self.world = recipe.train.step_size, rank, world
        per_process, rest = divmod(recipe.train.grad_accum_steps, world)
        self.passes = per_process if rest == 0 else recipe.train.grad_accum_steps  # of this process in a step
        self._epoch = -1
        if self.step_size % (self.passes * world):
            raise InputError(
                f"train.batch_size = {recipe.train.batch_size} and train.grad_accum_steps = "
                f"{recipe.train.grad_accum_steps} do not divide "
                f"among {world} processes; change one of the three"
            )

    def __len__(self) -> int:
        return (self.steps - self.start) * self.passes

    def __iter__(self) -> Iterator[list[Key]]:
        part = self.step_size // (self.world * self.passes)
        for step in range(self.start, self.steps):
            keys = self.keys(step)
            for k in range(self.passes):
                first = (k * self.world + self.rank) * part
                yield keys[first : first + part]

    def keys(self, step: int) -> list[Key]:
        """Return all images of a step, over all processes."""
        places = range(step * self.step_size, (step + 1) * self.step_size)
        return [(p // self.length, int(self._order(p // self.length)[p % self.length])) for p in places]

    def _order(self, epoch: int) -> np.ndarray:
        if self._epoch != epoch:
            self._epoch = epoch
            self._permutation = np.random.default_rng((self.seed, epoch)).permutation(self.length)
        return self._permutation
