"""The documentation site: made from the code, complete, and nothing on it comes from elsewhere."""

import posixpath
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixeldiff
from pixeldiff.cli import COMMANDS
from pixeldiff.tasks import TASKS
from tests.scripts import ROOT, load_script

SITE = load_script("tools/pages.py")
PAGES = SITE.pages()
CONFIG = (ROOT / "mkdocs.yml").read_text()


def test_the_reference_has_every_public_name():
    named = re.findall(r"^::: pixeldiff\.([\w.]+)\.(\w+)$", PAGES["reference/python.md"], re.M)
    assert {name for _, name in named} == set(pixeldiff._HOMES)
    for module, name in named:
        assert re.search(rf"\b{name}\b", _source(module)), name


def _source(module: str) -> str:
    path = Path(pixeldiff.__file__).parent / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def test_the_reference_has_every_command():
    headings = re.findall(r"^## pixeldiff (\w+)", PAGES["reference/commands.md"], re.M)
    assert list(dict.fromkeys(headings)) == list(COMMANDS)
    assert "## pixeldiff faces compare" in PAGES["reference/commands.md"]
    assert "--scales" in PAGES["reference/commands.md"]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_page(name):
    page = PAGES[f"tasks/{name}.md"]
    assert f"`pixeldiff {SITE.COMMANDS[name]}`" in page
    assert all(one in page for one, card in SITE.weights.cards().items() if card["task"] == name)


def test_the_menu_names_every_page_once():
    named = re.findall(r": ([\w/-]+\.md)$", CONFIG.split("\nnav:")[1], re.M)
    kept = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(named) == sorted(kept | PAGES.keys())


def test_links_of_made_pages_lead_somewhere():
    for place, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
            assert path in PAGES or (ROOT / "docs" / path).exists(), (place, target)


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("[a](../../README.md#networks)", "[a](../index.md#networks)"),
        ("[a](../images/x.png) [b](c.md)", "[a](../images/x.png) [b](c.md)"),
        ("see [the nodes](../../comfyui/README.md)", "see the nodes"),
        ("[a](https://example.org/x.md) [b](#c)", "[a](https://example.org/x.md) [b](#c)"),
    ],
)
def test_links_follow_their_pages(text, moved):
    assert SITE.moved(text, "docs/guide/a.md", "guide/a.md") == moved


def test_nothing_comes_from_elsewhere():
    assert "  font: false" in CONFIG
    assert "http" not in re.sub(r"#.*", "", CONFIG)
    drawing = (ROOT / "docs/images/which-network.svg").read_text()
    words = "".join(ElementTree.fromstring(drawing).itertext())
    assert "href" not in drawing
    assert all(name in words for name in ("tiny", "tiny-l", "small", "basic", "binary-cifar100", "binary-faces"))


def test_the_gallery_shows_what_its_commands_make(tmp_path):
    page = (ROOT / "docs/gallery.md").read_text()
    images = ROOT / "docs/images"
    for name in ("coffee.jpg", "chelsea.jpg"):
        shutil.copy(images / name, tmp_path)
    for command in re.findall(r"^pixeldiff .*", page, re.M):
        words = [sys.executable, "-m", *shlex.split(command)]
        subprocess.run(words, cwd=tmp_path, check=True, timeout=120, stdout=subprocess.DEVNULL)
    shown = set(re.findall(r"images/(gallery/[\w.]+)", page))
    for folder in (images, tmp_path):
        assert {f"gallery/{path.name}" for path in (folder / "gallery").iterdir()} == shown
    for name in shown:
        assert _difference(images / name, tmp_path / name) < 0.01, name
    assert sum((images / name).stat().st_size for name in shown) < 500_000


def _difference(one: Path, other: Path) -> float:
    """Of pixels, their mean in [0, 1]; of drawings, that of their lengths: instruction sets may round apart."""
    if one.suffix == ".svg":
        return abs(one.stat().st_size / other.stat().st_size - 1)
    first, second = (np.asarray(Image.open(path), float) for path in (one, other))
    return float(np.abs(first - second).mean() / 255)
