"""Packed 1-bit layers and networks beside their float32 selves, in one process; JSON out, and a plot beside it.

python benchmarks/packed.py [--quick] [--threads N] --json FILE

Layers: 3x3, stride 1, C -> C. Ours are one of four in a row, as in a network: signs or differences packed, sums, two
batch norms, RPReLU, shortcut, repacked signs. The others do less: ONNX Runtime and torch a bare float32 convolution,
OpenVINO the sign and its BinaryConvolution. Baselines run in turns, in short blocks with a pause, so that other load
and threads that still spin meet all of them alike. Ratios are of the best times; medians are listed beside them. Bi-PDC
against vanilla is the median ratio of neighboring calls. A layer's share of the peak is against what the best
instruction set counts in registers, on as many cores as there are threads.

Networks: 224x224, one image. "twin" is the float32 network of the same topology (every binary layer a float
convolution with one batch norm), "float_resnet18" the ordinary float ResNet-18.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import _native
from pixeldiff.export.packed import pack_model
from pixeldiff.files import atomic_write
from pixeldiff.inference.classes import Classifier
from pixeldiff.inference.onnx_session import onnxruntime
from pixeldiff.machine import describe
from pixeldiff.metrics.complexity import total
from pixeldiff.models import create_model
from pixeldiff.models.bipidinet import BiPiDiNet
from pixeldiff.models.blocks import BinaryUnit
from pixeldiff.models.counting import count_layers
from pixeldiff.nn.binary import RPReLU
from pixeldiff.nn.ops import pixel_pairs

SHAPES = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels, side
IN_A_ROW = 4  # packed layers; a call's time is divided by it
NETWORKS = ("resnet18_binary", "resnet18_bipdc", "bipidinet18")
Contender = Callable[[], object]


def race(baselines: dict[str, Contender], blocks: int, per_block: int) -> dict[str, dict[str, float]]:
    """Best and median milliseconds of each contender, run in turns."""
    times: dict[str, list[float]] = {name: [] for name in baselines}
    for _ in range(blocks):
        for name, run in baselines.items():
            time.sleep(0.01)  # threads of the one before stop spinning
            run()
            for _ in range(per_block):
                start = time.perf_counter()
                run()
                times[name].append(1e3 * (time.perf_counter() - start))
    return {
        name: {"best_ms": round(min(own), 4), "median_ms": round(statistics.median(own), 4)}
        for name, own in times.items()
    }


def ratio(one: Contender, other: Contender, turns: int) -> float:
    """Median of the ratios of neighboring calls: for times so close that a slow phase of the machine would decide."""
    one(), other()
    found = []
    for _ in range(turns):
        start = time.perf_counter()
        one()
        between = time.perf_counter()
        other()
        found.append((between - start) / (time.perf_counter() - between))
    return statistics.median(found)


# --- layers ------------------------------------------------------------------------------------------------------


def packed_layer(channels: int, side: int, share: float, threads: int) -> Contender:
    rng = np.random.default_rng(0)
    differing = int(share * channels)
    pairs = [(*plus, *minus) for plus, minus in pixel_pairs("central").differences] if differing else []
    norm = np.stack([np.full(channels, 0.05, np.float32), np.zeros(channels, np.float32)])
    layer = _native.BinaryConv(
        channels,
        channels,
        3,
        1,
        differing,
        pairs,
        rng.integers(0, 2, channels * (channels - differing) * 9, np.uint8),
        rng.integers(0, 2, channels * differing * len(pairs), np.uint8),
        norm,
        norm,
        rng.normal(0, 0.2, (1, 3, channels)).astype(np.float32),
    )
    network = _native.PackedNetwork()
    for _ in range(IN_A_ROW):
        network.add_binary(layer)
    x = rng.normal(size=(1, side, side, channels)).astype(np.float32)
    return lambda: network(x, threads)


def session_of(module: nn.Module, x: Tensor, threads: int, path: Path) -> Contender:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), (x,), str(path), input_names=["x"], opset_version=17, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    array = x.numpy()
    return lambda: session.run(None, {"x": array})


def torch_of(module: nn.Module, x: Tensor) -> Contender:
    module.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = x.to(memory_format=torch.channels_last)

    def run() -> Tensor:
        with torch.inference_mode():
            y: Tensor = module(x)
        return y

    return run


def openvino_layer(channels: int, side: int, threads: int) -> Contender | None:
    try:
        import openvino as ov
        from openvino import opset1, opset13
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    x = opset13.parameter([1, channels, side, side], np.float32)
    limits = [opset13.constant(np.full((1, 1, 1, 1), v, np.float32)) for v in (0, 0, -1, 1)]
    sign = opset13.fake_quantize(x, *limits, 2)
    shape = ov.Shape([channels, channels, 3, 3])
    bits = rng.integers(0, 256, channels * channels * 9 // 8).astype(np.uint8)
    weight = opset13.constant(ov.Tensor(bits, shape, ov.Type.u1))
    ones = [1, 1]
    conv = opset1.binary_convolution(sign, weight, ones, ones, ones, ones, "xnor-popcount", 0.0)
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = ov.Core().compile_model(ov.Model([conv], [x]), "CPU", settings).create_infer_request()
    array = rng.normal(size=(1, channels, side, side)).astype(np.float32)
    return lambda: request.infer({0: array}, share_inputs=True)


def layer_baselines(channels: int, side: int, threads: int, folder: Path) -> dict[str, Contender]:
    conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    x = torch.randn(1, channels, side, side)
    baselines = {
        "packed": packed_layer(channels, side, 0.0, threads),
        "packed_bipdc": packed_layer(channels, side, 0.2, threads),
        "onnxruntime_float32": session_of(conv, x, threads, folder / "layer.onnx"),
        "torch_float32": torch_of(conv, x),
    }
    openvino = openvino_layer(channels, side, threads)
    return baselines if openvino is None else baselines | {"openvino_binary": openvino}


def measure_peaks() -> dict[str, float]:
    """Measure billions of binary multiply-adds per second of one core, for each instruction set."""
    peaks = {}
    before = os.environ.get("PIXELDIFF_ISA")
    for name in _native.instruction_sets():
        os.environ["PIXELDIFF_ISA"] = name
        peaks[name] = round(_native.binary_peak(), 1)
    del os.environ["PIXELDIFF_ISA"]
    if before is not None:
        os.environ["PIXELDIFF_ISA"] = before
    return peaks


def measure_layers(report: dict[str, Any], threads: int, blocks: int) -> None:
    for channels, side in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            baselines = layer_baselines(channels, side, threads, Path(folder))
            times = race(baselines, blocks, 10)
            for name in ("packed", "packed_bipdc"):
                times[name] = {key: round(ms / IN_A_ROW, 4) for key, ms in times[name].items()}
        key = f"layer_{channels}_{side}"
        best = {name: own["best_ms"] for name, own in times.items()}
        report["layers"][key] = times
        for other in ("onnxruntime_float32", "torch_float32", "openvino_binary"):
            if other in best:
                report[f"{key}_speedup_{other.partition('_')[0]}"] = round(best[other] / best["packed"], 2)
        report[f"{key}_bipdc_ratio"] = round(ratio(baselines["packed_bipdc"], baselines["packed"], 50 * blocks), 3)
        speed = 9 * channels**2 * side**2 / best["packed"] / 1e6
        report[f"{key}_gmacs_per_second"] = round(speed, 1)
        report[f"{key}_share_of_peak"] = round(speed / threads / max(report["peaks"].values()), 3)


# --- networks ----------------------------------------------------------------------------------------------------


class PlainRPReLU(nn.Module):
    """RPReLU in operators that ONNX knows."""

    def __init__(self, act: RPReLU) -> None:
        super().__init__()
        self.before, self.slope, self.after = act.before, act.slope, act.after

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x + self.before[:, None, None], self.slope) + self.after[:, None, None]


def float_twin(model: BiPiDiNet) -> BiPiDiNet:
    """The float32 network of the same topology."""
    twin = copy.deepcopy(model)
    for unit in twin.modules():
        if isinstance(unit, BinaryUnit):
            old = unit.conv
            conv = nn.Conv2d(
                old.in_channels, old.out_channels, old.kernel_size, old.stride, old.kernel_size // 2, bias=False
            )
            norm = nn.BatchNorm2d(old.out_channels)
            unit.conv = nn.Sequential(conv, norm, PlainRPReLU(old.activations[0]))  # type: ignore[assignment, arg-type]
    twin.stem[2] = PlainRPReLU(twin.stem[2])  # type: ignore[arg-type]
    return twin


def measure_network(name: str, threads: int, blocks: int, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    model = create_model(name).eval()
    assert isinstance(model, BiPiDiNet)
    path = folder / f"{name}.pdn"
    pack_model(model, path, {"model": name})
    packed = Classifier(path, threads)
    x = torch.randn(1, 3, 224, 224)
    channels_last = np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
    plain = create_model("resnet18")
    baselines: dict[str, Contender] = {
        "packed": lambda: packed.run(channels_last),
        "onnxruntime_float32_twin": session_of(float_twin(model), x, threads, folder / "twin.onnx"),
        "onnxruntime_float_resnet18": session_of(plain, x, threads, folder / "plain.onnx"),
        "torch_float32_twin": torch_of(float_twin(model), x),
    }
    times = race(baselines, blocks, 3)
    best = {key: own["best_ms"] for key, own in times.items()}
    counts = total(count_layers(model, 224))
    return {
        "times": times,
        "speedup_onnxruntime_twin": round(best["onnxruntime_float32_twin"] / best["packed"], 2),
        "speedup_onnxruntime_float_resnet18": round(best["onnxruntime_float_resnet18"] / best["packed"], 2),
        "speedup_torch_twin": round(best["torch_float32_twin"] / best["packed"], 2),
        "ops": counts.ops,
        "flops": counts.flops,
        "bops": counts.bops,
        "file_bytes": path.stat().st_size,
        "file_bytes_without_linear": path.stat().st_size - 4 * sum(p.numel() for p in model.head.parameters()),
    }


# --- report ------------------------------------------------------------------------------------------------------


def plot(report: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = {key.replace("layer_", "").replace("_", " @ "): own for key, own in report["layers"].items()}
    figure, axes = pyplot.subplots(1, 1 + bool(report["networks"]), figsize=(12, 4), squeeze=False)
    panels = [(axes[0, 0], "3x3 layer, channels @ side", groups)]
    if report["networks"]:
        panels.append((axes[0, 1], "network, 224x224", {k: own["times"] for k, own in report["networks"].items()}))
    for axis, title, rows in panels:
        names = list(dict.fromkeys(name for own in rows.values() for name in own))
        width = 0.8 / len(names)
        for k, name in enumerate(names):
            heights = [own.get(name, {}).get("best_ms", 0) for own in rows.values()]
            axis.bar(np.arange(len(rows)) + (k - len(names) / 2 + 0.5) * width, heights, width, label=name)
        axis.set_xticks(range(len(rows)), list(rows))
        axis.set_yscale("log")
        axis.set_ylabel("best time, ms")
        axis.set_title(title)
        axis.legend(fontsize=7)
    figure.suptitle(f"{report['machine']['cpu']}, {report['machine']['threads']} threads")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions, one network")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    described = describe(options.threads, Path(__file__)) | {
        "torch": torch.__version__,
        "instruction_set": _native.instruction_sets()[0],
    }
    report: dict[str, Any] = {"machine": described, "peaks": measure_peaks(), "layers": {}, "networks": {}}
    measure_layers(report, options.threads, 5 if options.quick else 20)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("resnet18_bipdc",) if options.quick else NETWORKS:
            report["networks"][name] = measure_network(name, options.threads, 3 if options.quick else 10, Path(folder))
    report["resnet18_bipdc_speedup_onnxruntime"] = report["networks"]["resnet18_bipdc"][
        "speedup_onnxruntime_float_resnet18"
    ]
    text = json.dumps(report, indent=2)
    atomic_write(options.json, text.encode())
    plot(report, options.json.with_suffix(".png"))
    print(text)


if __name__ == "__main__":
    main()
