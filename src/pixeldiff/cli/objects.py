"""`pixeldiff objects`: objects in images, folders, globs and videos, drawn on them or as JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from PIL import Image

from pixeldiff import image, weights
from pixeldiff.cli import _cluster, _json
from pixeldiff.cli._network import complete_model, open_network
from pixeldiff.errors import UserError
from pixeldiff.files import Found, Job, atomic_write, destination, find_files, make_folder, plan_jobs
from pixeldiff.inference.objects import TASK, THRESHOLD
from pixeldiff.jobs import video
from pixeldiff.jobs.edges import share
from pixeldiff.jobs.local import Outcome, work_through
from pixeldiff.jobs.video import is_clip
from pixeldiff.machine import cores
from pixeldiff.render.detections import draw
from pixeldiff.render.formats import save_image

if TYPE_CHECKING:
    from pixeldiff.inference.objects import Found as Boxes
    from pixeldiff.inference.objects import ObjectDetector

WRITTEN = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
QUALITY = 92


@click.command()
@click.argument("inputs", nargs=-1, required=True, type=click.Path())
@click.option(
    "-o",
    "--out",
    type=click.Path(),
    help="Folder for the results, or the file for one image. [default: beside the image]",
)
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_model(TASK),
    help="A pretrained model or a weights file. [default: the shipped one with the best mAP]",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    metavar="T",
    default=THRESHOLD,
    show_default=True,
    help="Leave out boxes with a lower score.",
)
@click.option("--no-draw", is_flag=True, help="Write no images; tell what was found, or with --json where.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@click.option("--overwrite", is_flag=True, help="Replace results that exist; by default they are kept.")
@_json.option
@_cluster.options
def objects(
    inputs: tuple[str, ...],
    out: str | None,
    model: str | None,
    threshold: float,
    no_draw: bool,
    threads: int | None,
    overwrite: bool,
    json_target: str | None,
    cluster: _cluster.Cluster | None,
) -> int:
    """Find objects in INPUTS: images, folders (searched to the bottom), globs or videos.

    photo.jpg becomes photo.objects.jpg, with a box, a name and a score round each object; clip.mp4 becomes
    clip.objects.mp4. The `results` of --json are of COCO's format. The exit code is 1 if some images failed.
    """
    from pixeldiff.cli import _report as report

    _json.check(json_target, overwrite)
    model = model or weights.best(TASK)
    if cluster:
        return _on_cluster(cluster, inputs, out, model, threshold, no_draw, overwrite, json_target)
    if no_draw and out is not None:
        raise UserError("--no-draw writes no images; leave it or -o out")
    found = find_files(inputs, image.SUFFIXES, "images", out)
    jobs = _plan(found, inputs, out, no_draw)
    threads = threads or cores()
    start = time.perf_counter()
    several = threads if any(is_clip(job.source) for job in jobs) else len(jobs)
    with open_network(model, TASK, *share(threads, several)) as opened:
        run = Run(opened.network, threshold, not no_draw, overwrite or no_draw, _note(opened.name, threshold))
        outcomes = run.all(jobs)
    seconds = time.perf_counter() - start
    failed = report.failures(found, outcomes)
    if len(inputs) == len(jobs) == 1 and outcomes[0].error and not Path(inputs[0]).is_dir():
        raise UserError(outcomes[0].error)
    more = {"model": opened.name, "seconds": round(seconds, 3), **run.as_coco(outcomes)}
    _json.write(json_target, "objects", more.pop("results"), failed, overwrite, **more)
    if json_target != _json.STDOUT:
        report.say(run.sentences(outcomes))
        report.say(report.sentences(outcomes, jobs, seconds) if not no_draw else ())
    report.remark(report.remarks(outcomes, found, len(jobs), sized=True))
    return report.exit_code(outcomes, failed)


def _on_cluster(
    cluster: _cluster.Cluster,
    inputs: tuple[str, ...],
    out: str | None,
    word: str,
    threshold: float,
    no_draw: bool,
    overwrite: bool,
    json_target: str | None,
) -> int:
    """Images only; without drawing, the boxes are rows of the manifest."""
    source, target = _cluster.single(inputs, out)
    network = _cluster.carry(word, TASK, cluster)
    note = _note(Path(network.name).stem, threshold) + " --no-draw" * no_draw
    make = partial(make_rows, threshold=threshold) if no_draw else partial(make_drawn, threshold=threshold, note=note)
    task = _cluster.Task("objects", source, target, network, make, None if no_draw else _ending, note, overwrite)
    return _cluster.run(task, cluster, json_target)


def make_rows(detector: ObjectDetector, content: bytes, name: str, threshold: float) -> str:
    """An image's file to its boxes, as JSON."""
    return json.dumps(_entries(detector.find(content, threshold, name)))


def _note(model: str, threshold: float) -> str:
    """The command that makes such results."""
    return f"pixeldiff objects --model {model} --threshold {threshold:g}".encode("ascii", "replace").decode()


def make_drawn(detector: ObjectDetector, content: bytes, name: str, threshold: float, note: str) -> dict[str, bytes]:
    """An image's file to that with boxes."""
    found = detector.find(content, threshold, name)
    whole = image.as_8_bit(image.decode(content, name))
    return {"": _drawn(detector, whole, found, Path(_ending(Path(name))).suffix, note)}


