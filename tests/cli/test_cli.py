"""The command line as a whole: every command exists, help is light, mistakes are one line and exit code 2."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pixeldiff import weights
from pixeldiff.cli import COMMANDS
from tests.extras import NEEDS_TORCH


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "pixeldiff", *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_a_command_with_help(command):
    loaded = getattr(importlib.import_module(f"pixeldiff.cli.{command}"), command)
    assert isinstance(loaded, click.Command)
    assert loaded.help
    assert all(p.help for p in loaded.params if isinstance(p, click.Option))


def test_help_lists_the_commands():
    result = run("--help")
    assert result.returncode == 0
    assert all(command in result.stdout for command in COMMANDS)
    assert run("--version").stdout.startswith("pixeldiff, version ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["detekt"], "no such command 'detekt'"),
        (["detct", "a b.jpg", "--nms"], "hint: pixeldiff detect 'a b.jpg' --nms\n"),
        (["photo.jpg", "--nms"], "hint: pixeldiff detect photo.jpg --nms\n"),
        (["clip.MP4"], "hint: pixeldiff detect clip.MP4\n"),
        (["docs"], "hint: pixeldiff detect docs\n"),
        (["frobnicate"], "expected detect, serve, objects, classify"),
        (["--nms", "photo.jpg"], "options follow the command; hint: pixeldiff detect ... --nms\n"),
        (["detect", "--frobnicate"], "no such option --frobnicate\n"),
        (["detect", "--thresold", "1"], "no such option --thresold; hint: --threshold\n"),
        (["detect"], "Missing argument"),
        (["detect", "x" * 300], "File name too long"),
        (["detect", "\x1b[2J.jpg"], "\\x1b[2J.jpg"),
        (["detect", ""], "an empty argument was given ('')"),
        (["eval", "edges", "", "--dataset", "bsds500"], "an empty argument was given ('')"),
        (["data", "corrupt", "x.png", "--corruption", "fog", "--output="], "an empty argument was given (--output=)"),
        (
            ["eval", "edges", "x", "--dataset", "bsds500", "--data-dir", "~nobody-here/BSDS500"],
            "no data folder '~nobody-here",
        ),
        (["eval", "edges", "x", "--dataset", "bsds500", "--thresholds", "100000"], "--thresholds"),
        pytest.param(["export", "tiny", "-o", "/proc/tiny.onnx"], "/proc", marks=NEEDS_TORCH),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, says):
    result = run(*arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_names_that_are_no_text_are_told(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.jpg"
    shutil.copy("docs/images/coffee.jpg", path)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "pixeldiff", "detect", path]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "\\udcff.edges.png" in result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_without_room_is_told():
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "pixeldiff", "models", "--json", "-"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "cannot go on (No space left on device)" in result.stderr


def completed(*words, shell="bash"):
    environment = {
        **os.environ,
        "_PIXELDIFF_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["pixeldiff", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = subprocess.run([sys.executable, "-m", "pixeldiff"], capture_output=True, text=True, env=environment)
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_shells_complete_commands_files_networks_and_options():
    assert completed("de") == ["plain,detect"]
    for words in (["detect", "ph"], ["detect", "-o", "ph"], ["classify", "ph"], ["data", "corrupt", "ph"]):
        assert completed(*words) == ["file,ph"]
    assert set(completed("detect", "--model", "ti")) == {"plain,tiny", "plain,tiny-l"}
    assert "plain,bipdc-cifar100" in completed("classify", "--model", "bi")
    assert completed("detect", "--nm") == ["plain,--nms"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_completion(shell):
    environment = {**os.environ, "_PIXELDIFF_COMPLETE": f"{shell}_source"}
    result = subprocess.run([sys.executable, "-m", "pixeldiff"], capture_output=True, text=True, env=environment)
    assert "_PIXELDIFF_COMPLETE" in result.stdout
    assert result.returncode == 0


def test_classify_has_a_default():
    result = run("classify", "docs/images/coffee.jpg", "--json", "-")
    assert result.returncode == 0
    scores = {name: card["top1"] for name, card in weights.cards().items() if card["task"] == "classes"}
    assert scores[json.loads(result.stdout)["model"]] == max(scores.values())
