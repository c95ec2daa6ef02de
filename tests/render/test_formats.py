"""Files of maps: each kind holds what it says, with a note of what made it, and tells what it cannot hold."""

import io

import numpy as np
import pytest
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.render.drawing import Options
from pixeldiff.render.formats import FORMATS, GROUNDS, SUFFIXES, read_note

NOTE = "pixeldiff detect --model a<b> & c"


@pytest.fixture
def edges(rng):
    return rng.random((9, 14), dtype=np.float32)


@pytest.mark.parametrize("name", FORMATS)
def test_a_note_is_read_again_where_a_kind_holds_one(name, edges, tmp_path):
    kind = FORMATS[name]
    path = tmp_path / f"x.{kind.suffix}"
    path.write_bytes(Options(name).encode(edges, note=NOTE))
    assert read_note(path) == ("" if kind.takes == "numbers" else NOTE)
    path.write_bytes(Options(name).encode(edges))
    assert read_note(path) == ""


@pytest.mark.parametrize("suffix", [*SUFFIXES, "txt"])
def test_what_is_not_ours_has_no_note(suffix, tmp_path):
    path = tmp_path / f"x.{suffix}"
    assert read_note(path) == ""
    path.write_bytes(b"\xffanything")
    assert read_note(path) == ""


@pytest.mark.parametrize("name", FORMATS)
def test_a_kind_takes_its_grounds_and_no_other(name, edges, rng):
    photo = rng.integers(0, 256, (9, 14, 3), dtype=np.uint8)
    for ground in GROUNDS:
        if ground in FORMATS[name].grounds:
            assert Options(name, ground=ground).encode(edges, photo) != Options(name).encode(edges, photo)
        else:
            with pytest.raises(UserError, match=f"a ground of {ground} needs"):
                Options(name, ground=ground)


@pytest.mark.parametrize("name", [name for name, kind in FORMATS.items() if kind.takes == "image"])
def test_images_have_the_levels_of_the_map(name, edges):
    drawn = np.asarray(Image.open(io.BytesIO(Options(name).encode(edges))))
    levels = FORMATS[name].levels(edges)
    lossy = 12 if name == "jpg" else 0
    found = drawn[..., 0] if drawn.ndim == 3 else drawn
    assert np.abs(found.astype(int) - levels.astype(int)).max() <= lossy


@pytest.mark.parametrize("name", FORMATS)
def test_sizes_that_a_kind_cannot_hold_are_told_before(name):
    options = Options(name)
    most = FORMATS[name].most if FORMATS[name].takes != "lines" else 65535
    options.check_size((1, most))
    with pytest.raises(UserError, match=f"at most {most} pixels a side, this has {most + 1}"):
        options.check_size((most + 1, 1))
