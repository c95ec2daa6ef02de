"""A network for faces on lists of pairs: LFW, CFP, YTF, CALFW, CPLFW or your own; accuracy, AUC and the ROC curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import image
from pixeldiff.data.faces import Item, Pairs, read_pairs
from pixeldiff.errors import UserError
from pixeldiff.evaluation import Asked, Each, InThreads, Network, Outcome, Progress
from pixeldiff.figures import COLOURS, check_plot, save_figure
from pixeldiff.files import check_overwrite
from pixeldiff.metrics.faces import roc, summarize

_BATCH = 16
_MOST_FRAMES = 100  # of a video, evenly spaced

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Options:
    """How well a network tells whether two images show one person, on a published list of pairs or your own
    (pairs: lines "image image 1" or "... 0" in FOLDER/pairs.txt)."""

    lists: Path | None = field(
        default=None, metadata={"kind": "folder", "help": "Where the lists of pairs are, if not in --data."}
    )
    plot: Path | None = field(
        default=None, metadata={"kind": "file", "help": "Draw the curve (precision-recall, ROC): .png, .svg or .pdf."}
    )


def prepare(options: Options, asked: Asked) -> Job:
    if asked.data is None:
        raise UserError("where are the images? give --data FOLDER, that of the data set")
    if options.plot is not None:
        check_overwrite(options.plot, asked.overwrite)
        check_plot(options.plot)
    return Job(options, asked.dataset, read_pairs(asked.dataset, asked.data, options.lists), asked.threads, asked.each)


@dataclass(frozen=True)
class Job:
    options: Options
    dataset: str
    pairs: Pairs
    streams: int  # workers go from image to image, each with a thread
    each: Each | None = None

    def run(self, network: Network | None, progress: Progress) -> Outcome:
        if network is None:
            raise UserError("one network is scored: give --model NAME or --weights FILE")
        tick = progress(network.name, len(self.pairs.items))
        vectors, whole = embed_items(network.run, self.pairs.items, self.streams, tick, self.each)
        scores = cosines(vectors, self.pairs)
        found = summarize(scores, self.pairs.same, self.pairs.folds)
        if self.options.plot is not None:
            plot_roc(self.options.plot, {network.name: (scores, self.pairs.same)})
        result = {"name": network.name, "dataset": self.dataset, **found, "without_face": whole}
        return Outcome([{**result, "sha256": network.sha256}], _table(result))


def _table(result: dict[str, Any]) -> list[str]:
    wide = max(7, len(result["name"]))
    error = "" if result["accuracy_error"] is None else f" +- {result['accuracy_error']:.2f}"
    heads = "".join(f"{f'TAR@{rate}':>11}" for rate in result["tar"])
    rates = "".join(f"{percent:11.2f}" for percent in result["tar"].values())
    lines = [
        f"{'network':{wide}}  accuracy (%)       AUC  EER (%){heads}  pairs",
        f"{result['name']:{wide}}  {result['accuracy']:5.2f}{error:9}  {result['auc']:.4f}  {result['eer']:7.2f}{rates}"
        f"  {result['pairs']:5}",
    ]
    if result["without_face"]:
        lines.append(f"in {result['without_face']} images no face was found; they were taken whole")
    return lines


def cosines(vectors: Vectors, pairs: Pairs) -> Vectors:
    """The scores of pairs: cosines of the items' unit vectors."""
    result: Vectors = np.einsum("nd,nd->n", vectors[pairs.left], vectors[pairs.right])
    return result


def embed_items(
    network: Any,
    items: tuple[Item, ...],
    streams: int,
    tick: Callable[[int], None] = lambda done: None,
    each: Each | None = None,
) -> tuple[Vectors, int]:
    """A unit vector per item, and in how many images no face was found. A video is the mean of its frames."""

    def embed(start: int) -> tuple[list[Vectors], int]:
        faces, sizes, whole = [], [], 0
        for item in items[start : start + _BATCH]:
            frames = item[:: -(-len(item) // _MOST_FRAMES)]
            prepared = [_face(network, frame) for frame in frames]
            whole += sum(not found for _, found in prepared)
            faces += [face for face, _ in prepared]
            sizes.append(len(prepared))
        vectors = np.concatenate([network.embed(np.stack(faces[k : k + _BATCH])) for k in range(0, len(faces), _BATCH)])
        return [_mean(group) for group in np.split(vectors, np.cumsum(sizes)[:-1])], whole

    found: dict[int, list[Vectors]] = {}
    missing = 0
    for start, (vectors, whole) in (each or InThreads(streams))(embed, range(0, len(items), _BATCH)):
        found[start] = vectors
        missing += whole
        tick(len(vectors))
    return np.stack([vector for start in sorted(found) for vector in found[start]]), missing


def _mean(vectors: Vectors) -> Vectors:
    if len(vectors) == 1:
        one: Vectors = vectors[0]
        return one
    mean: Vectors = vectors.mean(0)
    return mean / max(float(np.linalg.norm(mean)), 1e-12)


def _face(network: Any, path: Path) -> tuple[NDArray[np.uint8], bool]:
    """The aligned face of an image and True, or the full image in that size and False: every pair counts."""
    pixels = image.read8(path)
    face: NDArray[np.uint8] | None = network.find(pixels)
    return (image.as_8_bit(image.reduce(pixels, image.FACE)), False) if face is None else (face, True)


def plot_roc(path: Path, curves: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]) -> None:
    """True over false accept rates, the latter in decades, one curve per network (scores and same of its pairs)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for k, (name, (scores, same)) in enumerate(curves.items()):
        false, true, _ = roc(scores, same)
        axes.plot(np.maximum(false, 1e-4), true, color=COLOURS[k % len(COLOURS)], linewidth=2, label=name)
    chance = np.geomspace(1e-4, 1, 100)
    axes.plot(chance, chance, ":", color="#888888", linewidth=1, label="chance")
    axes.set(xscale="log", xlim=(1e-4, 1), ylim=(0, 1), xlabel="False accept rate", ylabel="True accept rate")
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc="upper left", framealpha=0.95, fontsize=9)
    save_figure(figure, path, dpi=200)
