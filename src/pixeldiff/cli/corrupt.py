"""`pixeldiff corrupt`: damaged copies of images, or one sheet with all 15 kinds at all 5 severities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pixeldiff import image as images
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import KEPT, Job, atomic_write, destination, find_files, holds, plan_jobs, remove_stale_temp_files
from pixeldiff.render.formats import save_image

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
_COMMAND = "pixeldiff corrupt --kind "  # what a result's note begins with
SHEET_SIDE = 150  # the longer side of an image on the sheet


@click.command()
@click.argument("inputs", nargs=-1, required=True, type=click.Path())
@click.option("--kind", required=True, help="A corruption such as fog, or all for a contact sheet.")
@click.option("--severity", type=click.IntRange(1, 5), default=1, show_default=True, help="1 to 5.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="One seed, one result.")
@click.option("-o", "--out", type=click.Path(), help="Folder for the results, or the file for one image.")
@click.option("--overwrite", is_flag=True, help="Replace results that exist; by default they are kept.")
def corrupt(inputs: tuple[str, ...], kind: str, severity: int, seed: int, out: str | None, overwrite: bool) -> int:
    """Write damaged copies of INPUTS (images, folders or globs): photo.jpg becomes photo.fog-3.png.

    With --kind all: a sheet of the 15 kinds at the 5 severities, photo.corruptions.png. The exit code is 1 if some
    images failed.
    """
    try:
        from pixeldiff.robustness.corruptions import KINDS
    except ImportError as error:
        raise MissingExtra("robustness", "corrupt", error.name) from error
    if kind not in (*KINDS, "all"):
        raise UserError(f"unknown corruption {kind!r}; there are all, {', '.join(KINDS)}")
    jobs, missing = _plan(inputs, out, "corruptions" if kind == "all" else f"{kind}-{severity}")
    failures = list(missing.values())
    if not jobs and not failures:
        raise UserError(f"only earlier results in {' '.join(inputs)}; name a file to corrupt it again")
    remove_stale_temp_files({job.target.parent for job in jobs})
    for job in jobs:
        try:
            if job.target.exists() and not overwrite:
                click.echo(f"{job.target} {KEPT}")
                continue
            damaged = _damaged(images.read8(job.source), kind, severity, seed)
            atomic_write(
                job.target, _encode(damaged, job.target, f"{_COMMAND}{kind} --severity {severity} --seed {seed}")
            )
            click.echo(str(job.target))
        except (UserError, OSError) as error:  # the system's: a name too long to look for
            failures.append(str(error))
    if failures and len(inputs) == len(failures) == 1 and len(jobs) <= 1:
        raise UserError(failures[0])
    for failure in failures:
        click.echo("pixeldiff: skipped: " + " ".join(failure.split()), err=True)
    return 1 if failures else 0


def _plan(inputs: tuple[str, ...], out: str | None, ending: str) -> tuple[list[Job], dict[str, str]]:
    """The jobs, and what was not found. An earlier result is input only where it alone is named."""
    if "-" in (*inputs, out):
        raise UserError("corrupt reads and writes files, not stdin and stdout; a file of that name is ./-")
    found = find_files(inputs, images.SUFFIXES, "images", out)
    alone = len(inputs) == 1 and Path(inputs[0]).is_file()
    found.files = [(one, root) for one, root in found.files if alone or not _is_result(one)]
    target = destination(inputs, out, tuple(FORMATS), images.SUFFIXES)
    if not found.files:
        return [], found.missing
    folder = Path(out) if out and target is None else None
    return plan_jobs(found, target, folder, lambda _: f"{ending}.png"), found.missing


def _is_result(path: Path) -> bool:
    """Whether this command has made a file: its name allows it, and it holds the command."""
    from pixeldiff.robustness.corruptions import KINDS

    ending = path.stem.rpartition(".")[2]
    return (ending == "corruptions" or ending.rpartition("-")[0] in KINDS) and holds(path, _COMMAND.encode())


def _damaged(image: np.ndarray[Any, Any], kind: str, severity: int, seed: int) -> np.ndarray[Any, Any]:
    from pixeldiff.robustness.corruptions import corrupt as damage

    return sheet(image, seed) if kind == "all" else damage(image, severity, kind, seed=seed)


def sheet(image: np.ndarray[Any, Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """All kinds (rows) at all severities (columns). The image is shrunk first: damage shrunk later would vanish."""
    from pixeldiff.robustness.corruptions import KINDS, SEVERITIES
    from pixeldiff.robustness.corruptions import corrupt as damage

    small = Image.fromarray(image)
    small.thumbnail((SHEET_SIDE, SHEET_SIDE), Image.Resampling.BOX)
    cell = np.asarray(small)
    height, width = cell.shape[:2]
    margin, gap, line = 124, 4, 22
    columns, rows = len(SEVERITIES), len(KINDS)
    page = Image.new("RGB", (margin + columns * (width + gap), line + rows * (height + gap)), "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(13)
    for column, severity in enumerate(SEVERITIES):
        x = margin + column * (width + gap)
        draw.text((x + width / 2, line / 2), f"severity {severity}", "black", font, anchor="mm")
        for row, kind in enumerate(KINDS):
            page.paste(Image.fromarray(damage(cell, severity, kind, seed=seed)), (x, line + row * (height + gap)))
    for row, kind in enumerate(KINDS):
        middle = line + row * (height + gap) + height / 2
        draw.text((margin - 8, middle), kind.replace("_", " "), "black", font, anchor="rm")
    return np.asarray(page)


def _encode(image: np.ndarray[Any, Any], target: Path, note: str) -> bytes:
    try:
        return save_image(Image.fromarray(image), FORMATS[target.suffix.lower()], note)
    except (OSError, ValueError) as error:  # WebP and JPEG have a largest side
        size = f"{image.shape[1]}x{image.shape[0]}"
        raise UserError(f"cannot write {size} pixels as {target.suffix} ({error}); use .png") from error
