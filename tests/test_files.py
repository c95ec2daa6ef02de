"""Unfinished files: whose they are, which are leftovers, and what is told when a disk takes no more."""

import errno
import os
import subprocess
import sys
import time

import pytest

from pixeldiff.errors import UserError
from pixeldiff.files import NoRoomError, cannot_write, name_unfinished, remove_leftovers, write_whole


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
    remove_leftovers([tmp_path, tmp_path / "missing"])
    assert names(tmp_path) == sorted([*kept, f".pixeldiff-{machine}-{dead.pid}-eeeeeeee.tmp"])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_no_more_is_told_apart(code, tmp_path, monkeypatch):
    def failing(*given):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(NoRoomError, match="disk is"):
        write_whole(tmp_path / "a.png", b"abc")
    assert names(tmp_path) == []


def test_other_errors_are_of_one_file(tmp_path):
    error = cannot_write(tmp_path / "a", OSError(errno.EACCES, "Permission denied"))
    assert isinstance(error, UserError)
    assert not isinstance(error, NoRoomError)
    assert "Permission denied" in str(error)
