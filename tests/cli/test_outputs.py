"""No output of any command replaces what the command reads, whatever the option and in spite of --overwrite."""

import json
import os
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from pixeldiff.cli import app
from pixeldiff.cli._outputs import OUTPUTS
from pixeldiff.errors import OutputError


@pytest.fixture
def here(tmp_path, rng, monkeypatch):
    """A folder with photos, weights, maps and a data set's JSON, which is the current one."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.side_1.png", "c.jpg", "photos/d.png", "photos/sub/d.png", "photos/photos/d.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (17, 21, 3), dtype=np.uint8)).save(name)
    for name in ("points.json", "names.json", "photos/instances.json", "net.json", "net.onnx"):
        Path(name).write_text('{"a": 1}')
    os.symlink("c.jpg", "linked.png")
    os.symlink("points.json", "other.json")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["detect", "c.jpg", "-o", "w.png", "--json", "c.jpg"], "c.jpg"),
        (["detect", "c.jpg", "-o", "w.png", "--json", "a.png"], "a.png"),
        (["detect", "photos", "-o", "out", "--json", "photos/d.png"], "d.png"),
        (["detect", "photos", "-o", "out", "--json", "photos/instances.json"], "instances.json"),
        (["detect", "photos/*", "-o", "out", "--json", "photos/instances.json"], "instances.json"),
        (["detect", "c.jpg", "-o", "w.png", "--model", "net.json", "--json", "net.json"], "net.json"),
        (["detect", "c.jpg", "-o", "linked.png"], "linked.png"),
        (["detect", "b.side_1.png", "-o", "b.png", "--sides"], "b.side_1.png"),
        (["objects", "c.jpg", "-o", "w.jpg", "--json", "c.jpg"], "c.jpg"),
        (["objects", "names.json", "--no-draw", "--json", "names.json"], "names.json"),
        (["classify", "c.jpg", "--json", "c.jpg"], "c.jpg"),
        (["classify", "names.json", "--json", "names.json"], "names.json"),
        (["faces", "align", "photos", "-o", "out", "--landmarks", "points.json", "--json", "other.json"], "other.json"),
        (["faces", "align", "c.jpg", "-o", "out", "--json", "c.jpg"], "c.jpg"),
        (["faces", "compare", "a.png", "names.json", "--json", "names.json"], "names.json"),
        (["faces", "search", "photos", "--query", "names.json", "--json", "names.json"], "names.json"),
        (["faces", "align", "photos", "-o", "photos/d.png"], "d.png"),
        (["data", "pseudo-label", "photos", "-o", "out", "--json", "photos/instances.json"], "instances.json"),
        (["data", "pseudo-label", "photos", "-o", "."], "d.png"),
        (["eval", "edges", "photos", "--ground-truth", "photos", "--json", "photos/instances.json"], "instances.json"),
        (
            ["eval", "edges", "photos", "--images", "photos", "--labels", "photos/sub", "--plot", "photos/sub/d.png"],
            "d.png",
        ),
        (
            ["eval", "edges", "-m", "tiny", "--corruption", "fog", "--data-dir", "photos", "--plot", "photos/d.png"],
            "d.png",
        ),
        (["bench", "--model", "net.json", "--json", "net.json"], "net.json"),
        (["info", "net.json", "--json", "net.json"], "net.json"),
        (["export", "net.onnx", "-o", "net.onnx"], "net.onnx"),
        (["data", "corrupt", "a.png", "--corruption", "fog", "-o", "a.png"], "a.png"),
        (["models", "--json", "a.png"], "a.png"),
        (["recipes", "--json", "a.png"], "a.png"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_an_input_is_never_replaced(here, words, names, request):
    if "corrupt" in words:
        pytest.importorskip("scipy")
    if words[0] in ("export", "info"):
        pytest.importorskip("torch")
    before = contents(here)
    result = CliRunner().invoke(app, [*words, "--overwrite"])
    assert isinstance(result.exception, OutputError), result.exception
    assert names in str(result.exception)
    assert contents(here) == before


def test_json_goes_into_json_files_and_earlier_results(here):
    def run(*words):
        return CliRunner().invoke(app, ["models", *words])

    assert isinstance(run("--json", "list.txt").exception, OutputError)
    assert not Path("list.txt").exists()
    assert run("--json", "list.JSON").exit_code == 0
    os.rename("list.JSON", "list.txt")
    assert run("--json", "list.txt", "--overwrite").exit_code == 0  # a result of ours
    assert json.loads(Path("list.txt").read_text())["command"] == "models"


def test_results_may_be_kept_beside_the_images(here, edge_weights):
    words = ["detect", "photos", "-o", "out", "--model", str(edge_weights), "--json", "photos/edges.json"]
    for more in ([], ["--overwrite"]):
        assert CliRunner().invoke(app, [*words, *more]).exception is None
        assert json.loads(Path("photos/edges.json").read_text())["command"] == "detect"


def parameters(group):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, click.Group):
            yield from parameters(command)
        else:
            yield from (one.name for one in command.get_params(click.Context(command)))


def test_what_counts_as_an_output_is_a_parameter():
    assert set(OUTPUTS) <= set(parameters(app))
