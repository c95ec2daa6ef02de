"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al., 2024, arXiv 2409.11321).

The gradient G of a matrix, or of a kernel as out x (in * height * width), has a mean of G G^T and one of G^T G. In
their eigenvectors Q_L and Q_R, Adam's second moment is kept of Q_L^T G Q_R, and its step is turned back. A lone row or
column per output (biases, depthwise kernels) has nothing to turn: plain Adam. torch has none of this.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SMALLEST = 8  # rows and columns from which on a parameter is a matrix
EVERY = 10  # steps between two looks at the bases
MEMORY = 0.95  # decay of the mean of G G^T and G^T G


class Soap(torch.optim.Adam):
    """torch.optim.Adam, but matrices step in the eigenbasis of their gradients."""

    STATE_COPIES = 6

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and _is_matrix(parameter):
                    _step(parameter, self.state[parameter], group)
                    parameter.grad = None  # done: not for Adam
        super().step(closure)


def _is_matrix(parameter: Tensor) -> bool:
    rows = parameter.shape[0] if parameter.dim() > 1 else 0
    return rows >= SMALLEST and parameter.numel() // rows >= SMALLEST and parameter.shape[1] > 1


def _step(parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    assert parameter.grad is not None
    gradient = parameter.grad.add(parameter, alpha=group["weight_decay"]).flatten(1)
    sides = {"left": gradient @ gradient.T, "right": gradient.T @ gradient}
    if not state:  # the first gradient only says where the axes are
        for side, square in sides.items():
            state[side] = square
            state[f"{side}_basis"] = torch.linalg.eigh(square).eigenvectors.flip(1)
        state.update(step=torch.tensor(0.0), mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
        return
    state["step"] += 1
    left, right, steps = state["left_basis"], state["right_basis"], state["step"].item()
    one, two = group["betas"]
    mean = state["mean"].lerp_(gradient, 1 - one)
    square = state["square"].lerp_((left.T @ gradient @ right).square(), 1 - two)
    turned = left.T @ mean @ right / (1 - one**steps)
    turned /= (square / (1 - two**steps)).sqrt().add_(group["eps"])
    parameter.sub_((left @ turned @ right.T).reshape(parameter.shape), alpha=group["lr"])
    for side, new in sides.items():
        state[side].lerp_(new, 1 - MEMORY)
    if steps % EVERY == 0:
        _turn(state)


def _turn(state: dict[str, Any]) -> None:
    """One power iteration brings each basis up to date, the largest eigenvalue first; the second moments go along."""
    for axis, side in enumerate(("left", "right")):
        basis = state[f"{side}_basis"]
        order = torch.einsum("ik,ij,jk->k", basis, state[side], basis).argsort(descending=True, stable=True)
        state["square"] = state["square"].index_select(axis, order)
        state[f"{side}_basis"] = torch.linalg.qr(state[side] @ basis[:, order]).Q
