"""The public names: one list for the run and for type checkers, and a user's program is checked against real types."""

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pixeldiff

PROGRAM = """\
from pathlib import Path

import numpy as np
import torch

from pixeldiff import EdgeDetector, create_model, evaluate_edges, fuse, load_model, save_model

detector = EdgeDetector("tiny", threads=1)
edges = detector("photo.jpg", max_size=640)
maps: list[object] = [*detector(("a.jpg", b"")), detector(Path("b.jpg")), detector(torch.zeros(3, 9, 9))]
detector.save(np.zeros((9, 9)), "edges.png")
reveal_type(edges)
result = evaluate_edges("edges", "truth", thresholds=5)
reveal_type(result.ods)
save_model(fuse(create_model("tiny")), "tiny.safetensors")
reveal_type(load_model("tiny.safetensors"))
"""


def check(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """mypy --strict on a user's program that sees pixeldiff as it is imported here."""
    (folder / "program.py").write_text(program)
    words = ["--strict", "--no-incremental", "--follow-imports=silent", "--config-file=", "program.py"]
    home = Path(pixeldiff.__file__).parents[1]
    path = {} if home.name == "site-packages" else {"MYPYPATH": str(home)}  # installed, mypy finds it by itself
    return subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=folder,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_lists_of_public_names_agree():
    tree = ast.parse(Path(pixeldiff.__file__).read_text())
    shown = {
        alias.name: (node.module or "").removeprefix("pixeldiff.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == pixeldiff._HOMES
    listed = next(ast.literal_eval(node.value) for node in ast.walk(tree) if _assigns(node, "__all__"))
    assert sorted(listed) == sorted({"__version__", *shown})
    assert set(pixeldiff.__all__) <= set(listed)
    assert dir(pixeldiff) == pixeldiff.__all__
    if all(importlib.util.find_spec(library) for library in ("torch", "scipy")):
        assert set(pixeldiff.__all__) == set(listed)


def _assigns(node, name):
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


PLAIN = """
import inspect, pickle, pydoc, sys
absent = {"torch", "scipy"}
sys.modules.update(dict.fromkeys(absent))
import pixeldiff

names = {"EdgeDetector", "FaceEmbedder", "ObjectDetector", "Classifier", "UserError", "__version__"}
assert set(dir(pixeldiff)) == names | {"BoundaryScore", "EdgeScores", "evaluate_edges"}, dir(pixeldiff)
assert {name for name, _ in inspect.getmembers(pixeldiff)} == set(dir(pixeldiff))
assert "EdgeDetector" in pydoc.render_doc(pixeldiff)
from pixeldiff import *

assert EdgeDetector is pixeldiff.EdgeDetector
for name, extra, library in (("EdgeModule", "train", "torch"), ("corrupt", "robustness", "scipy")):
    says = f"pixeldiff.{name} needs {library}; install it with: pip install 'pixeldiff[{extra}]'"
    assert not hasattr(pixeldiff, name)
    try:
        getattr(pixeldiff, name)
    except AttributeError as error:
        assert str(error) == says, error
    else:
        raise AssertionError
    try:
        exec(f"from pixeldiff import {name}")
    except ImportError as error:
        assert isinstance(error, pixeldiff.UserError)
        assert (str(error), error.name) == (says, library), error
        assert str(pickle.loads(pickle.dumps(error))) == says
    else:
        raise AssertionError
try:
    pixeldiff.list_models()
except AttributeError as error:
    assert "pip install 'pixeldiff[train]'" in str(error)
try:
    from pixeldiff import EdgeFinder
except ImportError as error:
    assert "cannot import name 'EdgeFinder'" in str(error)
assert not absent & {name for name, module in sys.modules.items() if module}
"""


def test_the_plain_install_can_be_explored_and_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", pixeldiff._HOMES)
def test_public_names_load(name):
    _, library = pixeldiff._extra(pixeldiff._HOMES[name])
    if library:
        pytest.importorskip(library)
    assert getattr(pixeldiff, name).__name__ == name


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="'pixeldiff' has no attribute 'EdgeFinder'"):
        pixeldiff.EdgeFinder  # noqa: B018


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")
def test_a_users_type_checker_sees_the_real_types(tmp_path):
    pytest.importorskip("torch")
    done = check(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stdout
    revealed = [line.split("Revealed type is ")[1] for line in done.stdout.splitlines() if "Revealed" in line]
    assert len(revealed) == 3
    assert "ndarray" in revealed[0]
    assert "float32" in revealed[0] or "_32Bit" in revealed[0]
    assert revealed[1].strip('"').removeprefix("builtins.") == "float"
    assert "torch.nn.modules.module.Module" in revealed[2]

    words = {"threads=1": "cores=1", "size=640": "sizes=640", "thresholds=5": "levels=5", '"tiny.safe': '0, "tiny.safe'}
    words["save(np.zeros((9, 9))"] = "save(7"
    wrong = PROGRAM
    for right, word in words.items():
        wrong = wrong.replace(right, word, 1)
    done = check(wrong, tmp_path)
    assert done.returncode == 1
    assert 'Unexpected keyword argument "cores"' in done.stdout
    assert 'No overload variant of "__call__" of "EdgeDetector" matches' in done.stdout
    assert 'Unexpected keyword argument "levels"' in done.stdout
    assert 'Argument 1 to "save" of "EdgeDetector" has incompatible type "int"' in done.stdout
    assert '"save_model" has incompatible type "int"' in done.stdout
