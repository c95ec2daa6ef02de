"""`pixeldiff bench` and `pixeldiff models`: the figures they report, not how large they are."""

import json
from importlib.util import find_spec

import pytest
from PIL import Image

from pixeldiff import UserError, cli
from pixeldiff.jobs import bench
from pixeldiff.tasks import TASKS, find_task
from tests.scripts import load_script


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return stop.value.code, *capsys.readouterr()


@pytest.fixture
def quick(monkeypatch):
    """As few runs and pixels as will do."""
    monkeypatch.setattr(bench, "_BLOCKS", 1)
    monkeypatch.setattr(bench, "_PER_BLOCK", 2)
    monkeypatch.setattr(bench, "SIZES", ((24, 40), (33, 48)))
    monkeypatch.setattr(bench, "LARGE", (64, 80))


def test_bench_of_a_file(quick, capsys, edge_weights, tmp_path):
    code, out, _ = run(capsys, "bench", "--model", edge_weights, "--threads", 1, "--json", tmp_path / "b.json")
    assert code == 0
    assert "peak memory" in out
    assert max(map(len, out.splitlines())) <= 80
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["machine"]["threads"] == 1
    assert {"cpu", "numpy"} <= set(report["machine"])
    assert ("onnxruntime" in report["machine"]) == (find_spec("onnxruntime") is not None)
    (own,) = report["results"]
    assert (report["command"], own["task"]) == ("bench", "edges")
    assert 0 < own["latency"]["40x24"]["best_ms"] <= own["latency"]["40x24"]["median_ms"]
    assert own["throughput"]["images"] == 40
    assert own["throughput"]["ratio"] > 0
    assert all(peak > 20 for peak in own["peak_memory_mb"].values())


def test_baselines_run_in_turns_with_the_runtime(quick, monkeypatch):
    pytest.importorskip("torch")
    script = load_script("benchmarks/baselines.py")
    monkeypatch.setattr(script, "SIZES", ((24, 40),))
    (times,) = script.measure("tiny", 1).values()
    assert list(times) == ["runtime", "plain_onnx", "torch_unfused"]
    assert all(0 < one["best_ms"] <= one["median_ms"] for one in times.values())


def test_mistakes_of_bench(capsys, tmp_path):
    for arguments in (["--model", "nonsense"], ["--model", tmp_path / "no.onnx"], ["--images", tmp_path / "no"]):
        code, _, err = run(capsys, "bench", *arguments)
        assert (code, err.count("\n")) == (2, 1)


def test_large_images_and_existing_files(capsys, tmp_path, edge_weights, monkeypatch):
    monkeypatch.setattr(bench, "LARGEST", 1000)
    Image.new("RGB", (50, 40)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png has 0\.0 megapixels"):
        bench.throughput(edge_weights, 1, tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # Pillow raises from twice that on
    with pytest.raises(UserError, match=r"no image in .* could be read"):
        bench.throughput(edge_weights, 1, tmp_path)
    (tmp_path / "a.json").touch()
    code, _, err = run(capsys, "bench", "--model", edge_weights, "--json", tmp_path / "a.json")
    assert (code, "a.json exists; give another name or --overwrite" in err) == (2, True)


def test_models_lists_the_cards(capsys, monkeypatch, tmp_path):
    card = {
        "name": "one",
        "task": "edges",
        "params": 73314,
        "files": {".safetensors": {"bytes": 390000, "sha256": "x"}},
        "ods": 0.789,
        "ois": 0.803,
        "license": "Apache-2.0",
    }
    (tmp_path / "one.json").write_text(json.dumps(card))
    unscored = {**card, "name": "two", "ods": None, "ois": None}
    (tmp_path / "two.json").write_text(json.dumps(unscored))
    monkeypatch.setattr("pixeldiff.weights.FOLDER", tmp_path)
    code, out, _ = run(capsys, "models")
    assert code == 0
    assert out.splitlines()[1].split() == ["one", "edges", "73,314", "0.39", "MB", "ODS", "0.789,", "OIS", "0.803"]
    assert out.splitlines()[-1] == "one, two: Apache-2.0"
    rows = json.loads(run(capsys, "models", "--json", "-")[1])["results"]
    wanted = {"name": "one", "params": 73314, "file_bytes": 390000, "ods": 0.789, "ois": 0.803, "license": "Apache-2.0"}
    assert wanted.items() <= rows[0].items()
    assert rows[1]["ods"] is None


def test_models_as_shipped(capsys):
    code, out, _ = run(capsys, "models", "--json", "-")
    table = json.loads(out)
    assert (code, table["version"], table["command"], table["failed"]) == (0, 1, "models", [])
    assert {row["task"] for row in table["results"]} == set(TASKS)
    for row in table["results"]:
        assert row["file_bytes"] == row["files"][find_task(row["task"]).suffix]["bytes"]
        assert all(row[score] > 0 for score in find_task(row["task"]).scores)
