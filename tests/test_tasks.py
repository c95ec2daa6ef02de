"""The table of tasks: every piece that a row names is there, and a made-up task is known to every command."""

import dataclasses
import json
import subprocess
import sys

import pytest

from pixeldiff.cli import main
from pixeldiff.errors import UserError
from pixeldiff.tasks import TASKS, find_task, load, task_of_dataset
from tests.extras import NEEDS_TORCH


def test_the_table_imports_nothing_of_the_house():
    code = "import sys, pixeldiff.tasks; print(*(m for m in sys.modules if m.startswith('pixeldiff.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"pixeldiff.tasks", "pixeldiff.errors"}


def test_rows_are_found_by_name_and_by_data_set():
    for name, task in TASKS.items():
        assert find_task(name) is task
        assert name == task.name
        assert all(task_of_dataset(dataset) is task for dataset in task.datasets)
        assert all(form.format(1.0) for form in task.scores.values())
    datasets = [dataset for task in TASKS.values() for dataset in task.datasets]
    assert len(datasets) == len(set(datasets))


@NEEDS_TORCH
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_piece_is_there(task):
    assert all(map(callable, (load(task.runtime), load(task.export), load(task.bench))))
    for module, names in (
        (task.evaluation, ("Options", "prepare")),
        (task.robustness, ("LAYOUT", "prepare")),
        (task.training, ("Data", "Loss", "Evaluate", "Task", "Network")),
    ):
        assert all(hasattr(load(module), name) for name in names)
    assert load(task.robustness).LAYOUT.scores[0] == next(iter(task.scores)), "networks are ranked alike everywhere"


def test_unknown_names_are_told_what_there_is():
    with pytest.raises(UserError, match="unknown task 'edge'; there are edges, classes"):
        find_task("edge")
    with pytest.raises(UserError, match=r"unknown data set 'bsds'; there are custom, bsds500, .*cifar100, folder"):
        task_of_dataset("bsds")


# --- a made-up task: one row, and one file per room ----------------------------------------------------------------

ROOMS = {
    "runtime": '''
"""Counts the stripes of an image."""
from pixeldiff.weights import runnable

class Counter:
    def __init__(self, path, threads=None, streams=1):
        self.count = runnable(path, "stripes")[1]["count"]
    def __call__(self, image):
        return self.count
''',
    "bench": """
def measure(path, threads, images, others):
    return {"latency": {"9x9": {"runtime": dict.fromkeys(("median_ms", "p10_ms", "p90_ms"), 2.0)}}}
""",
    "export": """
from pixeldiff.weights import trained

def export(weights, destination, pattern=None):
    destination.write_bytes(trained(weights).read_bytes())
    return 0.0
""",
    "evaluation": '''
from dataclasses import dataclass, field
from pixeldiff.evaluation import Outcome

@dataclass(frozen=True)
class Options:
    """How evenly a network counts the stripes of zebras."""
    stretch: int = field(default=1, metadata={"least": 1, "help": "Widen the zebras."})
    thresholds: int = field(default=99, metadata={"help": "As edges."})

def prepare(options, asked):
    return Job(options, asked)

@dataclass(frozen=True)
class Job:
    options: Options
    asked: object
    streams: int = 1
    def run(self, network, progress):
        progress(network.name, 1)(1)
        score = network.run(None) / self.options.stretch
        return Outcome([{"name": network.name, "evenness": score}], [f"{network.name}: evenness {score}"])
''',
    "robustness": """
from pixeldiff.robustness import Layout

LAYOUT = Layout(("evenness",), "evenness", "evenness", 1, 9, ("fog",), (("weather",),))

def prepare(data, seed, limit, threads):
    return Scorer()

class Scorer:
    source, kinds, has_clean, streams, images = "zebras", LAYOUT.kinds, False, 1, 3
    def __call__(self, condition, networks, tick):
        return {name: {"evenness": network(None) + condition[1]} for name, network in networks.items()}
""",
}


