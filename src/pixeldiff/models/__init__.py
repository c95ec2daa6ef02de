"""Networks by name.

A family is one module and one entry in FAMILIES. The module holds

    TASK                      the task of its networks
    VARIANTS                  name -> config, a frozen dataclass
    build(config)             the network of a config; it keeps the config as `.config`
    preprocessing(config)     how images are prepared for it, unless the weights file says otherwise
    init_from(model, other)   give `model` the weights of a related network; a UserError says why they do not fit

Weights files name their family as FAMILIES does. Networks for edges also have `side_logits(x)`: maps of logits at the
input's size, the fused one last. A family whose networks run on pixeldiff's C++ engine has engine_layout(model).
"""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatch
from types import ModuleType
from typing import Any

from torch import nn

from pixeldiff.errors import UserError, suggestion
from pixeldiff.models import bipidinet, detector, ghostnet, pidinet, sphereface
from pixeldiff.weights import canonical_name, cards

FAMILIES: dict[str, ModuleType] = {
    "pidinet": pidinet,
    "bipidinet": bipidinet,
    "sphereface": sphereface,
    "ghostnet": ghostnet,
    "detector": detector,
}


def list_models(filter: str = "", task: str | None = None, pretrained: bool = False) -> list[str]:
    """List the names that `create_model` takes.

    Args:
        filter: A pattern with wildcards: list_models("resnet18*").
        task: Only networks for "edges", "classes", "faces" or "objects".
        pretrained: Only names with weights, for create_model(name, pretrained=True) and load_model(name).
    """
    if pretrained:
        tasks = {name: card["task"] for name, card in cards().items()}
    else:
        tasks = {name: family.TASK for family in FAMILIES.values() for name in family.VARIANTS}
    return [name for name in tasks if task in (None, tasks[name]) and (not filter or fnmatch(name, filter))]


def create_model(name: str, *, pretrained: bool = False, **changes: Any) -> nn.Module:
    """Build a network by name.

    Args:
        name: A name of `list_models()`; "pidinet_tiny" and "tiny" are the same network.
        pretrained: Load the weights of that name.
        changes: Other values for fields of its config: create_model("tiny", pattern="baseline").
    """
    key = canonical_name(name)
    if not pretrained:
        family, config = _variant(key)
        model: nn.Module = family.build(_changed(config, changes))
        return model
    from pixeldiff.models.saving import load_model

    if changes:
        raise UserError(f"pretrained weights of {key!r} fit its own config only; drop {', '.join(changes)}")
    if key not in cards():
        raise UserError(f"no pretrained weights for {key!r}; {suggestion(key, cards())}")
    return load_model(key).train()


def model_config(name: str) -> Any:
    """Return the config of a network, a frozen dataclass: what `create_model` may change."""
    return _variant(canonical_name(name))[1]


def model_task(name: str) -> str:
    """Return the task of a network."""
    task: str = _variant(canonical_name(name))[0].TASK
    return task


def _variant(key: str) -> tuple[ModuleType, Any]:
    for family in FAMILIES.values():
        if key in family.VARIANTS:
            return family, family.VARIANTS[key]
    raise UserError(f"unknown model {key!r}; {suggestion(key, list_models())}")


def build_from_config(family: str, config: dict[str, Any]) -> nn.Module:
    """Build the network that a weights file describes."""
    if family not in FAMILIES:
        raise UserError(f"unknown family {family!r}; {suggestion(str(family), FAMILIES)}")
    module = FAMILIES[family]
    model: nn.Module = module.build(_changed(next(iter(module.VARIANTS.values())), config))
    return model


def family_of(model: nn.Module) -> str:
    """Return the name in FAMILIES of a network's family."""
    for name, module in FAMILIES.items():
        if module.__name__ == type(model).__module__:
            return name
    raise UserError(f"{type(model).__name__} is not one of pixeldiff's networks ({', '.join(list_models())})")


def init_from(model: nn.Module, other: nn.Module) -> None:
    """Give a network the weights of a related one, as its family defines; a UserError says why they do not fit."""
    FAMILIES[family_of(model)].init_from(model, other)


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    fields = {f.name for f in dataclasses.fields(config)}
    if unknown := sorted(set(changes) - fields):
        raise UserError(f"unknown option {', '.join(unknown)}; this network has {', '.join(sorted(fields))}")
    return dataclasses.replace(config, **changes)
