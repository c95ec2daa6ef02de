"""`pixeldiff analyze`: patterns and frequencies of a trained binary network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff.errors import InputError, MissingExtra, OutputError
from pixeldiff.figures import save_figure
from pixeldiff.files import atomic_write

if TYPE_CHECKING:
    from torch import nn

    from pixeldiff.analysis.patterns import LayerPatterns

FILES = ("patterns.png", "kernels.png", "filters.png", "features.png", "analysis.json")


@click.command()
@click.argument("model")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the figures.",
)
@click.option("--data-dir", metavar="DIR", help="CIFAR-100 or a folder per class; without it, no feature maps.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=100, show_default=True, help="Number of images."
)
@click.option("--overwrite", is_flag=True, help="Replace existing figures.")
def analyze(model: str, output: Path, data_dir: str | None, limit: int, overwrite: bool) -> None:
    """Plot the LBP codes of the 3x3 binary kernels of MODEL before and after training, and frequencies.

    MODEL is a pretrained model's name or a weights file. Writes figures and analysis.json.
    """
    try:
        from pixeldiff.analysis import patterns as analysis
        from pixeldiff.analysis import plots as analysis_plots
        from pixeldiff.models.saving import load_with_description
    except ImportError as error:
        raise MissingExtra("train", "analyze", error.name) from error
    if not overwrite and (existing := [name for name in FILES if (output / name).exists()]):
        raise OutputError(f"{output / existing[0]} exists; choose another --output or give --overwrite")
    network, described = load_with_description(model)
    after = analysis.kernel_patterns(network)
    if not after:
        raise InputError(f"{model} has no 3x3 binary kernels; analyze takes binary networks")
    before = analysis.kernel_patterns(_untrained(described))
    batch = None if data_dir is None else _batch(described, network, data_dir, limit)
    all_before, all_after = analysis.pooled(before), analysis.pooled(after)
    save_figure(analysis_plots.plot_patterns(all_before, all_after), output / FILES[0], dpi=120)
    save_figure(analysis_plots.plot_kernels(after), output / FILES[1], dpi=120)
    save_figure(analysis_plots.plot_filters(), output / FILES[2], dpi=120)
    rows = [_row(old, new) for old, new in zip([*before, *all_before], [*after, *all_after], strict=True)]
    report: dict[str, Any] = {"uniform_by_chance": 58 / 256, "layers": rows}
    if batch is not None:
        spectra = analysis.feature_spectra(analysis.feature_maps(network, batch))
        save_figure(analysis_plots.plot_features(spectra), output / FILES[3], dpi=120)
        report["high_frequency"] = {
            layer: {branch: analysis.high_frequency_fraction(m) for branch, m in of_layer.items()}
            for layer, of_layer in spectra.items()
        }
    atomic_write(output / FILES[4], (json.dumps(report, indent=1) + "\n").encode())
    for row in rows:
        click.echo(
            f"{row['layer']:22} {row['branch']:8} uniform {100 * row['before']:5.1f}% -> {100 * row['after']:5.1f}%"
        )


def _row(old: LayerPatterns, new: LayerPatterns) -> dict[str, Any]:
    """Return the fraction of uniform codes of a layer before and after training, and its most frequent codes."""
    return {
        "layer": new.layer,
        "branch": new.branch,
        "before": old.uniform_fraction,
        "after": new.uniform_fraction,
        "most_frequent": {int(code): new.counts[code] / new.counts.sum() for code in new.most_frequent()},
    }


def _untrained(described: dict[str, Any]) -> nn.Module:
    """Build the network as it was before training: the same config and seed."""
    import torch

    from pixeldiff.models import build_from_config

    torch.manual_seed(described.get("recipe", {}).get("seed", 0))
    return build_from_config(described["family"], described["config"])


def _batch(described: dict[str, Any], model: nn.Module, root: str, count: int) -> Any:
    from pixeldiff.training.tasks.class_images import spread
    from pixeldiff.training.tasks.classes import data_of, open_images
    from pixeldiff.training.tasks.images import normalize

    data = data_of(described, model.config.stem, root)  # type: ignore[union-attr, arg-type]
    images = open_images(data, 0, training=False)
    return normalize(images.plain(spread(count, len(images)))[0])
