"""`pixeldiff analyze`: the patterns and frequencies that a trained binary network has learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.figures import save_figure
from pixeldiff.files import atomic_write

if TYPE_CHECKING:
    from torch import nn

    from pixeldiff.analysis.patterns import LayerPatterns

FILES = ("patterns.png", "kernels.png", "filters.png", "features.png", "analysis.json")


@click.command()
@click.argument("weights", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for the figures.")
@click.option("--data", type=str, help="CIFAR-100 or folder of classes; without it no feature maps.")
@click.option("--images", type=click.IntRange(min=1), default=100, show_default=True, help="How many to run.")
@click.option("--overwrite", is_flag=True, help="Replace figures in --out.")
def analyze(weights: Path, out: Path, data: str | None, images: int, overwrite: bool) -> None:
    """LBP codes of the 3x3 binary kernels of WEIGHTS before and after training, and FFT maps, as plots and JSON."""
    try:
        from pixeldiff.analysis import patterns as analysis
        from pixeldiff.analysis import plots as analysis_plots
        from pixeldiff.models.saving import load_with_description
    except ImportError as error:
        raise MissingExtra("train", "analyze", error.name) from error
    if not overwrite and (there := [name for name in FILES if (out / name).exists()]):
        raise UserError(f"{out / there[0]} exists; choose another --out or give --overwrite")
    model, described = load_with_description(weights)
    after = analysis.kernel_patterns(model)
    if not after:
        raise UserError(f"{weights} has no 3x3 binary kernels; analyze takes binary networks")
    before = analysis.kernel_patterns(_untrained(described))
    batch = None if data is None else _batch(described, model, data, images)
    all_before, all_after = analysis.pooled(before), analysis.pooled(after)
    save_figure(analysis_plots.plot_patterns(all_before, all_after), out / FILES[0], dpi=120)
    save_figure(analysis_plots.plot_kernels(after), out / FILES[1], dpi=120)
    save_figure(analysis_plots.plot_filters(), out / FILES[2], dpi=120)
    rows = [_row(old, new) for old, new in zip([*before, *all_before], [*after, *all_after], strict=True)]
    report: dict[str, Any] = {"uniform_by_chance": 58 / 256, "layers": rows}
    if batch is not None:
        spectra = analysis.feature_spectra(analysis.feature_maps(model, batch))
        save_figure(analysis_plots.plot_features(spectra), out / FILES[3], dpi=120)
        report["high_frequency"] = {
            layer: {branch: analysis.high_frequency_share(m) for branch, m in of_layer.items()}
            for layer, of_layer in spectra.items()
        }
    atomic_write(out / FILES[4], (json.dumps(report, indent=1) + "\n").encode())
    for row in rows:
        click.echo(
            f"{row['layer']:22} {row['branch']:8} uniform {100 * row['before']:5.1f}% -> {100 * row['after']:5.1f}%"
        )


def _row(old: LayerPatterns, new: LayerPatterns) -> dict[str, Any]:
    """A layer's share of uniform codes before and after training, and the codes that it has most often."""
    return {
        "layer": new.layer,
        "branch": new.branch,
        "before": old.uniform_share,
        "after": new.uniform_share,
        "most_frequent": {int(code): new.counts[code] / new.counts.sum() for code in new.most_frequent()},
    }


def _untrained(described: dict[str, Any]) -> nn.Module:
    """The network as its training began: the same config and seed."""
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
