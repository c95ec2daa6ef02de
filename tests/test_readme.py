"""The README is true: its commands and snippets run, its links lead somewhere, its table is what the cards say."""

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pixeldiff.weights import cards

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```bash\n(.*?)```", TEXT, re.S)
    for line in block.splitlines()
    if line.startswith("pixeldiff ")
]
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_have_the_options_they_are_shown_with(words):
    command = getattr(importlib.import_module(f"pixeldiff.cli.{words[1]}"), words[1])
    command.make_context(words[1], words[2:])
    assert all((ROOT / word).exists() for word in words if word.startswith("recipes/"))


def test_detect_commands_run(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("photo.jpg", "photos/a.jpg"):
        shutil.copy(ROOT / "docs/images/chelsea.jpg", tmp_path / name)
    shown = [words[1:] for words in COMMANDS if words[1] == "detect"]
    for words in shown:
        subprocess.run([sys.executable, "-m", "pixeldiff", *words], cwd=tmp_path, check=True, timeout=120)
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.edges.*")}
    assert {"photo.edges.png", "photo.edges.npy", "edges/a.edges.png"} <= made


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run(snippet, monkeypatch):
    if "create_model" in snippet:
        pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    exec(compile(snippet, "README.md", "exec"), {})


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_table_is_the_cards():
    edge_cards = {name: card for name, card in cards().items() if card["task"] == "edges"}
    rows = {row[0]: row[1:] for row in re.findall(r"^\| ([a-z-]+) \| ([\d,]+) \| (\.\d+) / (\.\d+) \|", TEXT, re.M)}
    assert rows == {
        name: (f"{card['params']:,}", f"{card['ods']:.3f}"[1:], f"{card['ois']:.3f}"[1:])
        for name, card in edge_cards.items()
    }
