"""`pixeldiff objects`: objects in images, folders, globs and videos, drawn on them or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli._images import RunOptions, collect, run_images, run_options
from pixeldiff.cli._network import complete_model, find_network
from pixeldiff.cli._options import GroupedCommand, option
from pixeldiff.errors import UserError
from pixeldiff.inference.objects import TASK, THRESHOLD
from pixeldiff.jobs.objects import FindObjects
from pixeldiff.jobs.operation import ModelSpec, Result
from pixeldiff.render.formats import IMAGE_SUFFIXES

DETECTION = "Detection"


@click.command(cls=GroupedCommand)
@click.argument("inputs", nargs=-1, type=click.Path())
@option(
    DETECTION,
    "-m",
    "--model",
    metavar="NAME|FILE",
    shell_complete=complete_model(TASK),
    help="A pretrained model or a weights file. [default: the pretrained one with the best mAP]",
)
@option(
    DETECTION,
    "--threshold",
    type=click.FloatRange(0, 1),
    metavar="T",
    default=THRESHOLD,
    show_default=True,
    help="Lowest score of an object.",
)
@option(DETECTION, "--no-draw", is_flag=True, help="Write no images; print counts, and with --json the boxes.")
@run_options
def objects(inputs: tuple[str, ...], model: str | None, threshold: float, no_draw: bool, run: RunOptions) -> int:
    """Find objects in INPUTS: images, folders (recursively), globs or videos.

    photo.jpg becomes photo.objects.jpg, with a box, a name and a score at each object; clip.mp4 becomes
    clip.objects.mp4. The `results` of --json have COCO's format. The exit code is 1 if some images failed.
    """
    images = collect(inputs, run, formats=tuple(IMAGE_SUFFIXES), videos=True)
    if no_draw and images.videos:
        raise UserError("--no-draw is for images; the objects of a video are drawn into a video")
    if no_draw and run.output and not run.cluster:
        raise UserError("--no-draw writes no images; omit it or -o")
    with find_network(model or weights.best(TASK), TASK) as named:
        suffix = images.target.suffix if images.target and not images.videos else ""
        needs_record = run.json_target is not None
        operation = FindObjects(ModelSpec(TASK, named.runs), threshold, not no_draw, suffix, needs_record)
        names = weights.describe(named.runs).get("labels", ())

        def as_coco(results: Sequence[Result]) -> dict[str, Any]:
            return _as_coco(results, names)

        return run_images("objects", operation, images, run, show=_lines, as_json=as_coco, model=named.name)


def _as_coco(results: Sequence[Result], names: Sequence[str]) -> dict[str, Any]:
    """Return `results` as COCO's tools read them, with their images and categories."""
    objects, images = [], []
    for result in results:
        if result.error or "objects" not in result.record:
            continue
        record, source, stem = result.record, str(result.job.source), result.job.source.stem
        id = int(stem) if stem.isdecimal() else stem  # the names of COCO's own images are their numbers
        entry = {"input": source, "image_id": id, "width": record["width"], "height": record["height"]}
        outputs = [str(file) for file in result.files]
        images.append(entry | {"objects": len(record["objects"]), "outputs": outputs})
        objects += [{"image_id": id, **found, "input": source} for found in record["objects"]]
    categories = [{"id": place, "name": name} for place, name in enumerate(names)]
    return {"images": images, "categories": categories, "results": objects}


def _lines(result: Result) -> Iterator[str]:
    if "objects" in result.record:
        counts = Counter(found["category"] for found in result.record["objects"]).most_common()
        yield f"{result.job.source}: {', '.join(f'{n} {name}' for name, n in counts) or 'no objects'}"
