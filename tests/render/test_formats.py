"""File formats: each holds the map and its provenance, and names what it cannot hold."""

import io

import numpy as np
import pytest
from PIL import Image

from pixeldiff.errors import InputError
from pixeldiff.inference.edges import EdgeResult, Look
from pixeldiff.render.drawing import Drawing, check_size, render, resolve
from pixeldiff.render.formats import BACKGROUNDS, FORMATS, SUFFIXES, read_provenance

COMMAND = "pixeldiff detect --model a<b> & c"


@pytest.fixture
def edges(rng):
    return rng.random((9, 14), dtype=np.float32)


def encoded(edges, drawing, photo=None, provenance=""):
    return render(EdgeResult(edges[None], Look(), edges.shape), drawing, photo, provenance)


@pytest.mark.parametrize("name", FORMATS)
def test_provenance_is_read_again_if_a_format_holds_it(name, edges, tmp_path):
    kind = FORMATS[name]
    path = tmp_path / f"x.{kind.suffix}"
    path.write_bytes(encoded(edges, Drawing(name), provenance=COMMAND))
    assert read_provenance(path) == ("" if kind.takes == "numbers" else COMMAND)
    path.write_bytes(encoded(edges, Drawing(name)))
    assert read_provenance(path) == ""


@pytest.mark.parametrize("suffix", [*SUFFIXES, "txt"])
def test_other_files_have_no_provenance(suffix, tmp_path):
    path = tmp_path / f"x.{suffix}"
    assert read_provenance(path) == ""
    path.write_bytes(b"\xffanything")
    assert read_provenance(path) == ""


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_its_backgrounds_and_no_other(name, edges, rng):
    photo = rng.integers(0, 256, (9, 14, 3), dtype=np.uint8)
    files = set()
    for background in BACKGROUNDS:
        if background in FORMATS[name].backgrounds:
            files.add(encoded(edges, resolve(Look(), Drawing(name, background=background))[1], photo))
        else:
            with pytest.raises(InputError, match=f"a {background} background needs"):
                resolve(Look(), Drawing(name, background=background))
    assert len(files) == len(FORMATS[name].backgrounds)


@pytest.mark.parametrize("name", [name for name, kind in FORMATS.items() if kind.takes == "image"])
def test_images_have_the_levels_of_the_map(name, edges):
    drawn = np.asarray(Image.open(io.BytesIO(encoded(edges, Drawing(name)))))
    levels = FORMATS[name].levels(edges)
    lossy = 12 if name == "jpg" else 0
    gray = drawn[..., 0] if drawn.ndim == 3 else drawn
    assert np.abs(gray.astype(int) - levels.astype(int)).max() <= lossy


@pytest.mark.parametrize("name", FORMATS)
def test_sizes_that_a_format_cannot_hold_are_errors(name):
    wanted = resolve(Look(), Drawing(name))
    limit = FORMATS[name].max_side if FORMATS[name].takes != "lines" else 65535
    check_size((1, limit), *wanted)
    with pytest.raises(InputError, match=f"at most {limit} pixels a side, this has {limit + 1}"):
        check_size((limit + 1, 1), *wanted)
