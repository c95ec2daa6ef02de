"""SOAP is Adam in the eigenbasis of the gradients: turning the problem turns the steps, and nothing else."""

import pytest
import torch
from torch import Tensor, nn

from pixeldiff.training import soap
from pixeldiff.training.soap import Soap

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}


def orthogonal(size: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, dtype=torch.float64)).Q


def walk(kind: type, start: Tensor, gradients: list[Tensor]) -> Tensor:
    parameter = nn.Parameter(start.clone())
    optimizer = kind([parameter], **OPTIONS)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def definition(start: Tensor, gradients: list[Tensor]) -> Tensor:
    """The paper's Algorithm 3, a loop over vectors of the basis, with exact eigenvectors where they are looked for."""
    weight, shape = start.flatten(1).clone(), start.flatten(1).shape
    mean, squares = torch.zeros(shape, dtype=start.dtype), torch.zeros(shape, dtype=start.dtype)
    one, two = OPTIONS["betas"]
    for step, raw in enumerate(gradients):
        gradient = raw.flatten(1) + OPTIONS["weight_decay"] * weight
        if step == 0:
            left, right = gradient @ gradient.T, gradient.T @ gradient
            rows, columns = (torch.linalg.eigh(side).eigenvectors for side in (left, right))
            continue
        mean = one * mean + (1 - one) * gradient
        for i in range(shape[0]):
            for j in range(shape[1]):
                axis = torch.outer(rows[:, i], columns[:, j])
                squares[i, j] = two * squares[i, j] + (1 - two) * (axis * gradient).sum() ** 2
                along = (axis * mean).sum() / (1 - one**step)
                weight -= OPTIONS["lr"] * along / ((squares[i, j] / (1 - two**step)).sqrt() + 1e-8) * axis
    return weight.reshape(start.shape)


# Squares: one gradient that is wider than high says nothing of some of its axes, and any would do.
@pytest.mark.parametrize("shape", [(9, 9), (8, 2, 2, 2)])
def test_it_is_its_definition(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(shape, dtype=torch.float64), list(torch.randn(8, *shape, dtype=torch.float64))
    torch.testing.assert_close(walk(Soap, start, gradients), definition(start, gradients))


def test_turned_gradients_turn_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soap, "UPDATE_EVERY", 3)
    torch.manual_seed(1)
    start, gradients = torch.randn(9, 9, dtype=torch.float64), list(torch.randn(20, 9, 9, dtype=torch.float64))
    left, right = orthogonal(9), orthogonal(9)
    turned = walk(Soap, left @ start @ right, [left @ gradient @ right for gradient in gradients])
    torch.testing.assert_close(turned, left @ walk(Soap, start, gradients) @ right)
    adam = walk(torch.optim.Adam, left @ start @ right, [left @ gradient @ right for gradient in gradients])
    assert not torch.allclose(adam, left @ walk(torch.optim.Adam, start, gradients) @ right), "Adam has axes"


def test_biases_and_depthwise_kernels_are_left_to_adam() -> None:
    torch.manual_seed(2)
    for shape in [(16,), (16, 1, 3, 3), (3, 16), (16, 4)]:
        start, gradients = torch.randn(shape), list(torch.randn(5, *shape))
        assert torch.equal(walk(Soap, start, gradients), walk(torch.optim.Adam, start, gradients)), shape
