"""Networks by name. A family is a module with VARIANTS (name -> config dataclass) and build(config)."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.models import bipidinet, pidinet
from pixeldiff.weights import canonical_name, find

FAMILIES: tuple[ModuleType, ...] = (pidinet, bipidinet)


def list_models() -> list[str]:
    """Every name that `create_model` knows."""
    return [name for family in FAMILIES for name in family.VARIANTS]


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

        model.load_state_dict(load_file(find(key, ".safetensors")))
    return model


def model_config(name: str) -> Any:
    """The config of a network, a frozen dataclass: what `create_model` may change."""
    return _variant(canonical_name(name))[1]


def _variant(key: str) -> tuple[ModuleType, Any]:
    for family in FAMILIES:
        if key in family.VARIANTS:
            return family, family.VARIANTS[key]
    raise UserError(f"unknown model {key!r}; there are {', '.join(list_models())}")


def build_from_config(family: str, config: dict[str, Any]) -> nn.Module:
    """The network that a checkpoint's metadata describes."""
    for module in FAMILIES:
        if family_name(module) == family:
            default = next(iter(module.VARIANTS.values()))
            model: nn.Module = module.build(_changed(default, config))
            return model
    raise UserError(f"unknown family {family!r}; there are {', '.join(family_name(m) for m in FAMILIES)}")


def family_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    fields = {f.name for f in dataclasses.fields(config)}
    if unknown := sorted(set(changes) - fields):
        raise UserError(f"unknown option {', '.join(unknown)}; this network has {', '.join(sorted(fields))}")
    return dataclasses.replace(config, **changes)
