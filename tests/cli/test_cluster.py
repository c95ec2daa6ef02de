"""`--cluster` against runs on one machine, on a cluster of Ray's that these tests start: one node, two CPUs."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
from PIL import Image

from pixeldiff.addresses import parse
from pixeldiff.cli import main
from pixeldiff.jobs.cluster import Work, connect, run_cluster, start_own
from pixeldiff.jobs.manifest import read_manifest
from pixeldiff.jobs.operation import Operation, Output
from tests.cli.test_images import invert
from tests.references.box_network import write_detector
from tests.test_addresses import s3 as s3


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of these tests' own, on loopback, to which this process is connected."""
    with contextlib.ExitStack() as stack:
        keys = stack.enter_context(pytest.MonkeyPatch.context())  # workers have the environment of their node
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            keys.setenv(name, "test")
        keys.setenv("AWS_EC2_METADATA_DISABLED", "true")
        start_own(ray, stack, num_cpus=2)
        stack.callback(ray.shutdown)
        yield


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Twelve small images in two folders, two of one name, and a damaged one."""
    for k in range(12):
        path = tmp_path / "photos" / ("ab"[k % 2]) / f"{k // 4}.{'png' if k % 4 < 2 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(17, 60, 2)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    (tmp_path / "photos/a/bad.jpg").write_text("no image")
    return tmp_path / "photos"


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def contents(folder: Path) -> dict[str, bytes]:
    files = (one for one in folder.rglob("*") if one.is_file() and "_manifest" not in one.parts)
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


def test_detect_gives_the_same_bytes_and_goes_on_where_it_stopped(
    cluster: None, photos: Path, edge_weights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("detect", photos, "--model", edge_weights, "--sides")
    here, there = tmp_path / "here", tmp_path / "there"
    assert run(*words, "-o", here) == 1
    capfd.readouterr()
    assert run(*words, "-o", there, "--cluster", "--json", tmp_path / "run.json") == 1
    said, remarked = capfd.readouterr()
    assert re.fullmatch(r"12 images in .* 1 failed; manifest: .*/there/_manifest\n", said)
    assert remarked == "error: 1 x is not an image of a known format\n"
    assert contents(there) == contents(here)
    assert len(contents(here)) == 60
    rows = read_manifest(str(there)).to_pylist()
    assert [Path(row["address"]).name for row in rows if row["error"]] == ["bad.jpg"]
    assert all(row["size"] and row["seconds"] and Path(row["result"]).is_file() for row in rows if not row["error"])
    told = json.loads((tmp_path / "run.json").read_text())
    assert (told["command"], told["results"][0]["done"], len(told["failed"])) == ("detect", 12, 1)

    # What is missing or failed is done, and nothing else.
    gone = there / "b/0.png.edges.png"
    others = (one for one in there.rglob("*.png") if not one.name.startswith("0.png.edges") or one.parent.name != "b")
    before = {one: one.stat().st_mtime_ns for one in others}
    gone.unlink()
    shutil.copy(photos / "a/1.jpg", photos / "a/bad.jpg")
    assert run(*words, "-o", there, "--cluster") == 0
    assert re.match(r"2 images in .* 11 already exist, skipped", capfd.readouterr().out)
    assert {one: one.stat().st_mtime_ns for one in before} == before
    assert read_manifest(str(there))["status"].to_pylist() == ["done"] * 13
    assert list((there / "_manifest").glob("begun-*")) == []


def test_classes_are_rows(cluster: None, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("classify", photos, "--model", "bipdc-cifar100", "--top", 3)
    assert run(*words, "--json", tmp_path / "here.json") == 1
    here = {one["input"]: one["classes"] for one in json.loads((tmp_path / "here.json").read_text())["results"]}
    assert run(*words, "-o", tmp_path / "there", "--cluster") == 1
    table = read_manifest(str(tmp_path / "there")).to_pylist()
    assert {row["address"]: json.loads(row["record"])["classes"] for row in table if not row["error"]} == here
    capfd.readouterr()
    (photos / "a/bad.jpg").unlink()
    assert run(*words, "-o", tmp_path / "there", "--cluster") == 0
    assert capfd.readouterr().out.startswith("12 already exist")


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images of 112 x 96, which are aligned faces already, and a damaged one."""
    folder, rng = tmp_path_factory.mktemp("aligned"), np.random.default_rng(0)
    for name in ("a/1.png", "a/2.jpg", "b/1.png", "b/2.webp", "c.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (112, 96, 3), dtype=np.uint8)).save(folder / name)
    (folder / "bad.png").write_text("no image")
    return folder


@pytest.mark.parametrize("command", ["detect", "objects", "classify", "faces align", "invert"])
def test_threads_shards_and_cluster_give_the_same(
    command: str, cluster: None, aligned: Path, edge_weights: Path, tmp_path: Path
) -> None:
    if command == "objects":
        pytest.importorskip("torch")
    options = {
        "detect": ["--model", edge_weights, "--nms"],
        "objects": ["--model", write_detector(tmp_path), "--threshold", 0.1] if command == "objects" else [],
        "classify": ["--top", 3],
    }.get(command, [])

    def call(name: str, report: str, *more: str) -> None:
        place = [] if command == "classify" and name != "cluster" else ["-o", tmp_path / name]
        words = [*map(str, [aligned, *options, *place, "--json", tmp_path / report]), *more]
        if command == "invert":
            assert invert.main(words, standalone_mode=False) in (0, 1)
        else:
            assert run(*command.split(), *words) in (0, 1)  # the damaged image may be in the other shard

    call("threads", "threads.json", "--threads", "2")
    call("shards", "shard1.json", "--shard", "1/2")
    call("shards", "shard2.json", "--shard", "2/2")
    call("cluster", "cluster.json", "--cluster")
    if command == "classify":
        rows = read_manifest(str(tmp_path / "cluster")).to_pylist()
        there = {row["address"]: json.loads(row["record"])["classes"] for row in rows if not row["error"]}
        for names in (["threads"], ["shard1", "shard2"]):
            here = [one for name in names for one in json.loads((tmp_path / f"{name}.json").read_text())["results"]]
            assert {one["input"]: one["classes"] for one in here} == there
        return
    files = contents(tmp_path / "threads")
    assert len(files) == 5
    assert contents(tmp_path / "shards") == files
    assert contents(tmp_path / "cluster") == files


class Deadly(Operation[None]):
    provenance = "deadly"

    def open(self, threads: int, streams: int) -> None:
        pass

    def ending(self, source: Path) -> None:
        return None

    def run(self, model: None, data: bytes, name: str) -> Output:
        if name.endswith("bad.jpg"):
            os.kill(os.getpid(), signal.SIGKILL)
        return Output(record={"size": len(data)})


def test_a_image_that_kills_its_workers_is_a_row(cluster: None, photos: Path, tmp_path: Path) -> None:
    out = parse(str(tmp_path / "there"))
    with connect(None) as cpus:
        chunks = run_cluster(Work(Deadly(), str(photos), out, memory=10**8), cpus, out / "begun")
        rows = [row for chunk in chunks for row in chunk]
    assert len(rows) == 13
    assert {row["address"]: row["error"] for row in rows if row["status"] != "done"} == {
        str(photos / "a/bad.jpg"): f"{photos}/a/bad.jpg has ended 2 workers; scale it down, or give workers more memory"
    }


STOPPED_FOR_A_WHILE = """
import contextlib, ray, signal, time
from pixeldiff.jobs.cluster import start_own

with contextlib.ExitStack() as stack:
    start_own(ray, stack, num_cpus=1)
    stack.callback(ray.shutdown)
    seven = ray.remote(lambda: 7)
    assert ray.get(seven.remote()) == 7
    raylet = ray._private.worker._global_node.all_processes["raylet"][0].process
    raylet.send_signal(signal.SIGSTOP)
    time.sleep(4)
    raylet.send_signal(signal.SIGCONT)
    print(ray.get(seven.remote(), timeout=120))
"""


def test_a_cluster_on_this_machine_survives_a_slow_process_of_ray() -> None:
    """With the limits of Ray's environment at half a second instead of a minute, so that the test is quick."""
    limits = {"period_ms": "500", "timeout_ms": "500", "failure_threshold": "1"}
    environment = os.environ | {f"RAY_health_check_{name}": value for name, value in limits.items()}
    command = [sys.executable, "-c", STOPPED_FOR_A_WHILE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.stdout.endswith("7\n"), done.stderr


def test_from_store_to_store(cluster: None, photos: Path, edge_weights: Path, tmp_path: Path, s3: str) -> None:
    from pixeldiff import addresses

    for one in photos.rglob("*.*"):
        addresses.write(parse(f"s3://images/in/{one.relative_to(photos).as_posix()}{s3}"), one.read_bytes())
    words = ("--model", edge_weights, "--nms")
    assert run("detect", photos, "-o", tmp_path / "here", *words) == 1
    out = f"s3://images/out{s3}"
    assert run("detect", f"s3://images/in{s3}", "-o", out, *words, "--cluster") == 1
    for name, content in contents(tmp_path / "here").items():
        assert addresses.read(parse(f"s3://images/out/{name}{s3}")) == content
    assert sorted(read_manifest(out)["status"].to_pylist()) == ["done"] * 12 + ["failed"]


MISTAKES = {
    "no installation": (["--cluster"], "needs ray; install it with: pip install 'pixeldiff[cluster]'"),
    "dead address": (["--cluster", "127.0.0.1:1"], "no cluster answers at 127.0.0.1:1"),
    "no address": (["--cluster", "photos"], "invalid --cluster photos; give HOST:PORT"),
    "no workers": (["--cluster", "--workers", "3:2"], "3:2 is neither N nor MIN:MAX"),
    "no cluster": (["--workers", "2"], "add it, or omit them"),
    "dead store": (
        ["--cluster", "-o", "s3://b/x?endpoint_override=127.0.0.1:1&scheme=http"],
        "cannot look into s3://b/x/_manifest (NETWORK_CONNECTION",
    ),
}


@pytest.mark.parametrize(("words", "says"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line(
    words: list[str],
    says: str,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if "needs ray" in says:
        monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert run("detect", photos, "-o", tmp_path / "there", *words) == 2
    remarked = capfd.readouterr().err
    assert says in remarked
    assert remarked.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "/dev/full/x"], "cannot write to /dev/full/x"),
    ],
)
def test_workers_that_cannot_work_say_why_once(
    words: list[str],
    says: str,
    cluster: None,
    photos: Path,
    edge_weights: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run("detect", photos, "-o", tmp_path / "there", "--model", edge_weights, "--cluster", *words) == 2
    remarked = capfd.readouterr().err
    assert re.search(says, remarked)
    assert remarked.count("\n") == 1
