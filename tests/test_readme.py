"""README and docs are true: commands have their options, snippets run, links lead somewhere, the table is the cards."""

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pixeldiff.weights import cards
from tests.extras import optional

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / name
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASE.md", "CHANGELOG.md", "comfyui/README.md")
]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def commands(page: Path) -> list[list[str]]:
    """The lines of a page's code blocks, fenced or indented, that begin with `pixeldiff`."""
    lines = page.read_text().replace("\\\n", " ").splitlines()
    shown = (line.removeprefix("    ") for line in lines if line.startswith(("pixeldiff ", "    pixeldiff ")))
    return [shlex.split(line.replace("$SLURM_ARRAY_TASK_ID", "1"), comments=True) for line in shown]


COMMANDS = {" ".join(words): words for page in PAGES for words in commands(page)}
README = commands(ROOT / "README.md")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_commands_have_the_options_they_are_shown_with(words):
    command: click.Command = getattr(importlib.import_module(f"pixeldiff.cli.{words[1]}"), words[1])
    words = words[1:]
    while isinstance(command, click.Group):
        command, words = command.commands[words[1]], words[1:]
    command.make_context(words[0], words[1:])
    if words[0] == "train":
        optional("pixeldiff.training.recipe_file").read_file(words[1])


def test_what_is_taken_from_a_run_is_its_last_stage():
    """A page or a tool that names the weights of runs/NAME/STAGE names the last stage of the recipe edges/NAME."""
    recipes = optional("pixeldiff.training.recipe_file")
    named = []
    for page in (*PAGES, *(ROOT / "tools").glob("*.py")):
        text = page.read_text()
        named += re.findall(r"runs/([\w-]+)/([\w-]+)/(?:last|best)\.safetensors", text)
        named += re.findall(r"the last one, `runs/([\w-]+)/([\w-]+)`", text)
        named += re.findall(r"--recipe edges/([\w-]+) --stage ([\w-]+)", text)
    shipped = {name: recipes.read_file(f"edges/{name}").stages for name in ("tiny", "tiny-l", "small", "basic")}
    of_shipped = [(name, stage) for name, stage in named if shipped.get(name)]
    assert len(of_shipped) >= 6
    assert [stage for _, stage in of_shipped] == [list(shipped[name])[-1] for name, _ in of_shipped]


def test_names_that_contributors_are_sent_to_are_defined_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    sent = re.findall(r"`(\w+)` (?:of|in) `([\w/]+\.py)`", text)
    for module, line in re.findall(r"`([\w/]+\.py)`: add its name to (.*),", text):
        sent += [(name, module) for name in re.findall(r"`(\w+)`", line)]
    assert {name for name, _ in sent} >= {"KINDS", "FAMILIES", "COMMANDS", "FORMATS"}
    for name, module in sent:
        code = (ROOT / "src/pixeldiff" / module).read_text()
        assert re.search(rf"^(?:def {name}\b|{name}\b.* = )", code, re.M), (name, module)


def test_detect_commands_run(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("photo.jpg", "photos/a.jpg"):
        shutil.copy(ROOT / "docs/images/chelsea.jpg", tmp_path / name)
    shown = [words[1:] for words in README if words[1] == "detect"]
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


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings, as they are addressed."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        if name.startswith("https://"):
            continue
        linked = page.parent / name if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_table_is_the_cards_and_the_benchmark():
    figures = json.loads((ROOT / "benchmarks/results/edges_engine.json").read_text())["networks"]
    edge_cards = {name: card for name, card in cards().items() if card["task"] == "edges"}
    row = r"^\| ([a-z-]+) \| ([\d,]+) \| (\.\d+) / (\.\d+) \| (\d+) \| (\d\.\d) MB \|"
    assert {name: tuple(cells) for name, *cells in re.findall(row, TEXT, re.M)} == {
        name: (
            f"{card['params']:,}",
            f"{card['ods']:.3f}"[1:],
            f"{card['ois']:.3f}"[1:],
            f"{figures[name + ' 481x321 threads 2']['native']['median_ms']:.0f}",
            f"{card['files']['.safetensors']['bytes'] / 1e6:.1f}",
        )
        for name, card in edge_cards.items()
    }
