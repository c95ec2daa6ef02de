"""What the claims about `--cluster` rest on: real nodes of Ray on this machine, killed and cut off; S3; memory; speed.

    python benchmarks/cluster.py nodes|deaths|link|store|memory|throughput [--images N] [--json FILE]

nodes        two nodes, 1% of the images damaged: results are the local run's, the damaged ones are named
deaths       kill -9 of a worker, of a node, of the driver; Ctrl-C: the same, and nothing is done twice
link         the second node in a network namespace of its own, its link cut in mid-run (needs root)
store        from and to an S3 endpoint on loopback (moto_server), by pyarrow's client
memory       of driver and workers over 1,000 and 10,000 images
throughput   images per second after start-up against the plain folder run, both on two cores, in one run

Whatever appears in the target is compared, as it appears, with the file of the local run: a torn file would be seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pixeldiff import addresses
from pixeldiff.jobs.manifest import read_manifest
from pixeldiff.machine import describe

PIXELDIFF = [sys.executable, "-m", "pixeldiff"]
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
SPACE, HOST, GUEST = "pixeldiff-node", "10.213.77.1", "10.213.77.2"
# On loopback or our own link only, nothing sent, a token of our own, and patience on busy machines.
ENVIRONMENT = os.environ | {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_raylet_start_wait_time_s": "600",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def make_images(folder: Path, count: int, sides: tuple[int, int], damaged: bool = True) -> None:
    """Images of mixed sizes in several folders: shapes and noise, every hundredth cut short."""
    rng = np.random.default_rng(0)
    for k in range(count):
        path = folder / f"{k % 7}" / f"{k:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(*sides, 2)
        image = rng.integers(0, 60, (height, width, 3), dtype=np.uint8)
        image[height // 4 : height // 2, width // 5 :] += np.uint8(150)
        Image.fromarray(image).save(path, quality=90)
        if damaged and k % 100 == 50:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def contents(folder: Path) -> dict[str, bytes]:
    files = (one for one in folder.rglob("*.edges.*") if one.is_file())
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


class Cluster:
    """A head node, and a second one that joins; each with one CPU."""

    def __init__(self, host: str = "127.0.0.1", guest: list[str] | None = None, guest_ip: str = "127.0.0.1") -> None:
        self.folder = tempfile.mkdtemp(prefix="ray-")
        port = free_port()
        self.address = f"{host}:{port}"
        common = ["--num-cpus=1", "--disable-usage-stats", "--object-store-memory=100000000", "--block"]
        head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self.folder}"]
        self.head = self._start([*RAY, "start", *head, f"--node-ip-address={host}", *common])
        self._wait_for(1)
        join = [*RAY, "start", f"--address={self.address}", f"--node-ip-address={guest_ip}", *common]
        self.second = self._start([*(guest or []), *join])
        self._wait_for(2)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        # Ports that are given: a node waits 20 s at most for parts that find their own, too short on a busy machine.
        ports = ("dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export", "runtime-env-agent")
        command = [*command, *(f"--{name}-port={free_port()}" for name in ports)]
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=quiet, stderr=quiet, start_new_session=True)

    def _wait_for(self, nodes: int) -> None:
        script = f"import ray; ray.init({self.address!r}, log_to_driver=False)\n"
        script += f"import sys; sys.exit(sum(one['Alive'] for one in ray.nodes()) != {nodes})"
        for _ in range(60):
            command = [sys.executable, "-c", script]
            if subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False).returncode == 0:
                return
            time.sleep(1)
        self.stop()
        raise SystemExit("Ray did not start")

    def stop(self) -> None:
        for one in (self.second, self.head) if hasattr(self, "second") else (self.head,):
            kill_session(one.pid)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def kill_session(leader: int) -> None:
    """kill -9 of a node: all processes of the session that we have started for it."""
    for one in processes():
        with contextlib.suppress(OSError):
            if os.getsid(one) == leader:
                os.kill(one, signal.SIGKILL)


def processes() -> list[int]:
    return [int(one) for one in os.listdir("/proc") if one.isdecimal()]


def named(name: str, session: int | None = None) -> list[int]:
    """Processes whose title begins so."""
    found = []
    for one in processes():
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if title.startswith(name) and session in (None, os.getsid(one)):
                found.append(one)
    return found


class Watch:
    """Compares every result, when it is first seen, with the one of the local run."""

    def __init__(self, target: Path, expected: dict[str, bytes]) -> None:
        self.target, self.expected = target, expected
        self.seen: dict[str, int] = {}  # name -> when it was written
        self.torn: list[str] = []
        self.again: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            self.look()

    def look(self) -> None:
        for one in self.target.rglob("*.edges.*"):
            name = str(one.relative_to(self.target))
            with contextlib.suppress(FileNotFoundError):
                written = one.stat().st_mtime_ns
                if self.seen.get(name) != written:
                    self.again += [name] * (name in self.seen)
                    self.torn += [name] * (one.read_bytes() != self.expected.get(name))
                    self.seen[name] = written

    def end(self) -> dict[str, int]:
        self._ended.set()
        self._thread.join()
        self.look()
        left = [one for one in self.target.rglob(".pixeldiff-*") if one.is_file()]
        return {"torn_or_different": len(self.torn), "written_again": len(self.again), "leftovers": len(left)}


class Bench:
    def __init__(self, folder: Path, images: int, model: str) -> None:
        self.folder, self.images = folder, images
        self.words = ["--model", model]

    def reference(self, sides: tuple[int, int] = (40, 200), damaged: bool = True) -> dict[str, bytes]:
        make_images(self.folder / "photos", self.images, sides, damaged)
        command = [*PIXELDIFF, "detect", "photos", "-o", "local", *self.words, "--threads", "2"]
        subprocess.run(command, cwd=self.folder, stderr=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        return contents(self.folder / "local")

    def start(self, address: str, source: str = "photos", out: str = "far") -> subprocess.Popen[str]:
        command = [*PIXELDIFF, "detect", source, "-o", out, *self.words, f"--cluster={address}", "--json", "-"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True)

    def told(self, run: subprocess.Popen[str]) -> dict[str, Any]:
        said, remarked = run.communicate()
        if run.returncode not in (0, 1):
            return {"exit_code": run.returncode, "said": remarked.strip()}
        result: dict[str, Any] = json.loads(said)["results"][0]
        return {"exit_code": run.returncode, **{key: result[key] for key in ("done", "skipped", "failed", "seconds")}}

    def outcome(self, expected: dict[str, bytes]) -> dict[str, Any]:
        """What there is in the end."""
        found = contents(self.folder / "far")
        rows = read_manifest(str(self.folder / "far")).to_pylist()
        bad = {Path(row["address"]).stem for row in rows if row["error"]}
        wanted = {f"{k:06d}" for k in range(50, self.images, 100)}
        same = sum(found.get(name) == content for name, content in expected.items())
        return {
            "identical": same,
            "others": len(found) - same,
            "rows": len(rows),
            "failed_rows": len(bad),
            "failed_are_the_damaged": bad == wanted,
        }

    def wait_for_results(self, count: int, watch: Watch, run: subprocess.Popen[str]) -> None:
        while len(watch.seen) < count and run.poll() is None:
            time.sleep(0.05)

    def nodes(self) -> dict[str, Any]:
        expected = self.reference()
        with running() as cluster:
            watch = Watch(self.folder / "far", expected)
            told = self.told(self.start(cluster.address))
            again = self.told(self.start(cluster.address))
        return {"first": told, "second": again, **watch.end(), **self.outcome(expected)}

    def deaths(self) -> dict[str, Any]:
        """A worker, the driver, Ctrl-C, and last a node, each after a fifth of the results more."""
        expected = self.reference()
        part, steps = len(expected) // 5, []
        with running() as cluster:
            watch = Watch(self.folder / "far", expected)
            deeds: list[tuple[str, Callable[[subprocess.Popen[str]], None]]] = [
                ("kill -9 of the driver", lambda run: run.kill()),
                ("Ctrl-C", lambda run: run.send_signal(signal.SIGINT)),
            ]
            for name, deed in deeds:
                run = self.start(cluster.address)
                self.wait_for_results(len(watch.seen) + part, watch, run)
                deed(run)
                steps.append({"deed": name, **self.told(run), "results_then": len(watch.seen)})
            run = self.start(cluster.address)
            self.wait_for_results(len(watch.seen) + part, watch, run)
            victims = named("ray::MapWorker", cluster.head.pid)
            for one in victims[:1]:
                os.kill(one, signal.SIGKILL)
            steps.append({"deed": "kill -9 of a worker", "results_then": len(watch.seen), "found": len(victims)})
            self.wait_for_results(len(watch.seen) + part // 2, watch, run)
            kill_session(cluster.second.pid)
            steps.append({"deed": "kill -9 of a node", "results_then": len(watch.seen)})
            steps.append({"deed": "the end", **self.told(run)})
        return {"steps": steps, **watch.end(), **self.outcome(expected)}

    def link(self) -> dict[str, Any]:
        expected = self.reference()
        with namespace() as inside, running(HOST, inside, GUEST) as cluster:
            watch = Watch(self.folder / "far", expected)
            run = self.start(cluster.address)
            self.wait_for_results(len(expected) // 3, watch, run)
            before = len(watch.seen)
            ip("link", "set", "pixeldiff-a", "down")
            told = self.told(run)
        return {"results_when_cut": before, **told, **watch.end(), **self.outcome(expected)}

    def store(self) -> dict[str, Any]:
        expected = self.reference()
        with s3_server() as query, running() as cluster:
            for one in (self.folder / "photos").rglob("*.jpg"):
                name = one.relative_to(self.folder / "photos").as_posix()
                addresses.write(addresses.parse(f"s3://bucket/photos/{name}{query}"), one.read_bytes())
            out = f"s3://bucket/far{query}"
            told = self.told(self.start(cluster.address, f"s3://bucket/photos{query}", out))
            again = self.told(self.start(cluster.address, f"s3://bucket/photos{query}", out))
            found = (addresses.read(addresses.parse(f"s3://bucket/far/{name}{query}")) for name in expected)
            same = sum(one == content for one, content in zip(found, expected.values(), strict=True))
            rows = read_manifest(out).to_pylist()
        return {"first": told, "second": again, "identical": same, "failed_rows": sum(bool(r["error"]) for r in rows)}

    def memory(self) -> dict[str, Any]:
        """Largest memory, MB, of the driver and of a worker; of workers also after a tenth of the images."""
        figures: dict[str, Any] = {}
        for count in (self.images // 10, self.images):
            shutil.rmtree(self.folder / "photos", ignore_errors=True)
            make_images(self.folder / "photos", count, (40, 120), damaged=False)
            with running() as cluster:
                run = self.start(cluster.address, out=f"far-{count}")
                driver = [0]
                workers: list[int] = []
                while run.poll() is None:
                    driver.append(resident(run.pid))
                    workers.append(max([0, *map(resident, named("ray::MapWorker"))]))
                    time.sleep(0.5)
                told = self.told(run)
            early = max(workers[: max(1, len(workers) // 4)])
            figures[str(count)] = {
                "driver": max(driver),
                "workers_first_quarter": early,
                "workers": max(workers),
                **told,
            }
        return figures

    def throughput(self) -> dict[str, Any]:
        """Rates after start-up: of the folder run in all, of the cluster run after its first results."""
        make_images(self.folder / "photos", self.images, (300, 500), damaged=False)
        command = [*PIXELDIFF, "detect", "photos", "-o", "local", *self.words, "--threads", "2", "--json", "-"]
        rates: dict[str, list[float]] = {"folder": [], "cluster": []}
        with running() as cluster:
            for turn in range(3):
                shutil.rmtree(self.folder / "local", ignore_errors=True)
                done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
                rates["folder"].append(self.images / json.loads(done.stdout)["seconds"])
                said, _ = self.start(cluster.address, out=f"far-{turn}").communicate()
                rates["cluster"].append(json.loads(said)["results"][0]["images_per_second"])
        best = {name: max(own) for name, own in rates.items()}
        return {"images_per_second": rates, "ratio_of_best": best["cluster"] / best["folder"]}


@contextlib.contextmanager
def running(host: str = "127.0.0.1", inside: list[str] | None = None, guest: str = "127.0.0.1") -> Iterator[Cluster]:
    cluster = Cluster(host, inside, guest)
    try:
        yield cluster
    finally:
        cluster.stop()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def namespace() -> Iterator[list[str]]:
    """A network namespace that one link leads to; gives the words that run a command in it."""
    ip("netns", "add", SPACE)
    try:
        ip("link", "add", "pixeldiff-a", "type", "veth", "peer", "name", "pixeldiff-b", "netns", SPACE)
        ip("addr", "add", f"{HOST}/30", "dev", "pixeldiff-a")
        ip("link", "set", "pixeldiff-a", "up")
        for words in (["addr", "add", f"{GUEST}/30", "dev", "pixeldiff-b"], ["link", "set", "pixeldiff-b", "up"]):
            ip("-n", SPACE, *words)
        ip("-n", SPACE, "link", "set", "lo", "up")
        yield ["ip", "netns", "exec", SPACE]
    finally:
        ip("netns", "del", SPACE)


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    port = free_port()
    os.environ.update({name: ENVIRONMENT[name] for name in ENVIRONMENT if name.startswith("AWS_")})
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.1)
        from pyarrow import fs

        store, _ = fs.FileSystem.from_uri(
            f"s3://b/?endpoint_override=127.0.0.1:{port}&scheme=http&allow_bucket_creation=1"
        )
        store.create_dir("bucket")
        yield f"?endpoint_override=127.0.0.1:{port}&scheme=http"
    finally:
        server.kill()
        server.wait()


def resident(process: int) -> int:
    """MB that a process holds for itself."""
    with contextlib.suppress(OSError, IndexError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) // 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("nodes", "deaths", "link", "store", "memory", "throughput"))
    parser.add_argument("--images", type=int, help="[default: 2000; memory 10000; throughput 600]")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    images = given.images or {"memory": 10_000, "throughput": 600}.get(given.what, 2000)
    with tempfile.TemporaryDirectory(prefix="pixeldiff-") as folder:
        figures = getattr(Bench(Path(folder), images, given.model), given.what)()
    results = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    results[given.what] = {"images": images, **figures, "machine": describe(2, Path(__file__))}
    print(json.dumps(results[given.what], indent=1))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
