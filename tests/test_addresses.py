"""Addresses: local paths, and a store that speaks S3 on loopback, with the real client."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pixeldiff import addresses
from pixeldiff.addresses import Address, parse
from pixeldiff.errors import UserError


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def store(**settings: str) -> Iterator[str]:
    """What follows an address to reach a store of this test's own."""
    pytest.importorskip("moto")
    pytest.importorskip("flask")
    port = free_port()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    before = dict(os.environ)
    os.environ.update(keys)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **settings})
    try:
        wait_for(port)
        yield f"?endpoint_override=127.0.0.1:{port}&scheme=http"
    finally:
        server.kill()
        server.wait()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A store that has the bucket `images`."""
    with store() as query:
        query += "&allow_bucket_creation=true"
        addresses.store(parse(f"s3://images{query}")).makedirs("images")
        yield query


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


@pytest.mark.parametrize(
    ("text", "shown", "path"),
    [
        ("s3://bucket/a/b.jpg", "s3://bucket/a/b.jpg", "bucket/a/b.jpg"),
        ("s3://bucket/a/?endpoint_override=127.0.0.1:1&scheme=http", "s3://bucket/a", "bucket/a"),
        ("s3://bucket/what?.jpg", "s3://bucket/what?.jpg", "bucket/what?.jpg"),
        ("s3://bucket/a b%20c.jpg", "s3://bucket/a b%20c.jpg", "bucket/a b%20c.jpg"),
        ("gs://bucket", "gs://bucket", "bucket"),
        ("hdfs://host:8020/a/b", "hdfs://host:8020/a/b", "/a/b"),
        ("/a/b.jpg", "/a/b.jpg", "/a/b.jpg"),
    ],
)
def test_addresses_are_told_as_they_were_given(text: str, shown: str, path: str) -> None:
    address = parse(text)
    assert (str(address), address.path) == (shown, path)
    assert parse(address.full) == address


def test_local_paths_are_absolute_for_workers_stand_elsewhere() -> None:
    assert parse("photos").path == str(Path.cwd() / "photos")


@pytest.mark.parametrize("text", ["ftp://host/a", "s3://", "s3:///a"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UserError):
        parse(text)


def names(folder: Address) -> list[str]:
    return [path.name for path in addresses.entries(folder)[0]]


def in_store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Address:
    if kind == "local":
        return parse(str(tmp_path))
    return parse(f"s3://images/{tmp_path.name}{request.getfixturevalue('s3')}")


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_files_come_back_as_they_were_written(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = in_store(kind, tmp_path, request)
    for name in ("a b%20+.jpg", "ü.png", "inner/c.jpg"):
        addresses.write(folder / name, name.encode())
        assert addresses.read(folder / name) == name.encode()
    assert names(folder) == ["a b%20+.jpg", "ü.png"]
    assert names(folder / "nowhere") == []
    assert addresses.written_at(folder / "nowhere") is None
    assert abs(addresses.written_at(folder / "ü.png") - time.time()) < 60
    addresses.remove(folder / "ü.png")
    addresses.remove(folder / "nowhere")
    addresses.remove(folder / "inner")
    assert names(folder) == ["a b%20+.jpg"]
    assert addresses.written_at(folder / "inner/c.jpg") is None
    with pytest.raises(UserError, match=r"no file .*nowhere"):
        addresses.read(folder / "nowhere")


def test_a_dead_store_and_a_bucket_that_is_not_there_are_one_line(s3: str) -> None:
    with pytest.raises(UserError, match=r"^cannot write s3://nobody/x \(NO_SUCH_BUCKET[^\n]*$"):
        addresses.write(parse(f"s3://nobody/x{s3.replace('allow_bucket_creation=true', 'region=us-east-1')}"), b"x")
    with pytest.raises(UserError, match=r"^cannot look into s3://b/x \(NETWORK_CONNECTION[^\n]*$"):
        names(parse("s3://b/x?endpoint_override=127.0.0.1:1&scheme=http"))


def test_a_bucket_without_permission_is_one_line() -> None:
    with store(INITIAL_NO_AUTH_ACTION_COUNT="0") as query:  # from the first request on keys are checked
        there = parse(f"s3://images/x{query}")
        with pytest.raises(UserError, match=r"^cannot look into s3://images/x \([^\n]*\); check .* your rights$"):
            names(there)
        with pytest.raises(UserError, match=r"^cannot write s3://images/x \([^\n]*$"):
            addresses.write(there, b"x")


def test_a_store_of_hadoop_that_is_not_here_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^cannot reach hdfs://127.0.0.1:1/x \([^\n]*$"):
        addresses.read(parse("hdfs://127.0.0.1:1/x"))
