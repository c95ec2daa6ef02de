"""`pixeldiff bench`: latency, throughput and memory of models on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.cli._network import find_network
from pixeldiff.cli._options import INPUT_OUTPUT, GroupedCommand, option, threads_option
from pixeldiff.errors import InputError
from pixeldiff.jobs.bench import MEASURES
from pixeldiff.machine import cores, describe
from pixeldiff.tasks import TASKS


@click.command(cls=GroupedCommand)
@option(
    INPUT_OUTPUT,
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="NAME|FILE",
    help="A pretrained model or a weights file; may be repeated. [default: all pretrained models]",
)
@option(
    INPUT_OUTPUT,
    "--images",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder of images for the throughput. [default: 40 synthetic images]",
)
@threads_option
@_json.option
@_json.overwrite
def bench(
    models: tuple[str, ...], images: Path | None, threads: int | None, json_target: str | None, overwrite: bool
) -> None:
    """Measure latency, throughput on a folder and peak memory of models."""
    _json.check(json_target, overwrite)
    threads = threads or cores()
    chosen = models or tuple(name for task in TASKS for name in weights.shipped(task))
    if not chosen:
        raise InputError("no pretrained models come with this version; name a file with --model")
    machine = describe(threads)
    prints = json_target != _json.STDOUT
    if prints:
        click.echo(click.wrap_text(", ".join(f"{key} {value}" for key, value in machine.items()), 80))
    results = []
    for model in chosen:
        with find_network(model) as named:
            figures = MEASURES[named.task.name](named.runs, threads, images)
        results.append({"name": named.name, "task": named.task.name, **figures})
        if prints:
            click.echo(_lines(results[-1]))
    _json.write(json_target, "bench", results, overwrite=overwrite, machine=machine)


def _lines(result: dict[str, Any]) -> str:
    lines = [result["name"]]
    for size, times in result["latency"].items():
        spread = f"{times['p10_ms']:.1f} to {times['p90_ms']:.1f}"
        lines.append(f"  {size:>9} {times['median_ms']:8.1f} ms ({spread})")
    if flow := result.get("throughput"):
        lines.append(
            f"  folder of {flow['images']}: {flow['seconds']:.1f} s, {flow['images_per_second']:.1f}/s, "
            f"{flow['ratio']:.2f} x the network alone (CPU time {flow['cpu_ratio']:.2f} x)"
        )
    if peaks := result.get("peak_memory_mb"):
        known = ", ".join(f"{size} {peak:.0f} MB" for size, peak in peaks.items() if peak is not None)
        lines.append(f"  peak memory: {known or 'unknown on this system'}")
    return "\n".join(lines)
