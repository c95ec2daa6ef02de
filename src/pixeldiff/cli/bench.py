"""`pixeldiff bench`: latency, throughput and memory on this machine."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

from pixeldiff import image, weights
from pixeldiff.errors import UserError
from pixeldiff.files import refuse_existing, write_whole
from pixeldiff.machine import cores, describe
from pixeldiff.runtime import bench as measure
from pixeldiff.runtime.edges import EdgeDetector
from pixeldiff.runtime.engine import onnxruntime
from pixeldiff.runtime.packed import PackedClassifier


@click.command()
@click.option(
    "--model",
    "names",
    multiple=True,
    help="A network, or an .onnx or .pdn file; may be repeated. [default: all shipped]",
)
@click.option(
    "--pictures", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder for the throughput."
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write the figures to this file.")
@click.option("--overwrite", is_flag=True, help="Replace the --json file if it exists.")
def bench(
    names: tuple[str, ...], pictures: Path | None, threads: int | None, json_file: Path | None, overwrite: bool
) -> None:
    """Measure latency (224x224 and 481x321), throughput on a folder and peak memory of networks.

    With torch installed the same run also times the unfused torch network and a plain ONNX export of the fused one.
    """
    if json_file:
        refuse_existing(json_file, overwrite)
    threads = threads or cores()
    chosen = names or tuple(name for name, card in weights.cards().items() if {".onnx", ".pdn"} & set(card["files"]))
    torch_side = _torch_side()
    if not chosen:
        raise UserError("no networks are shipped with this version; name one with --model")
    machine = describe(threads)
    if torch_side:
        machine["torch"] = torch_side.torch_version()
    report: dict[str, Any] = {"machine": machine, "models": {}}
    click.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
    for name in chosen:
        if (packed := _packed_file(name)) is not None:
            report["models"][name] = own = measure_packed(packed, threads)
            click.echo(f"{name}\n{_latency_lines(own)}")
            continue
        with tempfile.TemporaryDirectory(prefix="pixeldiff-bench-") as place:
            report["models"][name] = own = _measure(name, threads, pictures, torch_side, Path(place))
        click.echo(_lines(name, own))
    if json_file:
        write_whole(json_file, json.dumps(report, indent=2).encode())


def _torch_side() -> ModuleType | None:
    """What times the torch networks, if all that it needs is installed."""
    try:
        return importlib.import_module("pixeldiff.export.plain")
    except ImportError:
        return None


def _measure(
    name: str, threads: int, pictures: Path | None, torch_side: ModuleType | None, place: Path
) -> dict[str, Any]:
    model, is_network = _file(name, torch_side, place)
    contenders: dict[str, measure.Network] = {"runtime": measure.network_of(EdgeDetector(model, threads=threads))}
    if torch_side and is_network:
        plain = place / "plain.onnx"
        torch_side.write_plain_onnx(name, plain)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
        contenders["plain_onnx"] = lambda batch: session.run(None, {"image": batch})
        contenders["torch_unfused"] = torch_side.TorchNetwork(name, threads)
    latency = {f"{width}x{height}": measure.latencies(contenders, (height, width)) for height, width in measure.SIZES}
    height, width = measure.LARGE
    return {
        "latency": latency,
        "throughput": measure.throughput(model, threads, pictures),
        "peak_memory_mb": {
            "481x321": measure.peak_memory_mb(model, threads, (321, 481)),
            f"{width}x{height}": measure.peak_memory_mb(model, threads, (height, width)),
        },
    }


def measure_packed(path: Path, threads: int) -> dict[str, Any]:
    """Latency of a packed network on one picture of its own size."""
    network = PackedClassifier(path, threads)
    size = network.file.preprocessing.size

    def run(batch: image.FloatMap) -> object:
        return network.run(np.ascontiguousarray(batch.transpose(0, 2, 3, 1)))

    return {"latency": {f"{size}x{size}": measure.latencies({"runtime": run}, (size, size))}}


def _file(name: str, torch_side: ModuleType | None, place: Path) -> tuple[Path, bool]:
    """The file to measure, and whether torch knows the network by this name."""
    if name.endswith(".onnx"):
        return Path(name), False
    try:
        return weights.find(name, ".onnx"), True
    except UserError:
        if torch_side is None:
            raise
    path = place / "network.onnx"
    torch_side.write_random_onnx(name, path)
    return path, True


def _packed_file(name: str) -> Path | None:
    """The .pdn file behind a name, if it is a packed network's."""
    if name.endswith(".pdn"):
        return weights.runnable(name, ".pdn")
    card = weights.cards().get(weights.canonical_name(name), {})
    return weights.runnable(name, ".pdn") if ".pdn" in card.get("files", ()) and ".onnx" not in card["files"] else None


def _latency_lines(own: dict[str, Any]) -> str:
    lines = []
    for size, contenders in own["latency"].items():
        ours = contenders["runtime"]["median_ms"]
        for contender, times in contenders.items():
            ratio = "" if contender == "runtime" else f"   {times['median_ms'] / ours:.2f} x runtime"
            spread = f"{times['p10_ms']:.1f} to {times['p90_ms']:.1f}"
            lines.append(f"  {size:>9} {contender:<14} {times['median_ms']:8.1f} ms ({spread}){ratio}")
    return "\n".join(lines)


def _lines(name: str, own: dict[str, Any]) -> str:
    lines = [name, _latency_lines(own)]
    flow = own["throughput"]
    lines.append(
        f"  folder of {flow['pictures']}: {flow['seconds']:.1f} s, {flow['pictures_per_second']:.1f}/s, "
        f"{flow['ratio']:.2f} x the network alone (CPU time {flow['cpu_ratio']:.2f} x)"
    )
    peaks = ", ".join(f"{size} {peak:.0f} MB" for size, peak in own["peak_memory_mb"].items() if peak is not None)
    lines.append(f"  peak memory: {peaks or 'not told by this system'}")
    return "\n".join(lines)
