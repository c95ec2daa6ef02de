"""A-Softmax against its definition by angles."""

import math

import pytest
import torch
import torch.nn.functional as F

from pixeldiff.errors import UserError
from pixeldiff.nn.margin import AngularMargin, annealed, psi


def psi_of_angle(theta, m):
    """(-1)^k cos(m theta) - 2k for theta in [k pi / m, (k + 1) pi / m]."""
    k = torch.floor(m * theta.detach() / math.pi).clamp(max=m - 1)
    return (-1) ** k * torch.cos(m * theta) - 2 * k


def logits_of_angles(x, weight, people, m, plain):
    """The module's docstring, person by person."""
    rows = []
    for vector, right in zip(x, people, strict=True):
        row = []
        for j, w in enumerate(weight):
            theta = torch.arccos(vector @ w / (vector.norm() * w.norm()))
            value = (
                (plain * torch.cos(theta) + psi_of_angle(theta, m)) / (1 + plain) if j == right else torch.cos(theta)
            )
            row.append(vector.norm() * value)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_psi_is_its_definition_and_falls(m):
    theta = torch.linspace(0.001, math.pi - 0.001, 999, dtype=torch.float64)
    torch.testing.assert_close(psi(torch.cos(theta), m), psi_of_angle(theta, m), rtol=0, atol=1e-11)
    assert (psi(torch.cos(theta), m).diff() < 0).all()
    ends = psi(torch.tensor([1.0, -1.0], dtype=torch.float64), m)
    assert ends.tolist() == pytest.approx([1, 1 - 2 * m])


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("plain", [0.0, 5.0, 1000.0])
def test_logits_and_gradients_are_those_of_the_angles(m, plain):
    torch.manual_seed(m)
    head = AngularMargin(7, 5).double()
    people = torch.arange(33) % 5
    results = []
    for form in (lambda x: head(x, people, m, plain), lambda x: logits_of_angles(x, head.weight, people, m, plain)):
        x = torch.linspace(-1, 2, 33 * 7, dtype=torch.float64).reshape(33, 7).sin().requires_grad_()
        logits = form(x)
        results.append((logits, *torch.autograd.grad(F.cross_entropy(logits, people), (x, head.weight))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def test_lambda_falls_and_stays():
    assert [annealed(1000, 5, 0.1, step) for step in (0, 10, 10_000)] == [1000, 500, 5]


def test_other_margins_are_refused():
    with pytest.raises(UserError, match="one of 1, 2, 3, 4, got 5"):
        psi(torch.zeros(1), 5)
