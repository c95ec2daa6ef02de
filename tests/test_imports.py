"""The two sentences of the design: the light world imports without torch, and arrows point only backwards.

Both follow from the order of the rooms alone: a room is a folder or a file at the top of the package.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pixeldiff

ROOT = Path(pixeldiff.__file__).parent
LIGHT = (
    *("errors", "machine", "files", "addresses", "edgemap", "options", "image", "figures", "parallel", "tasks"),
    *("data", "metrics", "weights", "inference", "render", "detector", "jobs", "evaluation"),
)
TORCH = ("nn", "models", "training", "export", "analysis")
DOORS = ("compat", "serve", "cli")
ORDER = (*LIGHT, *TORCH, *DOORS)
HEAVY = {"torch", "onnx", "safetensors", "tensorboard"}  # what only the extra `train` installs

MODULES = {path.relative_to(ROOT).with_suffix(""): path for path in sorted(ROOT.rglob("*.py"))}
ROOMS = {module.parts[0] for module in MODULES} - {"__init__", "__main__"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported below a node; of ours with what is taken from it, which may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "pixeldiff":
                yield from (f"pixeldiff.{alias.name}" for alias in node.names)


def rooms(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("pixeldiff.")} & ROOMS


def at_once(path: Path) -> ast.Module:
    """What a file does when it is imported: without bodies of functions and what only a type checker reads."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if checking or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
    return tree


def test_every_room_has_its_place() -> None:
    assert set(ORDER) == ROOMS
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("room", ORDER)
def test_arrows_point_only_backwards(room: str) -> None:
    later = set(ORDER[ORDER.index(room) + 1 :])
    for module, path in MODULES.items():
        if module.parts[0] == room:
            assert not rooms(set(imported(ast.parse(path.read_text())))) & later, module


@pytest.mark.parametrize("room", [*LIGHT, *DOORS])
def test_the_light_world_and_the_doors_open_without_torch(room: str) -> None:
    """A light room never asks for torch; a door does so inside the function that needs it."""
    for module, path in MODULES.items():
        if module.parts[0] != room:
            continue
        names = set(imported(ast.parse(path.read_text()) if room in LIGHT else at_once(path)))
        assert not {name.split(".")[0] for name in names} & HEAVY, module
        assert not rooms(names) & set(TORCH), module


@pytest.mark.parametrize(
    "words",
    [
        ["train", "recipe.toml", "-o", "run"],
        ["export", "net.safetensors", "-o", "net.onnx"],
        ["info", "bipidinet18"],
        ["analyze", "net.safetensors", "-o", "figures"],
    ],
    ids=lambda words: words[0],
)
def test_commands_of_the_torch_world_say_what_to_install(words: list[str], tmp_path: Path) -> None:
    script = f"import sys; sys.modules['torch'] = None\nfrom pixeldiff.cli import main\nmain({words})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs torch; install it with: pip install 'pixeldiff[" in done.stderr


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("import pixeldiff", {"torch", "onnxruntime", "numpy"}),
        ("from pixeldiff import EdgeDetector", {"torch"}),
        ("import pixeldiff.cli.detect", {"torch"}),
        ("import pixeldiff.compat.controlnet", {"torch"}),
    ],
)
def test_light_imports_leave_out(statement: str, left_out: set[str]) -> None:
    script = f"{statement}\nimport sys; sys.exit(bool({left_out} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
