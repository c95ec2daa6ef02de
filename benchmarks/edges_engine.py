"""Our engine beside ONNX Runtime, and OpenVINO where it is installed, on the same networks and pixels; JSON out.

    python benchmarks/edges_engine.py --json benchmarks/results/edges_engine.json
    python benchmarks/edges_engine.py --threads 1 --turns 5 --networks tiny        # quick
    python benchmarks/edges_engine.py --agree BSDS500/images/test                  # distances of maps instead of times

Baselines run in turns, so that other load on the machine meets all of them alike; figures are medians, and a ratio is
the median of the ratios of neighboring runs. Each turn begins when the process is at rest: threads of ONNX Runtime go
on spinning after a run, on the core that the next contender would have. All compute in float32: OpenVINO would take
bfloat16 where the CPU has it, and its maps would be wrong in the second digit. `cpu_ms` is CPU time of the whole
process: under load it says more than the wall clock. `fma_share` is the part of the cores' multiply-adds that the
network itself needs (each convolution counted as it is defined; Winograd needs fewer). Needs the extra `train`: ONNX
files are exported for it.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pixeldiff import _native, image
from pixeldiff.export.onnx import export_onnx
from pixeldiff.inference.backends import NativeBackend
from pixeldiff.inference.edges import EdgeNetwork
from pixeldiff.jobs.bench import synthetic_image
from pixeldiff.machine import describe
from pixeldiff.models import create_model
from pixeldiff.models.pidinet import PiDiNet
from pixeldiff.models.saving import load_model, save_model
from pixeldiff.weights import FOLDER

Floats = NDArray[np.float32]
Contender = Callable[[Floats], Floats]
NETWORKS = ("tiny", "small", "basic", "tiny-l", "small-l")
SIZES = ((321, 481), (224, 224))  # height, width


def files(name: str, folder: Path) -> tuple[PiDiNet, Path, Path]:
    """The network, shipped or with random weights, as the files that the two engines run."""
    shipped = (FOLDER / f"{name}.safetensors").exists()
    model = load_model(name) if shipped else create_model(name).eval()
    assert isinstance(model, PiDiNet)
    trained, graph = folder / f"{name}.safetensors", folder / f"{name}.onnx"
    save_model(model, trained)
    export_onnx(model, graph)
    return model, trained, graph


def baselines(trained: Path, graph: Path, threads: int) -> dict[str, Contender]:
    found: dict[str, Contender] = {
        "native": EdgeNetwork(trained, threads).backend.run,
        "onnxruntime": EdgeNetwork(graph, threads).backend.run,
    }
    try:
        import openvino
    except ImportError:
        return found
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(graph), "CPU", settings)
    request = compiled.create_infer_request()
    found["openvino"] = lambda batch: request.infer({"image": batch})[compiled.output("edges")]
    return found


def multiply_adds(model: PiDiNet, size: tuple[int, int]) -> int:
    """Of all convolutions, radial ones with their eight differences."""
    total = 0

    def count(layer: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        nonlocal total
        assert isinstance(layer, torch.nn.Conv2d)
        total += output.numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    with torch.inference_mode():
        model(torch.zeros(1, 3, *size))
    for hook in hooks:
        hook.remove()
    return total


def rest(most: float = 2.0) -> None:
    """Waits until no thread of the process works any more, `most` seconds."""
    end = time.perf_counter() + most
    while time.perf_counter() < end:
        cpu = time.process_time()
        time.sleep(0.01)
        if time.process_time() - cpu < 0.001:
            return


def timed(run: Contender, batch: Floats) -> tuple[float, float]:
    """Milliseconds of the wall clock and of CPU time."""
    rest()
    wall, cpu = time.perf_counter(), time.process_time()
    run(batch)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


def compare(runs: dict[str, Contender], batch: Floats, turns: int) -> dict[str, dict[str, float]]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run(batch)
    for _ in range(turns):
        for name, run in runs.items():
            times[name].append(timed(run, batch))
    own = times["native"]
    report = {}
    for name, pairs in times.items():
        walls, cpus = zip(*pairs, strict=True)
        tenths = statistics.quantiles(walls, n=10)
        figures = {"median_ms": statistics.median(walls), "p10_ms": tenths[0], "p90_ms": tenths[-1]}
        figures["cpu_ms"] = statistics.median(cpus)
        if name != "native":
            for key, k in (("ratio", 0), ("cpu_ratio", 1)):
                figures[key] = statistics.median(theirs[k] / ours[k] for theirs, ours in zip(pairs, own, strict=True))
        report[name] = {key: round(value, 3) for key, value in figures.items()}
    return report


def measure(names: Iterable[str], threads: Iterable[int], turns: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    peak = _native.fma_peak()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            model, trained, graph = files(name, Path(folder))
            for count in threads:
                runs = baselines(trained, graph, count)
                for height, width in SIZES:
                    batch = image.normalize(synthetic_image(height, width), image.MEAN, image.STD)[None]
                    own = compare(runs, batch, turns)
                    work = multiply_adds(model, (height, width)) / 1e6
                    for figures in own.values():
                        figures["fma_share"] = round(work / figures["cpu_ms"] / peak, 3)
                    report[f"{name} {width}x{height} threads {count}"] = own
                    print(name, f"{width}x{height}", count, json.dumps(own), flush=True)
    return {"peak_gmacs_per_core": round(peak, 1), "networks": report}


def agreement(names: Iterable[str], images: Path, count: int) -> dict[str, Any]:
    """Largest distances of maps to the unfused torch network and to ONNX Runtime; every instruction set."""
    report: dict[str, Any] = {}
    photos = sorted(images.glob("*.jpg"))[:count]
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            model, trained, graph = files(name, Path(folder))
            other = EdgeNetwork(graph, 1).backend
            worst: dict[str, float] = {}
            for place, photo in enumerate(photos):
                pixels = image.load(photo)
                # Odd sides, and sides that are multiples of 8, in turns.
                cut = (place % 7, place % 5) if place % 2 else (pixels.shape[0] % 8, pixels.shape[1] % 8)
                pixels = pixels[cut[0] :, cut[1] :]
                batch = image.normalize(pixels, image.MEAN, image.STD)[None]
                with torch.inference_mode():
                    expected = torch.sigmoid(model(torch.from_numpy(batch))).numpy()
                even = "multiples of 8" if not any(side % 8 for side in pixels.shape[:2]) else "odd sides"
                found = {"onnxruntime from torch": other.run(batch)}
                for kernels, network in _each_instruction_set(trained):
                    found[f"{kernels} from torch"] = own = network.run(batch)
                    key = f"{kernels} from onnxruntime"
                    worst[f"{key}, {even}"] = max(
                        worst.get(f"{key}, {even}", 0), float(np.abs(own - found["onnxruntime from torch"]).max())
                    )
                for key, maps in found.items():
                    key = f"{key}, {even}"
                    worst[key] = max(worst.get(key, 0), float(np.abs(maps - expected).max()))
            report[name] = {key: float(f"{value:.1e}") for key, value in sorted(worst.items())}
            print(name, json.dumps(report[name]), flush=True)
    return {"images": len(photos), "networks": report}


def _each_instruction_set(trained: Path) -> Iterable[tuple[str, NativeBackend]]:
    import os

    from pixeldiff.weights import describe as described

    for kernels in _native.float_instruction_sets():
        os.environ["PIXELDIFF_ISA"] = kernels
        yield kernels, NativeBackend(trained, described(trained), 1)
    del os.environ["PIXELDIFF_ISA"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--agree", type=Path, metavar="IMAGES", help="compare maps of 20 images instead of times")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.agree:
        report = agreement(options.networks, options.agree, options.images)
    else:
        report = measure(options.networks, options.threads, options.turns)
    report = {"machine": describe(max(options.threads), Path(__file__)), **report}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
