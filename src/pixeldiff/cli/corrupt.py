"""`pixeldiff corrupt`: damaged copies of pictures, or one sheet with all 15 kinds at all 5 severities."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pixeldiff import image as pictures
from pixeldiff.errors import UserError
from pixeldiff.files import write_whole
from pixeldiff.runtime.stream import KEPT, Found, find_pictures, names_folder, plan_jobs, refuse_itself

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
SHEET_SIDE = 150  # the longer side of a picture on the sheet


@click.command()
@click.argument("images", nargs=-1, required=True, type=click.Path())
@click.option("--kind", required=True, help="A corruption such as fog, or all for a contact sheet.")
@click.option("--severity", type=click.IntRange(1, 5), default=1, show_default=True, help="1 to 5.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="One seed, one result.")
@click.option("-o", "--out", type=click.Path(), help="Folder for the results, or the file for one picture.")
@click.option("--overwrite", is_flag=True, help="Replace results that exist; by default they are kept.")
def corrupt(images: tuple[str, ...], kind: str, severity: int, seed: int, out: str | None, overwrite: bool) -> int:
    """Write damaged copies of IMAGES (pictures, folders or globs): photo.jpg becomes photo.fog-3.png.

    With --kind all: a sheet of the 15 kinds at the 5 severities, photo.corruptions.png. The exit code is 1 if some
    pictures failed.
    """
    try:
        from pixeldiff.robustness.corruptions import KINDS
    except ImportError as error:
        raise UserError(f"this needs {error.name}; install it with: pip install 'pixeldiff[robustness]'") from error
    if kind not in (*KINDS, "all"):
        raise UserError(f"unknown corruption {kind!r}; there are all, {', '.join(KINDS)}")
    jobs, failures = _plan(images, out, "corruptions" if kind == "all" else f"{kind}-{severity}")
    if not jobs and not failures:
        raise UserError(f"only earlier results in {' '.join(images)}; name a file to corrupt it again")
    for source, target in jobs.items():
        try:
            if target.exists() and not overwrite:
                click.echo(f"{target} {KEPT}")
                continue
            write_whole(target, _encode(_damaged(pictures.read8(source), kind, severity, seed), target))
            click.echo(str(target))
        except (UserError, OSError) as error:  # the system's: a name too long to look for
            failures.append(str(error))
    if failures and len(images) == len(failures) == 1 and len(jobs) <= 1:
        raise UserError(failures[0])
    for failure in failures:
        click.echo("pixeldiff: skipped: " + " ".join(failure.split()), err=True)
    return 1 if failures else 0


def _plan(images: tuple[str, ...], given: str | None, ending: str) -> tuple[dict[Path, Path], list[str]]:
    """Picture -> result, and what was not found. An earlier result is input only where it alone is named."""
    out = Path(given) if given else None
    folder = out if given and (names_folder(given) or not Path(given).suffix) else None
    found = find_pictures(images, folder)
    alone = len(images) == 1 and Path(images[0]).is_file()
    files = [(one, root) for one, root in found.files if alone or not _is_result(one)]
    if out is not None and folder is None:
        if not files and found.missing:
            raise UserError(found.missing[0])
        if len(files) != 1 or len(images) != 1:
            raise UserError(f"-o {out} is one file, but the input is {len(files)} pictures; give a folder")
        if out.suffix.lower() not in FORMATS:
            raise UserError(f"cannot write {out.name!r}; use {', '.join(FORMATS)}")
        refuse_itself(files[0][0], out)
        return {files[0][0]: out}, found.missing
    jobs = plan_jobs(Found(files, found.missing), folder, f"{ending}.png")
    return {job.source: job.target for job in jobs}, found.missing


def _is_result(path: Path) -> bool:
    from pixeldiff.robustness.corruptions import KINDS

    ending = path.stem.rpartition(".")[2]
    return ending == "corruptions" or ending.rpartition("-")[0] in KINDS


def _damaged(picture: np.ndarray[Any, Any], kind: str, severity: int, seed: int) -> np.ndarray[Any, Any]:
    from pixeldiff.robustness.corruptions import corrupt as damage

    return sheet(picture, seed) if kind == "all" else damage(picture, severity, kind, seed=seed)


def sheet(picture: np.ndarray[Any, Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """All kinds (rows) at all severities (columns). The picture is shrunk first: damage shrunk later would vanish."""
    from pixeldiff.robustness.corruptions import KINDS, SEVERITIES
    from pixeldiff.robustness.corruptions import corrupt as damage

    small = Image.fromarray(picture)
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


def _encode(picture: np.ndarray[Any, Any], target: Path) -> bytes:
    file = io.BytesIO()
    try:
        Image.fromarray(picture).save(file, FORMATS[target.suffix.lower()])
    except (OSError, ValueError) as error:  # WebP and JPEG have a largest side
        size = f"{picture.shape[1]}x{picture.shape[0]}"
        raise UserError(f"cannot write {size} pixels as {target.suffix} ({error}); use .png") from error
    return file.getvalue()
