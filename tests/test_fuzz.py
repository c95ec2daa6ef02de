"""The fuzz program: 500 damaged files do no harm, its seeds are valid, its cases the same each time."""

import subprocess
import sys
from pathlib import Path

import pytest

from pixeldiff.errors import UserError
from tests.fuzz.__main__ import Case, judge, run_batch
from tests.fuzz.corpus import Format, formats


def test_500_damaged_files_do_no_harm():
    command = [sys.executable, "-m", "tests.fuzz", "--count", "500", "--keep", ""]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_before_the_damage_are_good(tmp_path):
    for name, entry in formats().items():
        folder = tmp_path / name
        folder.mkdir()
        for seed in entry.seeds:
            for file, content in {**entry.companions, entry.file: seed}.items():
                (folder / file).write_bytes(content)
            verdicts = {judge(folder / entry.file, Format(entry.file, (), (reader,)))[0] for reader in entry.readers}
            assert verdicts in ({"ok"}, {"ok", "refused"}), name


def test_a_case_is_the_same_each_time():
    for name in formats():
        assert Case(3, name, 5).content() == Case(3, name, 5).content()
    assert Case(3, "png", 5).content() != Case(4, "png", 5).content()


def _refuse(path):
    raise UserError("no")


def _run_out(path):
    try:
        raise MemoryError
    except MemoryError as error:
        raise UserError("no") from error


def _loop(path):
    while True:
        pass


def _die(path):
    import ctypes

    ctypes.string_at(0)


@pytest.mark.parametrize(
    ("reader", "verdict"),
    [(str, "ok"), (_refuse, "refused"), (int, "foreign"), (_run_out, "memory"), (_loop, "hang"), (_die, "crash")],
)
def test_verdicts(monkeypatch, reader, verdict):
    monkeypatch.setattr("tests.fuzz.__main__.CPU_SECONDS", 0.2)
    monkeypatch.setitem(formats(), "tried", Format("case", (b"x",), (reader,)))
    monkeypatch.setitem(formats(), "fine", Format("case", (b"x",), (str,)))
    results = run_batch([Case(0, "fine", 1), Case(0, "tried", 1), Case(0, "fine", 2)])
    assert [result.verdict for result in results] == ["ok", verdict, "ok"]
