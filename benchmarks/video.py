"""Video against the network alone: frames per second of both on the same frames, and memory while a long clip runs.

    python benchmarks/video.py --weights tiny.onnx                          # throughput
    python benchmarks/video.py --weights tiny.onnx --frames 15000 --size 64 48    # ten minutes: memory

Prints JSON. `share` is the video's rate over the network's; `memory_mb` is sampled at tenths of the clip.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

from pixeldiff.inference.edges import EdgeNetwork
from pixeldiff.jobs.video import detect_video

PHOTO = Path(__file__).parents[1] / "docs/images/coffee.jpg"


def make_clip(path: Path, frames: int, size: tuple[int, int]) -> list[np.ndarray]:
    """A photo that slides sideways; returns up to 60 of its frames."""
    photo = np.asarray(Image.open(PHOTO).convert("RGB").resize(size))
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=25, options={"preset": "veryfast"})
        video.width, video.height, video.pix_fmt = *size, "yuv420p"
        for k in range(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(np.roll(photo, 2 * k, axis=1)), format="rgb24")
            frame.pts, frame.time_base = k, Fraction(1, 25)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
    with av.open(str(path)) as container:
        return [f.to_ndarray(format="rgb24") for _, f in zip(range(60), container.decode(video=0), strict=False)]


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


def network_rate(network: EdgeNetwork, frames: list[np.ndarray], streams: int) -> float:
    with ThreadPoolExecutor(streams) as workers:
        start = time.perf_counter()
        list(workers.map(network, frames))
        return len(frames) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="tiny")
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--size", type=int, nargs=2, default=(640, 360), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    streams = len(os.sched_getaffinity(0))
    network = EdgeNetwork(arguments.weights, threads=1)
    memory: list[float] = []

    def sample(done: int, total: int | None) -> None:
        if done % max(1, arguments.frames // 10) == 0:
            memory.append(memory_mb())

    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        frames = make_clip(clip, arguments.frames, tuple(arguments.size))
        network_rate(network, frames[:4], streams)  # warm-up
        for _ in range(arguments.rounds):
            alone = network_rate(network, frames, streams)
            report = detect_video(network, clip, Path(folder) / "out.mp4", streams=streams, progress=sample)
            video = report.frames / report.seconds
            rounds.append(
                {"network_fps": round(alone, 2), "video_fps": round(video, 2), "share": round(video / alone, 3)}
            )
    shares = sorted(one["share"] for one in rounds)
    print(
        json.dumps(
            {
                "model": network.name,
                "size": list(arguments.size),
                "frames": arguments.frames,
                "streams": streams,
                "rounds": rounds,
                "share": shares[len(shares) // 2],
                "memory_mb": memory,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
