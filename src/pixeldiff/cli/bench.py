"""`pixeldiff bench`: latency, throughput and memory on this machine."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.cli._network import find_network
from pixeldiff.errors import UserError
from pixeldiff.jobs.bench import MEASURES
from pixeldiff.machine import cores, describe
from pixeldiff.tasks import TASKS


@click.command()
@click.option(
    "--model", "names", multiple=True, help="A network, or a weights file; may be repeated. [default: all shipped]"
)
@click.option(
    "--images", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder for the throughput."
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@_json.option
@_json.overwrite
def bench(
    names: tuple[str, ...], images: Path | None, threads: int | None, json_target: str | None, overwrite: bool
) -> None:
    """Measure latency, throughput on a folder and peak memory of networks.

    With torch installed the same run also times the unfused torch network and a plain ONNX export of the fused one.
    """
    _json.check(json_target, overwrite)
    threads = threads or cores()
    chosen = names or tuple(name for task in TASKS for name in weights.shipped(task))
    if not chosen:
        raise UserError("no networks are shipped with this version; name one with --model")
    torch_side = _torch_side()
    machine = describe(threads) | ({"torch": torch_side.torch_version()} if torch_side else {})
    told = json_target != _json.STDOUT
    if told:
        click.echo(click.wrap_text(", ".join(f"{key} {value}" for key, value in machine.items()), 80))
    results = []
    for given in chosen:
        results.append(_measure(given, threads, images, torch_side))
        if told:
            click.echo(_lines(results[-1]))
    _json.write(json_target, "bench", results, overwrite=overwrite, machine=machine)


def _torch_side() -> ModuleType | None:
    """What times the torch networks, if all that it needs is installed."""
    try:
        return importlib.import_module("pixeldiff.export.plain")
    except ImportError:
        return None


def _measure(given: str, threads: int, images: Path | None, torch_side: ModuleType | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pixeldiff-bench-") as folder:
        place = Path(folder)
        stand_in = torch_side.write_random(given, place) if torch_side else None
        others = torch_side.baselines(given, threads, place) if torch_side else {}
        with find_network(stand_in or given) as named:
            figures = MEASURES[named.task.name](named.runs, threads, images, others)
            return {"name": named.name, "task": named.task.name, **figures}


def _lines(own: dict[str, Any]) -> str:
    lines = [own["name"]]
    for size, baselines in own["latency"].items():
        ours = baselines["runtime"]["median_ms"]
        for contender, times in baselines.items():
            ratio = "" if contender == "runtime" else f"   {times['median_ms'] / ours:.2f} x runtime"
            spread = f"{times['p10_ms']:.1f} to {times['p90_ms']:.1f}"
            lines.append(f"  {size:>9} {contender:<14} {times['median_ms']:8.1f} ms ({spread}){ratio}")
    if flow := own.get("throughput"):
        lines.append(
            f"  folder of {flow['images']}: {flow['seconds']:.1f} s, {flow['images_per_second']:.1f}/s, "
            f"{flow['ratio']:.2f} x the network alone (CPU time {flow['cpu_ratio']:.2f} x)"
        )
    if peaks := own.get("peak_memory_mb"):
        told = ", ".join(f"{size} {peak:.0f} MB" for size, peak in peaks.items() if peak is not None)
        lines.append(f"  peak memory: {told or 'not told by this system'}")
    return "\n".join(lines)
