"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al., 2024, arXiv 2409.11321).

The gradient G of a matrix, or of a kernel as out x (in * height * width), has a mean of G G^T and one of G^T G. In
their eigenvectors Q_L and Q_R, Adam's second moment is that of Q_L^T G Q_R, and its step is rotated back. A single row
or column per output (biases, depthwise kernels) cannot be rotated and gets plain Adam. torch has no SOAP.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MIN_SIDE = 8  # rows and columns of a matrix
UPDATE_EVERY = 10  # steps between two updates of the bases
DECAY = 0.95  # decay of the mean of G G^T and G^T G


class Soap(torch.optim.Adam):
    """torch.optim.Adam, but matrices step in the eigenbasis of their gradients."""

    STATE_COPIES = 6

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and _is_matrix(parameter):
                    _step(parameter, self.state[parameter], group)
                    parameter.grad = None  # nothing left for Adam
        super().step(closure)


def _is_matrix(parameter: Tensor) -> bool:
    rows = parameter.shape[0] if parameter.dim() > 1 else 0
    return rows >= MIN_SIDE and parameter.numel() // rows >= MIN_SIDE and parameter.shape[1] > 1


def _step(parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    assert parameter.grad is not None
    gradient = parameter.grad.add(parameter, alpha=group["weight_decay"]).flatten(1)
    sides = {"left": gradient @ gradient.T, "right": gradient.T @ gradient}
    if not state:  # the first gradient only initializes the bases
        for side, square in sides.items():
            state[side] = square
            state[f"{side}_basis"] = torch.linalg.eigh(square).eigenvectors.flip(1)
        state.update(step=torch.tensor(0.0), mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
        return
    state["step"] += 1
    left, right, steps = state["left_basis"], state["right_basis"], state["step"].item()
    beta1, beta2 = group["betas"]
    mean = state["mean"].lerp_(gradient, 1 - beta1)
    square = state["square"].lerp_((left.T @ gradient @ right).square(), 1 - beta2)
    rotated = left.T @ mean @ right / (1 - beta1**steps)
    rotated /= (square / (1 - beta2**steps)).sqrt().add_(group["eps"])
    parameter.sub_((left @ rotated @ right.T).reshape(parameter.shape), alpha=group["lr"])
    for side, new in sides.items():
        state[side].lerp_(new, 1 - DECAY)
    if steps % UPDATE_EVERY == 0:
        _update_bases(state)


def _update_bases(state: dict[str, Any]) -> None:
    """Update each basis by one power iteration, the largest eigenvalue first, and sort the second moments alike."""
    for axis, side in enumerate(("left", "right")):
        basis = state[f"{side}_basis"]
        order = torch.einsum("ik,ij,jk->k", basis, state[side], basis).argsort(descending=True, stable=True)
        state["square"] = state["square"].index_select(axis, order)
        state[f"{side}_basis"] = torch.linalg.qr(state[side] @ basis[:, order]).Q
