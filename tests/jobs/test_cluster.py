"""A worker of a cluster by itself: what becomes of images, and what a death before it has left. No cluster runs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from pixeldiff import addresses
from pixeldiff.addresses import parse
from pixeldiff.errors import DiskFullError, UserError
from pixeldiff.jobs.cluster import Carried, Traveling, Work, _Worker
from pixeldiff.jobs.operation import Operation, Output
from pixeldiff.jobs.plan import find_jobs, read_part, write_plan
from pixeldiff.tasks import find_task, load
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


def work(
    source: Path, out: str, operation: Operation[Any] = Shout(), worker: _Worker | None = None, **more: Any
) -> dict[str, Any]:
    """The fates of the images by their names, from one chunk."""
    target = parse(out)
    plan = write_plan(find_jobs(str(source), target, lambda _: "edges.png"), target / "plan", 1)
    table = pa.concat_tables([read_part(part.full) for part in plan.parts])
    one = worker or _Worker(Work(operation, **more), plan.written, target / "begun", version())
    given = [pa.ipc.open_stream(content.as_buffer()).read_all() for content in one(table)["fates"]]
    return {"/".join(Path(row["address"]).parts[-2:]): row for own in given for row in own.to_pylist()}


def version() -> str:
    from pixeldiff import __version__

    return __version__


def test_bad_images_are_rows(photos: Path, tmp_path: Path) -> None:
    fates = work(photos, str(tmp_path / "out"))
    assert {name: row["status"] for name, row in fates.items()} == {
        "photos/a.jpg": "done",
        "photos/b.jpg": "done",
        "photos/c.jpg": "failed",
        "x/a.jpg": "failed",
    }
    assert fates["photos/c.jpg"]["error"] == f"{photos}/c.jpg is bad"
    assert fates["x/a.jpg"]["error"] == f"{photos}/x/a.jpg: ZeroDivisionError: a mistake of ours"
    assert (fates["photos/a.jpg"]["size"], fates["photos/a.jpg"]["result"]) == (3, f"{tmp_path}/out/a.edges.png")
    assert (tmp_path / "out/a.edges.png").read_text() == "ONE"
    assert (tmp_path / "out/a.edges.side.png").read_text() == "net"
    assert not any((tmp_path / "out/begun").iterdir())


def test_what_is_there_is_kept_unless_asked(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    old = tmp_path / "out/a.edges.png"
    old.write_text("old")
    os.utime(old, (1, 1))
    assert work(photos, str(tmp_path / "out"))["photos/a.jpg"]["status"] == "skipped"
    assert old.read_text() == "old"
    assert work(photos, str(tmp_path / "out"), overwrite=True)["photos/a.jpg"]["status"] == "done"
    assert old.read_text() == "ONE"


def test_a_second_attempt_of_the_same_run_does_nothing_twice(photos: Path, tmp_path: Path) -> None:
    out = parse(str(tmp_path / "out"))
    worker = _Worker(Work(Shout(), overwrite=True), 0.0, out / "begun", version())
    work(photos, str(tmp_path / "out"), worker=worker)
    before = (tmp_path / "out/a.edges.png").stat().st_mtime_ns
    fate = work(photos, str(tmp_path / "out"), worker=worker)["photos/a.jpg"]
    assert (fate["status"], (tmp_path / "out/a.edges.png").stat().st_mtime_ns) == ("done", before)


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
        addresses.write(out / "begun" / f"000000-{chunk:03d}", b"")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            work(photos, str(tmp_path / "out"), Deadly())
    fates = work(photos, str(tmp_path / "out"), Deadly())
    assert len(died) == 2
    assert fates["photos/b.jpg"]["error"] == (
        f"{photos}/b.jpg has ended 2 workers; scale it down, or give workers more memory"
    )
    assert (tmp_path / "out/a.edges.png").read_text() == "ONE"


def test_a_full_target_stops_the_run(photos: Path, tmp_path: Path) -> None:
    class Full(Shout):
        def run(self, model: str, data: bytes, name: str) -> Output:
            raise DiskFullError("cannot write: the disk is full; make room")

    assert {row["status"] for row in work(photos, str(tmp_path / "out"), Full()).values()} == {"stop"}


def test_workers_of_another_version_say_so(photos: Path, tmp_path: Path) -> None:
    worker = _Worker(Work(Shout()), 0.0, parse(str(tmp_path / "begun")), "0.0.0")
    fates = work(photos, str(tmp_path / "out"), worker=worker)
    assert {row["status"] for row in fates.values()} == {"stop"}
    assert "this machine 0.0.0; install one everywhere" in fates["photos/a.jpg"]["error"]


def test_results_in_a_store(photos: Path, s3: str) -> None:
    fates = work(photos, f"s3://images/worker{s3}")
    assert fates["photos/a.jpg"]["result"] == "s3://images/worker/a.edges.png"
    assert addresses.read(parse(f"s3://images/worker/a.edges.side.png{s3}")) == b"net"


def test_a_network_arrives_open(edge_onnx: Path, rng: np.random.Generator) -> None:
    import pickle

    carried = Carried("edges", edge_onnx.name, edge_onnx.read_bytes(), memory=5 * 10**8)
    here = load(find_task("edges").model)(edge_onnx, threads=1)
    there = pickle.loads(pickle.dumps(Traveling(here, carried)))
    assert there.memory_budget == 5 * 10**8
    image = np.asarray(Image.fromarray(rng.integers(0, 256, (33, 47, 3), dtype=np.uint8)))
    assert np.array_equal(there(image), here(image))
