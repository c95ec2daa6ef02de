"""The table of tasks: every piece that a row names is there, and a made-up task is known to every verb."""

import dataclasses
import json
import subprocess
import sys

import pytest

from pixeldiff.cli import main
from pixeldiff.errors import UserError
from pixeldiff.tasks import TASKS, find_task, load, task_of_dataset


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


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_piece_is_there(task):
    assert all(map(callable, (load(task.runtime), load(task.export))))
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
"""Counts the stripes of a picture."""
class Counter:
    def __init__(self, path, threads=None, streams=1):
        self.count = int(path.read_text())
    def __call__(self, picture):
        return self.count
''',
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
    source, kinds, has_clean, streams, pictures = "zebras", LAYOUT.kinds, False, 1, 3
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
        does="stripes of zebras",
        suffix=".str",
        scores={"evenness": "evenness {:.1f}"},
        datasets=("zebras",),
        runtime="made_up.runtime:Counter",
        evaluation="made_up.evaluation",
        robustness="made_up.robustness",
    )
    monkeypatch.setitem(TASKS, "stripes", row)
    (tmp_path / "net.str").write_text("6")
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


def test_robustness_knows_a_made_up_task(stripes, capsys):
    assert "--task [edges|classes|stripes]" in run(capsys, "robustness", "--help")
    given = ("robustness", "--task", "stripes", "--model", stripes / "net.str", "--json", stripes / "r.json")
    printed = run(capsys, *given)
    assert [line.split() for line in printed.splitlines() if "(L" in line] == [
        ["net", "(L5)", "|", "11.0"],
        ["net", "(L1)", "|", "7.0"],
    ]
    assert run(capsys, *given) == printed  # from the file
