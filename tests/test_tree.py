"""docs/architecture.md shows the tree as it is: every file of the package and of native/ has its line, none stale."""

import ast
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def spelt_out(name: str) -> list[str]:
    """a.{b,c} is a.b and a.c."""
    parts = [part.strip("{}").split(",") for part in re.findall(r"\{[^}]*\}|[^{}]+", name)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def shown() -> list[str]:
    """The files that the tree names; a folder's line is that of its __init__.py where it has one."""
    block = re.search(r"```\n(src/pixeldiff/\n.*?)```", (ROOT / "docs/architecture.md").read_text(), re.S)
    assert block
    files: list[str] = []
    folders: list[str] = []
    for line in block[1].splitlines():
        name, *words = line.split(maxsplit=1)
        depth = (len(line) - len(line.lstrip())) // 2
        folders = folders[:depth]
        if depth:
            assert words, f"{name} is not explained"
        path = "".join(folders) + name
        if not name.endswith("/"):
            files += spelt_out(path)
            continue
        folders.append(name)
        if depth and (ROOT / path / "__init__.py").exists():
            files.append(f"{path}__init__.py")
    return files


def there() -> list[str]:
    """The files of the package and of native/ that are kept."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/pixeldiff", "native"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if shutil.which("git") else None
    if done is None or done.returncode != 0:
        pytest.skip("needs git and its folder")
    return [name for name in done.stdout.splitlines() if (ROOT / name).exists()]


def test_the_tree_is_the_real_one():
    named = shown()
    assert len(named) == len(set(named))
    assert set(there()) - set(named) == set(), "without a line"
    assert set(named) - set(there()) == set(), "lines without a file"


def test_rooms_are_in_the_order_of_their_imports():
    from tests.test_imports import ORDER

    rooms = dict.fromkeys(name.split("/")[2].removesuffix(".py") for name in shown() if name.endswith(".py"))
    assert [room for room in rooms if room in ORDER] == list(ORDER)


def test_top_level_is_small():
    top = {path.name for path in (ROOT / "src/pixeldiff").glob("*.py")} - {"__init__.py", "__main__.py"}
    assert len(top) <= 8


BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.BoolOp, ast.comprehension, ast.match_case)


def test_functions_can_be_read_at_one_sitting():
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(node))
                assert lines <= 50, f"{path.name}: {node.name} has {lines} lines"
                assert branches <= 15, f"{path.name}: {node.name} has {branches} branches"


@pytest.mark.parametrize(("name", "files"), [("a.{b,c}", ["a.b", "a.c"]), ("x.py", ["x.py"])])
def test_braces(name, files):
    assert spelt_out(name) == files
