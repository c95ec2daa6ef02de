"""The manifest: one row per image, whatever stopped, failed or was done again."""

from pathlib import Path

import pyarrow as pa
import pytest

from pixeldiff.addresses import parse
from pixeldiff.errors import UserError
from pixeldiff.jobs.manifest import FOLDER, Manifest, read_manifest


def rows(**statuses: str) -> list[dict[str, str | None]]:
    return [
        {"address": name, "status": status, "error": "bad" if status == "failed" else None}
        for name, status in statuses.items()
    ]


def run(folder: Path, stamp: str, note: str = "n", **statuses: str) -> Manifest:
    manifest = Manifest(parse(str(folder / FOLDER)), note, stamp)
    if statuses:
        manifest.add(rows(**statuses))
    manifest.close()
    return manifest


def shown(folder: Path) -> dict[str, str]:
    table = read_manifest(str(folder))
    count = sum(len(pa.parquet.read_table(one)) for one in (folder / FOLDER).glob("*.parquet"))
    assert count == len(table), "an address has two rows"
    return dict(zip(table["address"].to_pylist(), table["status"].to_pylist(), strict=True))


def test_a_second_run_leaves_one_row_of_each(tmp_path: Path) -> None:
    run(tmp_path, "1", a="done", b="failed", c="failed", other="failed")
    assert shown(tmp_path) == {"a": "done", "b": "failed", "c": "failed", "other": "failed"}
    run(tmp_path, "2", a="skipped", b="done", c="failed", d="done")
    assert shown(tmp_path) == {"a": "done", "b": "done", "c": "failed", "d": "done", "other": "failed"}
    run(tmp_path, "3", a="done", b="done", c="done", d="done", other="done")  # --overwrite
    assert set(shown(tmp_path).values()) == {"done"}
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


def test_results_whose_rows_were_lost_with_the_driver_get_theirs(tmp_path: Path) -> None:
    run(tmp_path, "1", a="done")
    run(tmp_path, "2", a="skipped", b="skipped")
    assert shown(tmp_path) == {"a": "done", "b": "skipped"}


def test_parts_are_written_as_rows_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    manifest = Manifest(parse(str(tmp_path / FOLDER)), "n", "1")
    manifest.add(rows(a="done"))
    assert not (tmp_path / FOLDER).exists()
    now = 31.0
    manifest.add(rows(b="done"))
    assert shown(tmp_path) == {"a": "done", "b": "done"}


def test_rows_of_another_command_are_counted(tmp_path: Path) -> None:
    run(tmp_path, "1", note="detect", a="done", b="failed")
    later = run(tmp_path, "2", note="detect --nms")
    assert (later.others, len(later.settled), len(later.same)) == ({"detect": 1}, 1, 0)


def test_what_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no manifest"):
        read_manifest(str(tmp_path))
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "x.parquet").write_text("no")
    with pytest.raises(UserError, match="is not part of a manifest"):
        run(tmp_path, "1")
