"""The table of tasks: every piece that differs by task is there."""

import subprocess
import sys

import pytest

from pixeldiff.errors import UserError
from pixeldiff.jobs.bench import MEASURES
from pixeldiff.tasks import TASKS, find_task, load
from pixeldiff.weights import suffixes
from tests.extras import NEEDS_TORCH


def test_the_table_imports_no_other_module_of_the_package():
    code = "import sys, pixeldiff.tasks; print(*(m for m in sys.modules if m.startswith('pixeldiff.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"pixeldiff.tasks", "pixeldiff.errors"}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_a_class_scores_and_suffixes(name):
    task = find_task(name)
    assert task.name == name
    assert callable(load(task.model))
    assert all(form.format(1.0) for form in task.scores.values())
    assert suffixes(name)[0] == task.suffix


@NEEDS_TORCH
@pytest.mark.parametrize("name", TASKS)
def test_every_piece_is_there(name):
    from pixeldiff.cli.export import EXPORTERS
    from pixeldiff.training import tasks as training

    assert callable(load(EXPORTERS[name]))
    assert callable(MEASURES[name])
    for modules, names in ((training.MODULES, ("Data", "Loss", "Evaluate", "Task")),):
        assert all(hasattr(load(modules[name]), piece) for piece in names)


def test_models_are_ranked_alike_in_cards_and_tables():
    pytest.importorskip("scipy")
    from pixeldiff.evaluation.robustness import LAYOUTS

    ranking = {name: next(iter(task.scores)) for name, task in TASKS.items()}
    assert {name: layout.scores[0] for name, layout in LAYOUTS.items()} == ranking


def test_an_unknown_task_is_an_error_that_lists_the_tasks():
    with pytest.raises(UserError, match=r"'edge'.*edges, classes"):
        find_task("edge")
