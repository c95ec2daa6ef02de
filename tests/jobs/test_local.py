"""Many images at once: how cores are shared, and what becomes of each when some fail."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff.errors import DiskFullError
from pixeldiff.files import Job
from pixeldiff.inference.edges import EdgeNetwork, Look
from pixeldiff.jobs.detect import DetectEdges
from pixeldiff.jobs.local import run_job, run_local, work_through
from pixeldiff.jobs.operation import ModelSpec, Result, attempt
from pixeldiff.parallel import split_threads
from pixeldiff.render.drawing import Drawing


@pytest.mark.parametrize(
    ("threads", "images", "expected"), [(8, 1, (8, 1)), (8, 3, (2, 3)), (8, 100, (1, 8)), (1, 5, (1, 1))]
)
def test_threads_are_shared_out_among_images(threads, images, expected):
    assert split_threads(threads, images) == expected


@pytest.fixture
def jobs(tmp_path, rng):
    for k in range(12):
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(tmp_path / f"{k}.png")
    return [Job(tmp_path / f"{k}.png", tmp_path / f"out/{k}.npy") for k in range(12)]


def test_no_more_images_are_in_the_network_than_it_has_streams(jobs, edge_weights):
    network = EdgeNetwork(edge_weights, threads=1, streams=2)
    inside, most, lock, run = [0], [0], threading.Lock(), network.run

    def counting(batch, look):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        maps = run(batch, look)
        with lock:
            inside[0] -= 1
        return maps

    network.run = counting
    operation = DetectEdges(ModelSpec("edges", edge_weights), Look(), Drawing("npy"))
    results = list(work_through(jobs, lambda job: run_job(operation, network, job, False), 4))
    assert most == [2]
    assert {result.status for result in results} == {"done"}
    for job in jobs:
        np.testing.assert_allclose(np.load(job.target), network(job.source), atol=1e-6)


def test_a_image_that_fails_does_not_stop_the_others(jobs, edge_weights):
    jobs[3].source.write_bytes(b"no image")
    jobs[5].target.parent.mkdir()
    jobs[5].target.write_bytes(b"mine")
    operation = DetectEdges(ModelSpec("edges", edge_weights), Look(), Drawing("npy"))
    results = {result.job: result for result in run_local(operation, jobs, threads=2)}
    assert len(results) == len(jobs)
    assert {job: result.status for job, result in results.items() if result.status != "done"} == {
        jobs[3]: "failed",
        jobs[5]: "skipped",
    }
    assert "3.png" in str(results[jobs[3]].error)
    assert jobs[5].target.read_bytes() == b"mine"


def test_one_worker_takes_the_jobs_in_order_on_the_callers_thread_until_the_disk_is_full(jobs):
    def work(job: Job) -> Result:
        assert threading.current_thread() is threading.main_thread()
        if job == jobs[2]:
            raise ValueError("odd")
        if job == jobs[4]:
            raise DiskFullError("the disk is full")
        return Result(job, "done")

    outcomes = list(work_through(jobs, work, 1))
    assert [one.job for one in outcomes] == jobs[:5]
    assert [one.status for one in outcomes] == ["done", "done", "failed", "done", "full"]


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (DiskFullError("the disk is full"), "full", "the disk is full"),
        (MemoryError(), "failed", "a.png needs more memory"),
        (PermissionError(13, "Permission denied"), "failed", "cannot write b.png (Permission denied)"),
        (RuntimeError("odd"), "failed", "a.png: RuntimeError: odd"),
    ],
)
def test_what_goes_wrong_is_one_line(error, status, says):
    def work(job: Job) -> Result:
        raise error

    outcome = attempt(Job(Path("a.png"), Path("b.png")), work)
    assert outcome.status == status
    assert says in str(outcome.error)
