"""Optimizers by name: an optimizer is one entry of a table."""

from pathlib import Path

import pytest
import torch

from pixeldiff.errors import InputError
from pixeldiff.training.loop import train
from pixeldiff.training.optimizers import OPTIMIZERS, Optimizer, make_optimizer, state_copies
from tests.training.small_run import assert_same_weights, losses, small_recipe, stop_after


class SignDescent(torch.optim.Optimizer):
    """theta <- theta - lr sign(gradient)."""

    STATE_COPIES = 0

    def __init__(self, params, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def test_a_new_optimizer_is_one_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "sign", SignDescent)
    recipe = small_recipe(root, optimizer={"name": "sign", "lr": 0.001})
    assert train(recipe, root / "whole")
    stop_after(recipe, root / "parts", 2)
    assert train(recipe, root / "parts")
    assert_same_weights(root / "whole", root / "parts")
    train(small_recipe(root, optimizer={"lr": 0.001}), root / "adam")
    assert losses(root / "adam") != losses(root / "whole")


def test_settings_reach_the_optimizer() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3))]
    for name, kind in OPTIMIZERS.items():
        optimizer = make_optimizer(Optimizer(name, 0.25, (0.5, 0.75), 0.125), parameters)
        (group,) = optimizer.param_groups
        assert type(optimizer) is kind
        assert (group["lr"], group["betas"], group["weight_decay"]) == (0.25, (0.5, 0.75), 0.125)
    assert [state_copies(name) for name in ("adam", "soap")] == [2, 6]


@pytest.mark.parametrize(
    ("key", "value"), [("name", "sgd"), ("lr", 0.0), ("betas", (0.9, 1.0)), ("weight_decay", -1.0)]
)
def test_wrong_settings_name_the_key(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"optimizer.{key}"):
        Optimizer(**{key: value})
