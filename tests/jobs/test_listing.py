"""Listings of cluster runs: the names of a local run, whatever the source."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pixeldiff import addresses
from pixeldiff.addresses import parse
from pixeldiff.errors import InputError, OutputError, UserError
from pixeldiff.files import InputFiles, find_files, plan_jobs
from pixeldiff.image import SUFFIXES
from pixeldiff.jobs.cluster import CHUNK, chunked
from pixeldiff.jobs.listing import find_jobs
from tests.test_addresses import s3 as s3

NAMES = ("a.jpg", "a.png", "b.jpg", "notes.txt", "x/a.jpg", "x/c d.webp", "x/.hidden.jpg", "x/a.edges.png", "y/z/a.PNG")


def ending(path: Path) -> str:
    return "edges.png"


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*NAMES, "out/old.jpg"):
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"pixeldiff detect --model tiny")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


def planned(source: str, out: str) -> dict[str, str]:
    return {str(job): str(target) for job, target in find_jobs(source, parse(out), ending)}


@pytest.mark.parametrize("source", ["photos", "photos/*.jpg", "photos/**/*.*g", "photos/b.jpg"])
def test_names_are_those_of_one_machine(photos: Path, source: str) -> None:
    found = find_files([source], SUFFIXES, "images", "photos/out")
    if "**" in source:  # a.jpg lies in several folders
        for plan in (lambda: plan_jobs(found, None, Path("out"), ending), lambda: planned(source, "photos/out")):
            with pytest.raises(UserError, match="would both become"):
                plan()
        return
    here = {
        str(one.source.absolute()): str(one.target.absolute()) for one in plan_jobs(found, None, photos / "out", ending)
    }
    assert planned(source, "photos/out") == here
    assert len(here) == {"photos": 6, "photos/*.jpg": 2, "photos/b.jpg": 1}[source]


def test_names_in_a_store_are_the_same(photos: Path, s3: str) -> None:
    top = parse(f"s3://images/planned{s3}")
    for name in (*NAMES, "out/old.jpg"):
        addresses.write(top / name, b"pixeldiff detect --model tiny")
    here = planned("photos", "out")
    there = planned(top.full, f"s3://images/results{s3}")
    assert [one.removeprefix("s3://images/planned/") for one in there] == [
        str(Path(one).relative_to(photos)) for one in here
    ]
    assert [one.removeprefix("s3://images/results/") for one in there.values()] == [
        str(Path(one).relative_to(Path("out").absolute())) for one in here.values()
    ]
    assert planned(f"s3://images/planned/b.jpg{s3}", "out") == {
        "s3://images/planned/b.jpg": str(Path("out/b.edges.png").absolute())
    }
    with pytest.raises(UserError, match="nothing at s3://images/nowhere"):
        planned(f"s3://images/nowhere{s3}", "out")


def test_a_store_is_searched_folder_by_folder(s3: str) -> None:
    folder = parse(f"s3://images/searched{s3}")
    for name in ("b.jpg", "a.jpg", ".hidden.jpg", "a.edges.png", "x/c.jpg", "x/y/d.png", "out/e.jpg", "n.txt"):
        addresses.write(folder / name, b"x" * 99_000 + b"pixeldiff detect --model tiny")
    addresses.write(folder / "c.edges.jpg", b"a user's photo")

    def names(source: str) -> list[str]:
        return [job.name for job, _ in find_jobs(f"s3://images/searched{source}{s3}", folder / "out", ending)]

    assert names("") == ["a.jpg", "b.jpg", "c.edges.jpg", "c.jpg", "d.png"]
    assert names("/**/[a-d].*") == ["a.jpg", "b.jpg", "c.edges.jpg", "c.jpg", "d.png"]
    assert names("/*.jpg") == ["a.jpg", "b.jpg", "c.edges.jpg"]
    assert names("/?/[!d].jpg") == ["c.jpg"]
    with pytest.raises(InputError, match="leaves the bucket open"):
        next(find_jobs(f"s3://*/a.jpg{s3}", folder, ending))


@pytest.mark.parametrize("name", ["list.txt", "list.parquet", "inventory.parquet"])
def test_lists_keep_the_tree_below_what_they_share(tmp_path: Path, name: str) -> None:
    keys = ["d/x/1.jpg", "d/y/1.jpg", "d/y/1.png"]
    texts = [f"s3://b/{key}" for key in keys]
    if name == "list.txt":
        (tmp_path / name).write_text("\n".join(texts) + "\n\n")
    else:
        columns = (
            {"address": texts} if name == "list.parquet" else {"bucket": ["b"] * 3, "key": keys, "size": [1, 2, 3]}
        )
        pq.write_table(pa.table(columns), tmp_path / name)
    results = [f"s3://r/{one}.edges.png" for one in ("x/1.jpg", "y/1.jpg", "y/1.png")]
    assert planned(str(tmp_path / name), "s3://r") == dict(zip(texts, results, strict=True))


@pytest.mark.parametrize("name", ["list.txt", "list.parquet"])
@pytest.mark.parametrize("out", ["out", "s3://results/out"])
@pytest.mark.parametrize("entry", ["s3://b/k/../../../../x.jpg", "/photos/../../x.jpg", "../x.jpg", "s3://b/.."])
def test_a_list_cannot_write_outside_the_output_folder(tmp_path: Path, name: str, out: str, entry: str) -> None:
    entries = ["s3://b/k/a.jpg", entry, "/photos/b.jpg"]
    if name.endswith(".txt"):
        (tmp_path / name).write_text("\n".join(entries))
    else:
        pq.write_table(pa.table({"address": entries}), tmp_path / name)
    with pytest.raises(InputError, match=re.escape(entry)):
        planned(str(tmp_path / name), out)


def test_a_list_cannot_have_one_of_its_images_replaced(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.jpg\n{tmp_path}/b.jpg.edges.png\n{tmp_path}/b.jpg\n")
    assert len(planned(str(tmp_path / "list.txt"), str(tmp_path / "out"))) == 3
    with pytest.raises(OutputError, match=r"b\.jpg\.edges\.png"):
        planned(str(tmp_path / "list.txt"), str(tmp_path))


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "a/../x.png"])
def test_names_that_are_joined_stay_below_their_folder(name: str) -> None:
    for folder in ("/out", "s3://b/out"):
        with pytest.raises(OutputError, match="outside"):
            parse(folder) / name
        assert (parse(folder) / "a..b/...png").path.endswith("out/a..b/...png")


def test_keys_of_a_store_cannot_lead_out_of_the_output_folder() -> None:
    """In a store a key may have `..` in it, and a walk finds it below its folder."""
    found = InputFiles("images", [(Path("bucket/photos/../../../x.jpg"), Path("bucket/photos"))])
    with pytest.raises(OutputError, match="outside"):
        plan_jobs(found, None, Path("/out"), ending)


def test_lists_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "no.parquet").write_text("no")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    for name, says in (
        ("empty.txt", "is empty"),
        ("no.parquet", "not a Parquet"),
        ("other.parquet", "name one `address`"),
    ):
        with pytest.raises(UserError, match=says):
            planned(str(tmp_path / name), "out")


@pytest.mark.usefixtures("closed_folders")
@pytest.mark.parametrize("source", ["photos", "photos/**/b.jpg"])
def test_folders_that_cannot_be_read_end_the_plan(photos: Path, source: str) -> None:
    (photos / "closed").mkdir()
    with pytest.raises(UserError, match="photos/closed"):
        planned(source, "out")


def test_a_folder_without_images_is_told(tmp_path: Path) -> None:
    for source in (str(tmp_path), str(tmp_path / "nowhere"), str(tmp_path / "*.jpg")):
        with pytest.raises(UserError, match=r"no (images|file)"):
            planned(source, "out")


@pytest.mark.parametrize("count", [1, 7, 200, 5000, 300_000])
def test_chunks_hold_every_job_once_and_grow(count: int) -> None:
    chunks = list(chunked(iter(range(count)), workers=2))
    assert [job for chunk in chunks for job in chunk] == list(range(count))
    sizes = [len(chunk) for chunk in chunks]
    assert sizes[:8] == [1] * min(8, count)
    before = np.cumsum([0, *sizes[:-1]])
    assert all(size <= max(1, CHUNK, total // 1024) for size, total in zip(sizes, before, strict=True))
    assert (max(sizes) > CHUNK) is (count == 300_000)
