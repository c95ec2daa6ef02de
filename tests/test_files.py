"""Which files are meant, where results go, which unfinished ones are leftovers, and what a full disk says."""

import errno
import os
import subprocess
import sys
import time

import pytest

from pixeldiff.errors import UserError
from pixeldiff.files import (
    DiskFullError,
    Job,
    atomic_path,
    atomic_write,
    cannot_write,
    destination,
    find_files,
    is_result,
    name_unfinished,
    plan_jobs,
    remove_stale_temp_files,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_only_leftovers_of_the_dead_go(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = name_unfinished(tmp_path / "photo.edges.png")
    _, machine, process, _ = own.name.split("-")
    assert process == str(os.getpid())
    kept = [
        own.name,
        name_unfinished(tmp_path / "x.mp4", ".mp4").name,
        f".pixeldiff-{machine}-1-00000000.tmp",  # another user's, perhaps
        f".pixeldiff-00000000-{dead.pid}-00000000.tmp",  # of another machine
        f".pixeldiff-{machine}-{dead.pid}-00000000.tmp.txt.gz",
        f"pixeldiff-{machine}-{dead.pid}-00000000.tmp",
        f".pixeldiff-{machine}-{dead.pid}.tmp",
        ".0123456789abcdef.tmp",
        "mine.tmp",
    ]
    leftovers = [
        f".pixeldiff-{machine}-{dead.pid}-00000000.tmp",
        f".pixeldiff-{machine}-{dead.pid}-0a0b0c0d.tmp.mp4",
        f".pixeldiff-{machine}-{10**30}-00000000.tmp",
        ".pixeldiff-11111111-1-00000000.tmp",  # of another machine, untouched for two days
    ]
    for name in (*kept, *leftovers):
        (tmp_path / name).write_text("x")
    long_ago = time.time() - 2 * 86400
    os.utime(tmp_path / leftovers[-1], (long_ago, long_ago))
    os.utime(own, (long_ago, long_ago))
    (tmp_path / f".pixeldiff-{machine}-{dead.pid}-ffffffff.tmp").mkdir()  # half a data set
    (tmp_path / f".pixeldiff-{machine}-{dead.pid}-ffffffff.tmp" / "x").write_text("x")
    (tmp_path / f".pixeldiff-{machine}-{dead.pid}-eeeeeeee.tmp").symlink_to(tmp_path)  # we make no links
    remove_stale_temp_files([tmp_path, tmp_path / "missing"])
    assert names(tmp_path) == sorted([*kept, f".pixeldiff-{machine}-{dead.pid}-eeeeeeee.tmp"])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_told_apart(code, tmp_path, monkeypatch):
    def failing(*given):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(DiskFullError, match="disk is"):
        atomic_write(tmp_path / "a.png", b"abc")
    assert names(tmp_path) == []


def test_other_errors_are_of_one_file(tmp_path):
    error = cannot_write(tmp_path / "a", OSError(errno.EACCES, "Permission denied"))
    assert isinstance(error, UserError)
    assert not isinstance(error, DiskFullError)
    assert "Permission denied" in str(error)


def test_files_are_found_by_the_suffixes_that_count(tmp_path):
    for name in ("b.TXT", "a.txt", "deep/c.txt", "deep/d.csv", ".hidden.txt", "a.edges.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("pixeldiff detect --model tiny")
    found = find_files([str(tmp_path)], [".txt"], "letters")
    assert [one.name for one, _ in found.files] == ["a.txt", "b.TXT", "c.txt"]
    assert (found.missing, found.others) == ({}, {".csv": 1})
    named = find_files([str(tmp_path / "deep/d.csv"), str(tmp_path / "deep/*"), "none"], [".txt"], "letters")
    assert [one.name for one, _ in named.files] == ["d.csv", "c.txt"]
    assert named.missing == {"none": "no file none; check the name"}
    (tmp_path / "empty").mkdir()
    empty = find_files([str(tmp_path / "empty")], [".txt"], "letters")
    assert list(empty.missing.values()) == [f"no letters in {tmp_path / 'empty'}; looked for .txt"]


@pytest.mark.parametrize(
    ("name", "content", "ours"),
    [
        ("a.edges.png", b"..pixeldiff detect --model tiny --nms..", True),
        ("a.edges.webp", b"." * 10**5 + b"pixeldiff detect --model tiny", True),  # where WebP has it
        ("a.edges.mp4", b"pixeldiff detect --model tiny" + b"." * 10**5, True),
        ("a.edges.npy", b"", True),  # holds numbers only
        ("a.objects.jpg", b"..pixeldiff objects --model pdet --threshold 0.3..", True),
        ("cliff.edges.jpg", b"a photo of a cliff", False),
        ("moving.objects.jpg", b"a photo of boxes", False),
        ("cliff.edges.png", b"", False),
        ("photo.png", b"pixeldiff detect --model tiny", False),
    ],
)
def test_results_are_told_apart_by_what_made_them(name, content, ours, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "other.png").write_bytes(b"")
    assert is_result(tmp_path / name) == ours
    found = find_files([str(tmp_path)], [".png", ".webp", ".jpg", ".npy", ".mp4"], "images")
    assert [one.name for one, _ in found.files] == sorted(["other.png", *([] if ours else [name])])
    assert not is_result(tmp_path / "gone.edges.png")


def test_names_of_results_keep_their_suffix_only_where_they_must(tmp_path):
    for name in ("a.jpg", "a.png", "a.mov", "sub/b.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = find_files([str(tmp_path)], [".jpg", ".png", ".mov"], "images")

    def ending(path):
        return "edges.mov" if path.suffix == ".mov" else "edges.png"

    def targets(folder):
        return sorted(str(job.target.relative_to(tmp_path)) for job in plan_jobs(found, None, folder, ending))

    assert targets(None) == ["a.edges.mov", "a.jpg.edges.png", "a.png.edges.png", "sub/b.edges.png"]
    assert targets(tmp_path / "out") == [f"out/{name}" for name in targets(None)]
    with pytest.raises(UserError, match="4 images; give a folder"):
        plan_jobs(found, tmp_path / "x.png", None, ending)
    found.files = found.files[:1]
    assert plan_jobs(found, tmp_path / "x.png", None, ending) == [Job(found.files[0][0], tmp_path / "x.png")]
    with pytest.raises(UserError, match="the input itself"):
        plan_jobs(found, found.files[0][0], None, ending)


def test_what_an_output_name_means(tmp_path, monkeypatch):
    def place(out, *inputs):
        return destination(inputs or ("a.jpg",), out, [".png", ".svg"], [".png", ".jpg"])

    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.png").mkdir()
    assert place("x.PNG").name == "x.PNG"
    for folder in (None, "out", "there.png", "new.png/"):
        assert place(folder) is None
    assert place("out.d", "a.jpg", "b.jpg") is None
    for out, inputs, says in (
        ("x.png", ("a.jpg", "b.jpg"), "several"),
        ("x.png", ("there.png",), "several"),
        ("x.jpg", ("a.jpg", "b.jpg"), r"not written as .jpg; use .png .svg, or x.jpg/ for a folder"),
        ("x.pdf", ("a.jpg",), r"not written as .pdf"),
        ("out", ("-",), "- is stdin"),
    ):
        with pytest.raises(UserError, match=says):
            place(out, *inputs)


def test_only_what_asks_for_it_waits_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    atomic_write(tmp_path / "a.png", b"abc")
    assert not synced
    with atomic_path(tmp_path / "a.safetensors", durable=True) as unfinished:
        unfinished.write_bytes(b"abc")
    assert len(synced) == 1


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with atomic_path(tmp_path / "set") as unfinished:
        (unfinished / "train").mkdir(parents=True)
    assert names(tmp_path / "set") == ["train"]

    def half():
        with atomic_path(tmp_path / "second") as unfinished:
            (unfinished / "train").mkdir(parents=True)
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert names(tmp_path) == ["set"]
