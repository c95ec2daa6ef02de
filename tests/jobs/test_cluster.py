"""A worker of a cluster by itself: what becomes of images, and what a death before it has left. No cluster runs."""

import json
import os
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pixeldiff import __version__, addresses
from pixeldiff.addresses import parse
from pixeldiff.errors import DiskFullError, UserError
from pixeldiff.jobs.cluster import Work, _list_chunks, _Worker
from pixeldiff.jobs.manifest import digests
from pixeldiff.jobs.operation import ModelSpec, Operation, Output
from tests.test_addresses import s3 as s3


@dataclass(frozen=True)
class Shout(Operation[str]):
    """Turn the text of a file into capitals."""

    provenance: str = "shout"
    parts: tuple[str, ...] = ("side", "")

    def open(self, threads: int, streams: int) -> str:
        return "net"

    def ending(self, source: Path) -> str:
        return "edges.png"

    def run(self, model: str, data: bytes, name: str) -> Output:
        if b"bad" in data:
            raise UserError(f"{name} is bad")
        if b"worse" in data:
            raise ZeroDivisionError("a mistake of ours")
        return Output({"side": model.encode(), "": data.upper()})


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, content in {"a": "one", "b": "two", "c": "bad", "x/a": "worse"}.items():
        path = tmp_path / "photos" / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content)
    return tmp_path / "photos"


def work_on(source: Path, out: str, operation: Operation[Any] = Shout(), overwrite: bool = False) -> Work:
    return Work(operation, str(source), parse(out), overwrite)


def run(work: Work, worker: _Worker | None = None) -> dict[str, Any]:
    """The rows of the images by their names, from one worker."""
    worker = worker or _Worker(work, time.time(), work.out / "begun", __version__)
    chunks = _list_chunks(pa.table({"cpus": [1]}), work, ())
    rows = [row for chunk in chunks for text in worker(chunk)["rows"].to_pylist() for row in json.loads(text)]
    return {"/".join(Path(row["address"]).parts[-2:]): row for row in rows}


def test_bad_images_are_rows(photos: Path, tmp_path: Path) -> None:
    rows = run(work_on(photos, str(tmp_path / "out")))
    assert {name: row["status"] for name, row in rows.items()} == {
        "photos/a.jpg": "done",
        "photos/b.jpg": "done",
        "photos/c.jpg": "failed",
        "x/a.jpg": "failed",
    }
    assert rows["photos/c.jpg"]["error"] == f"{photos}/c.jpg is bad"
    assert rows["x/a.jpg"]["error"] == f"{photos}/x/a.jpg: ZeroDivisionError: a mistake of ours"
    assert (rows["photos/a.jpg"]["size"], rows["photos/a.jpg"]["result"]) == (3, f"{tmp_path}/out/a.edges.png")
    assert (tmp_path / "out/a.edges.png").read_text() == "ONE"
    assert (tmp_path / "out/a.edges.side.png").read_text() == "net"
    assert not any((tmp_path / "out/begun").iterdir())


def test_what_is_there_is_kept_unless_asked(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    old = tmp_path / "out/a.edges.png"
    old.write_text("old")
    os.utime(old, (1, 1))
    assert run(work_on(photos, str(tmp_path / "out")))["photos/a.jpg"]["status"] == "skipped"
    assert old.read_text() == "old"
    assert run(work_on(photos, str(tmp_path / "out"), overwrite=True))["photos/a.jpg"]["status"] == "done"
    assert old.read_text() == "ONE"


def test_a_second_attempt_of_the_same_run_does_nothing_twice(photos: Path, tmp_path: Path) -> None:
    work = work_on(photos, str(tmp_path / "out"), overwrite=True)
    worker = _Worker(work, 0.0, work.out / "begun", __version__)
    run(work, worker)
    before = (tmp_path / "out/a.edges.png").stat().st_mtime_ns
    row = run(work, worker)["photos/a.jpg"]
    assert (row["status"], (tmp_path / "out/a.edges.png").stat().st_mtime_ns) == ("done", before)


def test_settled_images_are_skipped(photos: Path, tmp_path: Path) -> None:
    work = work_on(photos, str(tmp_path / "out"))
    chunks = _list_chunks(pa.table({"cpus": [1]}), work, digests([str(photos / "a.jpg")]))
    skipped = {
        entry[0]: entry[2] for chunk in chunks for text in chunk["jobs"].to_pylist() for entry in json.loads(text)
    }
    assert skipped == {str(photos / name): name == "a.jpg" for name in ("a.jpg", "b.jpg", "c.jpg", "x/a.jpg")}


def test_an_error_of_the_listing_stops_the_run(tmp_path: Path) -> None:
    (row,) = run(work_on(tmp_path / "nowhere", str(tmp_path / "out"))).values()
    assert (row["status"], "no file" in row["error"]) == ("stop", True)


def test_a_image_over_which_workers_died_is_a_row_and_the_rest_is_done(photos: Path, tmp_path: Path) -> None:
    """As it stands after two deaths: the chunk's mark, and two of the image's."""
    out = parse(str(tmp_path / "out"))
    died: list[str] = []

    class Deadly(Shout):
        def run(self, model: str, data: bytes, name: str) -> Output:
            if name.endswith("b.jpg"):
                died.append(name)
                raise KeyboardInterrupt  # nothing catches it, as after a kill
            return super().run(model, data, name)

    for chunk in range(4):
        addresses.write(out / "begun" / f"{chunk:09d}", b"")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(work_on(photos, str(tmp_path / "out"), Deadly()))
    rows = run(work_on(photos, str(tmp_path / "out"), Deadly()))
    assert len(died) == 2
    assert rows["photos/b.jpg"]["error"] == (
        f"{photos}/b.jpg has ended 2 workers; scale it down, or give workers more memory"
    )
    assert (tmp_path / "out/a.edges.png").read_text() == "ONE"


def test_a_full_target_stops_the_run(photos: Path, tmp_path: Path) -> None:
    class Full(Shout):
        def run(self, model: str, data: bytes, name: str) -> Output:
            raise DiskFullError("cannot write: the disk is full; make room")

    assert {row["status"] for row in run(work_on(photos, str(tmp_path / "out"), Full())).values()} == {"stop"}


def test_workers_of_another_version_say_so(photos: Path, tmp_path: Path) -> None:
    work = work_on(photos, str(tmp_path / "out"))
    (row,) = run(work, _Worker(work, 0.0, work.out / "begun", "0.0.0")).values()
    assert row["status"] == "stop"
    assert "not 0.0.0; install the same everywhere" in row["error"]


def test_results_in_a_store(photos: Path, s3: str) -> None:
    rows = run(work_on(photos, f"s3://images/worker{s3}"))
    assert rows["photos/a.jpg"]["result"] == "s3://images/worker/a.edges.png"
    assert addresses.read(parse(f"s3://images/worker/a.edges.side.png{s3}")) == b"net"


def test_a_model_travels_with_its_operation(edge_onnx: Path, rng: np.random.Generator) -> None:
    spec = ModelSpec("edges", edge_onnx)
    arrived = pickle.loads(pickle.dumps(spec))
    assert arrived.name == spec.name
    image = rng.integers(0, 256, (33, 47, 3), dtype=np.uint8)
    assert np.array_equal(arrived.open(1, 1)(image), spec.open(1, 1)(image))
