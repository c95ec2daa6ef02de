"""A-Softmax (SphereFace, Liu et al. 2017): a softmax over people that the right answer must win by an angular margin.

With an embedding x, a unit weight w_j per person, theta_j the angle between them and y the right person:

    logit_j = |x| cos(theta_j)                                               j != y
    logit_y = |x| (lambda cos(theta_y) + psi(theta_y)) / (1 + lambda)
    psi(theta) = (-1)^k cos(m theta) - 2k      for theta in [k pi / m, (k + 1) pi / m],    m = 1, 2, 3 or 4

psi falls from 1 to 1 - 2m over [0, pi]; with m = 1 it is the cosine. A large lambda is a plain softmax; training
begins with it and lowers it (`annealed`). cos(m theta) is a polynomial of the cosine, so that no arccos is needed.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff.errors import UserError

# Chebyshev's polynomials: cos(m theta) from c = cos(theta), highest power first.
_COSINES = {1: (1, 0), 2: (2, 0, -1), 3: (4, 0, -3, 0), 4: (8, 0, -8, 0, 1)}
MARGINS = tuple(_COSINES)


def psi(cosine: Tensor, margin: int) -> Tensor:
    """Compute psi(theta) from cos(theta)."""
    if margin not in MARGINS:
        raise UserError(f"the margin m is one of {', '.join(map(str, MARGINS))}, got {margin}")
    multiple = torch.zeros_like(cosine)
    for factor in _COSINES[margin]:
        multiple = multiple * cosine + factor
    k = sum(((cosine <= math.cos(j * math.pi / margin)).to(cosine) for j in range(1, margin)), torch.zeros_like(cosine))
    return (1 - 2 * (k % 2)) * multiple - 2 * k


def annealed(first: float, last: float, decay: float, step: int) -> float:
    """Return lambda of a step: first / (1 + decay * step), but not below `last`."""
    return max(last, first / (1 + decay * step))


class AngularMargin(nn.Module):
    """The logits above for `classes` people; `steps` counts training steps, for runs that are resumed."""

    steps: Tensor

    def __init__(self, embedding: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, embedding))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, people: Tensor, margin: int, plain: float) -> Tensor:
        """Compute the logits of embeddings (N, D) whose right answers are `people`; `plain` is lambda."""
        length = x.norm(dim=1, keepdim=True).clamp_min(1e-12)
        cosine = F.linear(x / length, F.normalize(self.weight)).clamp(-1, 1)
        right = cosine.gather(1, people[:, None])
        moved = (plain * right + psi(right, margin)) / (1 + plain)
        logits: Tensor = length * cosine.scatter(1, people[:, None], moved)
        return logits

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"
