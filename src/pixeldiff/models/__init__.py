"""Networks by name.

A family is a module with VARIANTS (name -> config dataclass), build(config), TASK, and preprocessing(config), which is
how its networks see images unless their weights say otherwise. Weight files name their family as FAMILIES does.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.models import bipidinet, detector, ghostnet, pidinet, sphereface
from pixeldiff.weights import canonical_name, trained

FAMILIES: dict[str, ModuleType] = {
    "pidinet": pidinet,
    "bipidinet": bipidinet,
    "sphereface": sphereface,
    "ghostnet": ghostnet,
    "detector": detector,
}


def list_models() -> list[str]:
    """Every name that `create_model` knows."""
    return [name for family in FAMILIES.values() for name in family.VARIANTS]


def create_model(name: str, *, pretrained: bool = False, **changes: Any) -> nn.Module:
    """A network by name; `changes` replace fields of its config: create_model("tiny", pattern="baseline").

    "pidinet_tiny" and "tiny" are the same network. `pretrained` loads the shipped weights.
    """
    key = canonical_name(name)
    family, config = _variant(key)
    model: nn.Module = family.build(_changed(config, changes))
    if pretrained:
        if changes:
            raise UserError(f"pretrained weights of {key!r} fit its own config only; drop {', '.join(changes)}")
        from safetensors.torch import load_file

        model.load_state_dict(load_file(trained(key)))
    return model


def model_config(name: str) -> Any:
    """The config of a network, a frozen dataclass: what `create_model` may change."""
    return _variant(canonical_name(name))[1]


def _variant(key: str) -> tuple[ModuleType, Any]:
    for family in FAMILIES.values():
        if key in family.VARIANTS:
            return family, family.VARIANTS[key]
    raise UserError(f"unknown model {key!r}; there are {', '.join(list_models())}")


def build_from_config(family: str, config: dict[str, Any]) -> nn.Module:
    """The network that a weights file describes."""
    if family not in FAMILIES:
        raise UserError(f"unknown family {family!r}; there are {', '.join(FAMILIES)}")
    module = FAMILIES[family]
    model: nn.Module = module.build(_changed(next(iter(module.VARIANTS.values())), config))
    return model


def family_of(model: nn.Module) -> str:
    """The name under which a network's family stands in FAMILIES."""
    for name, module in FAMILIES.items():
        if module.__name__ == type(model).__module__:
            return name
    raise UserError(f"{type(model).__name__} is not one of pixeldiff's networks ({', '.join(list_models())})")


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    fields = {f.name for f in dataclasses.fields(config)}
    if unknown := sorted(set(changes) - fields):
        raise UserError(f"unknown option {', '.join(unknown)}; this network has {', '.join(sorted(fields))}")
    return dataclasses.replace(config, **changes)
