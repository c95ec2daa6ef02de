"""Pages of the documentation site that are generated from the code; mkdocs.yml calls this as a hook.

Start, contributing, security, releases and changes are the files of those names beside docs/; tasks come from the table
of tasks and the cards of the pretrained models, commands from click, the public names from `pixeldiff.__all__`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import pixeldiff
from pixeldiff import cli, weights
from pixeldiff.tasks import TASKS

ROOT = Path(__file__).parents[1]
BESIDE = {  # files beside docs/ and the pages they become
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "RELEASE.md": "release.md",
    "CHANGELOG.md": "changelog.md",
}
COMMANDS = {"edges": "detect", "classes": "classify", "faces": "faces", "objects": "objects"}
GUIDES = {"edges": "everyday", "classes": "binary", "faces": "faces", "objects": "objects"}


def moved(text: str, before: str, after: str) -> str:
    """Rewrite a page's links from its place in the repository to its place on the site; other links become text."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if target.startswith("http") or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(before), target))
        page = BESIDE.get(path) or (path[len("docs/") :] if path.startswith("docs/") else None)
        if page is None:
            return words.lstrip("!")[1:-1]
        return f"{words}({posixpath.relpath(page, posixpath.dirname(after) or '.')}{anchor})"

    return re.sub(r"(!?\[[^\]]*\])\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def python_page() -> str:
    lines = ["# Python", "", "Every public name; they load on first use, so `import pixeldiff` is quick.", ""]
    for name in sorted(pixeldiff._HOMES, key=str.lower):
        lines += [f"::: pixeldiff.{pixeldiff._HOMES[name]}.{name}", ""]
    return "\n".join(lines)


def commands(command: click.Command, words: str) -> Iterator[tuple[str, str]]:
    """Yield each command with its --help."""
    context = click.Context(command, info_name=words, max_content_width=100, terminal_width=100)
    yield words, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner
            yield from commands(inner, f"{words} {name}")


def commands_page() -> str:
    lines = ["# Commands", "", "The `--help` of each command.", ""]
    for words, text in commands(cli.app, "pixeldiff"):
        lines += [f"## {words}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def task_page(name: str) -> str:
    task, guide = TASKS[name], GUIDES[name]
    cards = {model: card for model, card in weights.cards().items() if card["task"] == name}
    lines = [
        f"# {name.capitalize()}",
        "",
        f"[How to use it](../guide/{guide}.md), [what was measured](../results/{guide}.md), the command "
        f"[`pixeldiff {COMMANDS[name]}`](../reference/commands.md#pixeldiff-{COMMANDS[name]}), and in Python "
        f"[`{task.model.split(':')[1]}`](../reference/python.md).",
        "",
        f"Files that run end with `{task.suffix}`. `pixeldiff eval {name}` scores models.",
        "",
    ]
    if not cards:
        return "\n".join(
            [*lines, "There is no pretrained model for this task; `pixeldiff recipes` lists how to train one."]
        )
    lines += ["| model | parameters | file | scores | trained on |", "|---|---|---|---|---|"]
    for model, card in cards.items():
        scores = ", ".join(text.format(card[key]) for key, text in task.scores.items())
        size = card["files"][task.suffix]["bytes"] / 1e6
        lines.append(f"| {model} | {card['params']:,} | {size:.1f} MB | {scores} | {card['data']} |")
    return "\n".join([*lines, "", *(f"    {card['command']}" for card in cards.values())])


def pages() -> dict[str, str]:
    """Return the generated pages by their places on the site."""
    generated = {page: moved((ROOT / name).read_text(), name, page) for name, page in BESIDE.items()}
    generated |= {f"tasks/{name}.md": task_page(name) for name in TASKS}
    return {**generated, "reference/python.md": python_page(), "reference/commands.md": commands_page()}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page of docs/; the links of generated pages are right already."""
    place = page.file.src_uri
    return moved(markdown, f"docs/{place}", place) if (ROOT / "docs" / place).exists() else markdown