@pytest.fixture
def stripes(tmp_path, monkeypatch):
    """The row of a task that nobody has heard of; its networks are files that hold a number."""
    package = tmp_path / "made_up"
    package.mkdir()
    for room, text in {"__init__": "", **ROOMS}.items():
        (package / f"{room}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    row = dataclasses.replace(
        TASKS["edges"],
        name="stripes",
        suffix=".str",
        runs_too=(),
        scores={"evenness": "evenness {:.1f}"},
        datasets=("zebras",),
        runtime="made_up.runtime:Counter",
        evaluation="made_up.evaluation",
        robustness="made_up.robustness",
        export="made_up.export:export",
        bench="made_up.bench:measure",
    )
    monkeypatch.setitem(TASKS, "stripes", row)
    described = {"name": "net", "task": "stripes", "count": 6}
    header = json.dumps({"__metadata__": {"pixeldiff": json.dumps(described)}}).encode()
    (tmp_path / "net.str").write_bytes(len(header).to_bytes(8, "little") + header)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "made_up"]:
        del sys.modules[name]


def run(capsys, *arguments: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert not stopped.value.code, printed.err
    return printed.out


def test_eval_knows_a_made_up_task(stripes, capsys):
    helped = run(capsys, "eval", "--help")
    assert "Stripes (--dataset zebras):\n  How evenly a network counts the stripes of zebras.\n  --stretch" in helped
    given = ("eval", "--dataset", "zebras", "--weights", stripes / "net.str", "--stretch", 3, "--thresholds", 5)
    assert run(capsys, *given) == "net: evenness 2.0\n"
    assert json.loads(run(capsys, *given, "--json", "-"))["results"] == [{"name": "net", "evenness": 2.0}]
    with pytest.raises(SystemExit):
        main(["eval", "--dataset", "bsds500", "--stretch", "3"])
    assert "--stretch is of stripes (zebras), and bsds500 of edges" in capsys.readouterr().err


def test_models_bench_and_export_know_a_made_up_task(stripes, capsys, monkeypatch):
    shipped = stripes / "shipped"
    shipped.mkdir()
    card = {"name": "net", "task": "stripes", "params": 1, "files": {".str": {"bytes": 10**6}}, "evenness": 2}
    (shipped / "net.json").write_text(json.dumps(card))
    content = (stripes / "net.str").read_bytes()
    for suffix in (".str", ".safetensors"):
        (shipped / f"net{suffix}").write_bytes(content)
    monkeypatch.setattr("pixeldiff.weights.FOLDER", shipped)
    assert run(capsys, "models").splitlines()[1].split() == ["net", "stripes", "1", "1.00", "MB", "evenness", "2.0"]
    assert json.loads(run(capsys, "models", "--json", "-"))["results"][0]["task"] == "stripes"
    measured = json.loads(run(capsys, "bench", "--json", "-"))["results"]
    assert [(one["name"], one["task"]) for one in measured] == [("net", "stripes")]
    assert "2.0 ms" in run(capsys, "bench", "--model", stripes / "net.str")
    pytest.importorskip("torch")
    with pytest.raises(SystemExit):
        main(["export", "net", "--to", str(stripes / "new.onnx")])
    assert "networks for stripes need a name that ends in .str" in capsys.readouterr().err
    run(capsys, "export", "net", "--to", stripes / "new.str")
    assert (stripes / "new.str").read_bytes() == content


def test_robustness_knows_a_made_up_task(stripes, capsys):
    assert f"--task [{'|'.join(TASKS)}]" in run(capsys, "robustness", "--help")
    pytest.importorskip("scipy")
    given = ("robustness", "--task", "stripes", "--model", stripes / "net.str", "--json", stripes / "r.json")
    printed = run(capsys, *given)
    assert [line.split() for line in printed.splitlines() if "(L" in line] == [
        ["net", "(L5)", "|", "11.0"],
        ["net", "(L1)", "|", "7.0"],
    ]
    assert run(capsys, *given) == printed  # from the file