def _drawn(detector: ObjectDetector, whole: image.ImageArray, found: Boxes, suffix: str, note: str) -> bytes:
    drawn = Image.fromarray(draw(whole, found, detector.labels))
    return save_image(drawn, WRITTEN[suffix.lower()], note, quality=QUALITY)


def _entries(found: Boxes) -> list[dict[str, Any]]:
    """Boxes as COCO has them."""
    entries = []
    for box, score, label, name in zip(found.boxes, found.scores, found.labels, found.names, strict=True):
        left, top, right, bottom = (round(float(side), 2) for side in box)
        bbox = [left, top, round(right - left, 2), round(bottom - top, 2)]
        entries.append({"category_id": int(label), "bbox": bbox, "score": round(float(score), 4), "category": name})
    return entries


def _plan(found: Found, inputs: Sequence[str], out: str | None, no_draw: bool) -> list[Job]:
    """The jobs; what would only show after the work is told before."""
    if not found.files:
        raise UserError("; ".join(found.missing.values()))
    if no_draw and any(is_clip(path) for path, _ in found.files):
        raise UserError("--no-draw is for images; a video's boxes are drawn into a video")
    written = [*(() if all(is_clip(Path(one)) for one in inputs) else WRITTEN), *video.WRITTEN]
    target = destination(inputs, out, written, (*image.SUFFIXES, *video.SUFFIXES))
    if "-" in inputs or out == "-":
        raise UserError("- is not taken here; give the names of files")
    jobs = plan_jobs(found, target, None if target or out is None else Path(out), _ending)
    for job in jobs:
        if (job.target.suffix.lower() in video.WRITTEN) != is_clip(job.source):
            raise UserError(f"-o {job.target} does not fit {job.source}; a video becomes a video, an image an image")
    if out is not None and not no_draw:
        make_folder(target.parent if target else Path(out))
    return jobs


def _ending(source: Path) -> str:
    """JPEG, as photographs have it; without loss for images that are so."""
    if is_clip(source):
        return f"objects{video.written_as(source)}"
    return "objects.png" if source.suffix.lower() in (".png", ".bmp", ".gif", ".tif", ".tiff") else "objects.jpg"


@dataclass
class Run:
    """One detector over all jobs, and what it has found."""

    detector: ObjectDetector
    threshold: float
    draws: bool
    overwrite: bool
    note: str = ""  # the command that makes such results
    found: dict[Path, Boxes] = field(default_factory=dict)

    def all(self, jobs: Sequence[Job]) -> list[Outcome]:
        from pixeldiff.cli import _report as report

        images = [job for job in jobs if not is_clip(job.source)]
        clips = [job for job in jobs if is_clip(job.source)]
        done = work_through(images, self.image, self.detector.streams)
        outcomes = list(report.with_progress(done, len(images)))
        if not report.count(outcomes, "full"):
            outcomes += video.rewrite_clips(clips, self.clip, self.overwrite, report.show_progress)
        return sorted(outcomes, key=lambda one: str(one.job.source))

    def image(self, job: Job) -> Outcome:
        kept = self.draws and job.target.exists() and not self.overwrite
        found = self.detector(job.source, self.threshold)  # from the file, whether or not it is drawn: see load_near
        self.found[job.source] = found
        if kept:
            return Outcome(job, "kept", files=(job.target,), size=found.size)
        if not self.draws:
            return Outcome(job, "done", size=found.size)
        atomic_write(job.target, _drawn(self.detector, image.read8(job.source), found, job.target.suffix, self.note))
        return Outcome(job, "done", files=(job.target,), size=found.size)

    def clip(self, job: Job, progress: video.Progress) -> video.Clip:
        def work(frame: image.ImageArray) -> Any:
            return draw(frame, self.detector(frame, self.threshold), self.detector.labels)

        streams = self.detector.streams
        return video.rewrite_video(job.source, job.target, work, lambda drawn: drawn, streams, progress, self.note)

    def as_coco(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """`results` as COCO's tools read them, the images and the categories that they speak of."""
        results, images = [], []
        for one in outcomes:
            if (own := self.found.get(one.job.source)) is None or one.error:
                continue
            source, stem = str(one.job.source), one.job.source.stem
            id = int(stem) if stem.isdecimal() else stem  # COCO's own images are called by their numbers
            entry = {"input": source, "image_id": id, "width": own.size[1], "height": own.size[0]}
            images.append(entry | {"boxes": len(own.scores), "outputs": [str(file) for file in one.files]})
            results += [{"image_id": id, **entry, "input": source} for entry in _entries(own)]
        categories = [{"id": place, "name": name} for place, name in enumerate(self.detector.labels)]
        return {"images": images, "categories": categories, "results": results}

    def sentences(self, outcomes: Sequence[Outcome]) -> list[str]:
        """What each image shows, most of it first."""
        lines = []
        for one in outcomes:
            if own := self.found.get(one.job.source):
                counts = Counter(own.names).most_common()
                lines.append(f"{one.job.source}: {', '.join(f'{n} {name}' for name, n in counts) or 'nothing found'}")
        return lines
