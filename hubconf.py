"""torch.hub entry points: torch.hub.load("<this folder>", "pidinet_tiny", source="local", pretrained=True)."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

dependencies = ["torch", "safetensors", "numpy"]

try:
    import pixeldiff  # noqa: F401
except ImportError:  # not installed: the sources beside this file will do
    sys.path.insert(0, str(Path(__file__).parent / "src"))


def _entry(name: str) -> Callable[..., Any]:
    def build(pretrained: bool = False, **changes: Any) -> Any:
        from pixeldiff.models import create_model

        return create_model(name, pretrained=pretrained, **changes)

    build.__name__ = name
    build.__doc__ = f"The edge network {name}: normalized RGB (N, 3, H, W) in, edge logits (N, 1, H, W) out."
    return build


pidinet_tiny = _entry("pidinet_tiny")
pidinet_tiny_l = _entry("pidinet_tiny_l")
pidinet_small = _entry("pidinet_small")
pidinet_small_l = _entry("pidinet_small_l")
pidinet_basic = _entry("pidinet_basic")
pidinet_basic_l = _entry("pidinet_basic_l")
