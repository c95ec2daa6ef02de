"""The table of tasks: every piece that a row names is there, and a made-up task is known to every verb."""

import subprocess
import sys

import pytest

from pixeldiff.errors import UserError
from pixeldiff.tasks import TASKS, find_task, task_of_dataset


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


def test_unknown_names_are_told_what_there_is():
    with pytest.raises(UserError, match="unknown task 'edge'; there are edges, classes"):
        find_task("edge")
    with pytest.raises(UserError, match=r"unknown data set 'bsds'; there are custom, bsds500, .*cifar100, folder"):
        task_of_dataset("bsds")
