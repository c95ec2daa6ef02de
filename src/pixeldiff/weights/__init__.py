"""The shipped weights: one card (JSON) per network, beside its files. No torch here.

`<name>.json` is the card, `<name>.onnx` runs anywhere, `<name>.safetensors` is for training and research.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from pixeldiff.errors import UserError

FOLDER = Path(__file__).parent
TORCH_SUFFIXES = (".safetensors", ".pth", ".pt")
METADATA_KEY = "pixeldiff"  # what describes a network inside its file, in each of our formats


def canonical_name(name: str) -> str:
    """One spelling for a network: "pidinet_tiny_l", "PiDiNet-tiny-l" and "tiny-l" are the same edge network."""
    return re.sub("_l$", "-l", re.sub("^pidinet[_-]", "", name.lower()))


def cards() -> dict[str, dict[str, Any]]:
    """Every shipped network's card, by name."""
    return {path.stem: read_description(path.read_bytes(), path) for path in sorted(FOLDER.glob("*.json"))}


def best_classifier() -> str:
    """The shipped packed network with the highest top-1 accuracy."""
    packed = {name: card["top1"] for name, card in cards().items() if ".pdn" in card["files"]}
    if not packed:
        raise UserError("no packed network is shipped with this version; give one with --model FILE.pdn")
    return max(packed, key=packed.__getitem__)


def find(name: str, suffix: str) -> Path:
    """The shipped file of a network, e.g. find("tiny", ".onnx")."""
    path = FOLDER / f"{canonical_name(name)}{suffix}"
    if not path.exists():
        have = sorted(p.name.removesuffix(suffix) for p in FOLDER.glob(f"*{suffix}"))
        raise UserError(f"no shipped weights named {name!r}; there are {', '.join(have) or 'none'} (or give a file)")
    return path


def resolve(given: str | os.PathLike[str], suffix: str) -> Path:
    """The shipped weights of that name (also where a file here is called tiny), or a file as given."""
    name, path = os.fspath(given), Path(given)
    if name == path.name and (shipped := FOLDER / f"{canonical_name(name)}{suffix}").is_file():
        return shipped
    if path.is_file():
        return path
    if path.suffix in (*TORCH_SUFFIXES, ".onnx", ".pdn"):
        raise UserError(f"no weights file {path}; check the name")
    return find(name, suffix)


def runnable(given: str | os.PathLike[str], suffix: str) -> Path:
    """As `resolve`, for those who run .onnx or .pdn files only."""
    path = Path(given)
    if path.suffix in TORCH_SUFFIXES:
        raise UserError(f"{path} needs torch to run; export it first: pixeldiff export {path} --to {path.stem}{suffix}")
    return resolve(given, suffix)


def read_description(text: str | bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """A JSON object: what stands under METADATA_KEY in a file, or a card."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: its description is no JSON object; export it again") from error


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
