"""The journal of a run: names as they are, and what happens when it cannot be written."""

import json
from pathlib import Path

import pytest

from pixeldiff.training.run_logger import RunLogger


def test_warnings_say_names_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunLogger(tmp_path, 0, 10).warn("not saved: runs/[a]/[/b]")
    assert "runs/[a]/[/b]" in capsys.readouterr().err


def test_the_journal_survives_what_tensorboard_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = RunLogger(tmp_path, 0, 10)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal._board, "add_scalar", full)
    for step in (1, 2):
        journal.advance(step, 1.0)
        journal.record(loss=0.5)
    journal.close()
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("loss") for line in found] == [0.5, None, 0.5]
    assert "TensorBoard log ended" in found[1]["warning"]
