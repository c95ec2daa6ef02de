"""Read images of every kind that users have, and reject what is not an image."""

import contextlib
import io
import os
import re
import stat
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff import UserError, image
from pixeldiff.files import atomic_write
from tests.conftest import BAD_IMAGES
from tests.extras import optional

F = optional("torch.nn.functional")
from_numpy = optional("torch").from_numpy


@pytest.fixture
def colors(rng):
    return rng.integers(0, 256, (7, 11, 3), dtype=np.uint8)


def test_rgb_file_is_read_as_it_is(colors, tmp_path):
    Image.fromarray(colors).save(tmp_path / "a.png")
    np.testing.assert_array_equal(image.read(tmp_path / "a.png"), colors)


def test_16_bit_png_keeps_its_depth(rng, tmp_path):
    deep = rng.integers(0, 65536, (5, 6), dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    photo = image.read(tmp_path / "deep.png")
    assert photo.dtype == np.float32
    for channel in range(3):
        np.testing.assert_allclose(photo[..., channel], deep / 65535, atol=1e-7)


def test_integers_without_a_full_scale_are_refused(tmp_path):
    Image.fromarray(np.full((5, 6), 200, dtype=np.int32)).save(tmp_path / "long.tif")
    with pytest.raises(UserError, match=r"long.tif: .*8 or 16 bits"):
        image.read(tmp_path / "long.tif")
    deep = np.array([[0, 300], [65535, 256]], dtype=np.uint16)
    (tmp_path / "deep.pgm").write_bytes(b"P5 2 2 65535\n" + deep.astype(">u2").tobytes())
    np.testing.assert_allclose(image.read(tmp_path / "deep.pgm")[..., 0], deep / 65535, atol=1e-7)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "HSV", "RGB", "RGBA", "LA", "PA"])
def test_every_mode_becomes_rgb(mode, colors):
    photo = Image.fromarray(colors).convert("P" if mode == "PA" else mode)
    photo = photo.convert(mode)
    array = image.from_pil(photo)
    assert (array.shape, array.dtype) == ((7, 11, 3), np.uint8)
    np.testing.assert_array_equal(array, np.asarray(photo.convert("RGB")))


def test_cmyk_jpeg_is_read(colors, tmp_path):
    Image.fromarray(np.full((16, 16, 3), (200, 30, 60), np.uint8)).convert("CMYK").save(tmp_path / "c.jpg")
    assert np.abs(image.read(tmp_path / "c.jpg").astype(int) - (200, 30, 60)).max() < 12


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_turn_white(mode):
    hidden = np.zeros((2, 2, 4), np.uint8)
    hidden[0] = (100, 100, 100, 255)
    hidden[1] = (7, 7, 7, 0)
    photo = Image.fromarray(hidden).convert(mode)
    np.testing.assert_array_equal(image.from_pil(photo)[..., 0], [[100, 100], [255, 255]])
    np.testing.assert_array_equal(image.from_array(hidden)[..., 0], [[100, 100], [255, 255]])
    np.testing.assert_allclose(image.from_array(hidden / 255)[..., 0], [[100 / 255] * 2, [1, 1]], atol=1e-6)


def test_transparency_of_a_palette_is_seen(tmp_path):
    photo = Image.new("P", (3, 2), 1)
    photo.putpalette([0, 0, 0, 90, 90, 90])
    photo.putpixel((0, 0), 0)
    photo.save(tmp_path / "p.png", transparency=0)
    array = image.read(tmp_path / "p.png")
    assert (tuple(array[0, 0]), tuple(array[1, 1])) == ((255, 255, 255), (90, 90, 90))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_turns_the_image_upright(orientation, tmp_path):
    upright = np.zeros((16, 24, 3), np.uint8)
    upright[:8, :8] = 255  # white corner at the upper left
    exif = Image.Exif()
    exif[274] = orientation
    undo = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]
    stored = Image.fromarray(upright)
    stored = stored if undo is None else stored.transpose(Image.Transpose(undo))
    stored.save(tmp_path / "r.png", exif=exif)
    np.testing.assert_array_equal(image.read(tmp_path / "r.png"), upright)


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (9, 5), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert tuple(image.read(tmp_path / "a.gif")[2, 4]) == (255, 0, 0)


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 1), (6, 4, 3), (6, 4, 4), (1, 1), (1, 9)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_arrays(shape, dtype, rng):
    array = rng.random(shape)
    array = (array * 255).astype(dtype) if dtype == np.uint8 else array.astype(dtype)
    photo = image.load(array)
    assert photo.shape == (*shape[:2], 3)
    assert photo.dtype == (np.uint8 if dtype == np.uint8 else np.float32)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((3, 6, 5), np.uint8), "channels last"),
        (np.zeros((0, 6, 3), np.uint8), "channels last"),
        (np.array(5), "channels last"),
        (np.zeros((6, 5), np.int64), "uint8"),
        (np.full((6, 5), 3.0), "0 to 1"),
        (np.full((6, 5), np.nan), "0 to 1"),
        ([[1, 2]], "not list"),
        ("data:image/png;base64," + "A" * 5000, "no file data:image/png;base64,A{278}; check"),
    ],
)
def test_arrays_that_are_no_images(array, says):
    with pytest.raises(UserError, match=says):
        image.load(array)


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_files_are_named_and_explained(name, bad_images):
    with pytest.raises(UserError, match=BAD_IMAGES[name]) as caught:
        image.read(bad_images / name)
    assert name in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(UserError, match="no file"):
        image.read(tmp_path / "nothing.jpg")
    with pytest.raises(UserError, match="is a folder"):
        image.read(tmp_path)


def test_damaged_bytes_never_escape_as_another_exception_nor_warn(rng, colors):
    turned = Image.Exif()
    turned[274] = 6
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "AVIF", "JPEG2000"):
        file = io.BytesIO()
        Image.fromarray(colors).save(file, kind, exif=turned)
        whole = file.getvalue()
        for _ in range(40):
            damaged = bytearray(whole)
            for position in rng.integers(0, len(whole), 3):
                damaged[position] = rng.integers(256)
            with contextlib.suppress(UserError), warnings.catch_warnings():
                warnings.simplefilter("error")
                image.load(damaged)


def test_a_damaged_avif_is_told_in_one_line(colors, tmp_path):
    path = tmp_path / "a.avif"
    Image.fromarray(colors).save(path)
    head, tag, data = path.read_bytes().partition(b"mdat")
    path.write_bytes(head + tag + bytes(len(data)))
    with pytest.raises(UserError, match=r"a.avif is damaged or cut short"):
        image.read(path)
    with pytest.raises(UserError, match="the Pillow image is damaged"), Image.open(path) as file:
        image.load(file)


def test_normalize_is_the_definition(colors):
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = ((colors / 255 - mean) / std).transpose(2, 0, 1)
    np.testing.assert_allclose(image.normalize(colors, image.MEAN, image.STD), expected, atol=1e-6)
    np.testing.assert_allclose(
        image.normalize((colors / 255).astype(np.float32), image.MEAN, image.STD), expected, atol=1e-6
    )


@pytest.mark.parametrize("size", [(5, 9), (10, 18), (23, 7), (1, 1), (13, 40)])
def test_resize_is_torchs_bilinear(size, rng):
    array = rng.random((5, 9)).astype(np.float32)
    expected = F.interpolate(from_numpy(array)[None, None], size, mode="bilinear", align_corners=False)[0, 0].numpy()
    np.testing.assert_allclose(image.resize(array, size), expected, atol=1e-6)
    last = slice(size[0] // 2, None)
    np.testing.assert_allclose(image.resize(array, size, last), expected[last], atol=1e-6)


def test_written_whole_with_usual_permissions(tmp_path):
    target = tmp_path / "new" / "a.bin"
    atomic_write(target, b"abc")
    assert target.read_bytes() == b"abc"
    assert [p.name for p in target.parent.iterdir()] == ["a.bin"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_unwritable_place_is_explained_and_left_clean(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write"):
        atomic_write(tmp_path / "file" / "a.png", b"abc")
    (tmp_path / "folder" / "a.png").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot write"):
        atomic_write(tmp_path / "folder" / "a.png", b"abc")
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["a.png"]


def test_pillow_opens_nothing_without_a_list_of_formats():
    for path in Path(image.__file__).parent.rglob("*.py"):
        for call in re.findall(r"Image\.open\(.*", path.read_text()):
            assert "formats=" in call, path
    assert {"EPS", "WMF", "MPEG"}.isdisjoint(image.FORMATS)
    assert len(set(image.SUFFIXES)) == len(image.SUFFIXES)


def test_postscript_is_not_run_whatever_its_name(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{ } loop\n")
    for read in (image.read, image.read_stored, image.stored_size, lambda path: image.load(path.read_bytes())):
        with pytest.raises(UserError, match="not an image of a known format"):
            read(tmp_path / "a.jpg")


def test_heic_without_its_decoder_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for brand in (b"heic", b"mif1"):
        (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1heic" + bytes(99))
        with pytest.raises(UserError, match=r"a.heic: .*pip install 'pixeldiff\[heic\]'"):
            image.read(tmp_path / "a.heic")


def test_heic_is_read_where_its_decoder_is(colors, tmp_path):
    heif = pytest.importorskip("pillow_heif")
    photo = Image.fromarray(np.kron(colors, np.ones((8, 8, 1), np.uint8)))
    heif.from_pillow(photo).save(tmp_path / "a.heic", quality=-1, chroma=444)
    assert np.abs(image.read(tmp_path / "a.heic").astype(int) - np.asarray(photo)).mean() < 4
    (tmp_path / "cut.heic").write_bytes((tmp_path / "a.heic").read_bytes()[:400])
    with pytest.raises(UserError, match=r"cut.heic"):
        image.read(tmp_path / "cut.heic")


def test_bytes_and_open_files(colors, tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(colors).save(path)
    content = path.read_bytes()
    with open(path, "rb") as file, open(path, "rb", buffering=0) as raw:
        for source in (content, bytearray(content), memoryview(content), io.BytesIO(content), file, raw):
            np.testing.assert_array_equal(image.load(source), colors)
        assert not file.closed
    for bad in (b"", b"text", content[:60]):
        with pytest.raises(UserError, match="the image is"):
            image.load(bad)
    with open(path, encoding="latin-1") as file, pytest.raises(UserError, match=r"'rb'.*TextIOWrapper"):
        image.load(file)


def test_a_pipe_is_read_to_its_end(colors):
    content = io.BytesIO()
    Image.fromarray(colors).save(content, "WEBP", lossless=True)
    end, start = os.pipe()
    os.write(start, content.getvalue())
    os.close(start)
    with open(end, "rb") as file:
        np.testing.assert_array_equal(image.load(file), colors)


def test_16_bit_and_bool_arrays(colors):
    deep = colors.astype(np.uint16) * 257
    for array in (deep, deep.astype(">u2")):
        np.testing.assert_allclose(image.load(array), colors / 255, atol=1e-6)
    np.testing.assert_array_equal(image.load(colors > 99), np.where(colors > 99, np.uint8(255), np.uint8(0)))


def test_tensors_without_plain_pixels():
    tensor = from_numpy(np.zeros((3, 5, 4), np.float32))
    for odd in (tensor.to_sparse(), tensor.to("meta"), (tensor * 1j).conj()):
        with pytest.raises(UserError, match="give a dense tensor of real numbers"):
            image.load(odd)


def test_torch_tensors(colors):
    planes = from_numpy(colors).permute(2, 0, 1)
    for tensor in (planes, planes[None]):
        np.testing.assert_array_equal(image.load(tensor), colors)
    np.testing.assert_allclose(image.load((planes / 255).requires_grad_()), colors / 255, atol=1e-6)
    np.testing.assert_allclose(image.load(planes[0].bfloat16() / 255)[..., 2], colors[..., 0] / 255, atol=0.01)
    assert image.load(planes[:1]).shape == colors.shape
    for bad in (planes[None].repeat(2, 1, 1, 1), planes.permute(1, 2, 0), planes[0, 0]):
        with pytest.raises(UserError, match="a tensor is C x H x W"):
            image.load(bad)
    with pytest.raises(UserError, match="float pixels lie in 0 to 1"):
        image.load(planes.float())


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_reduce_takes_means(dtype, rng):
    photo = rng.integers(0, 256, (60, 84, 3), dtype=np.uint8)
    photo = photo if dtype == np.uint8 else (photo / 255).astype(np.float32)
    small = image.reduce(photo, (10, 14))
    assert (small.shape, small.dtype) == ((10, 14, 3), dtype)
    # Pillow's bilinear: a triangle over twice the step.
    weights = 1 - np.abs(np.arange(12) + 0.5 - 6) / 6
    weights /= weights.sum()
    inner = np.tensordot(np.outer(weights, weights), photo[3:15, 9:21].astype(np.float64), 2)
    np.testing.assert_allclose(small[1, 2], inner, atol=1 if dtype == np.uint8 else 1e-6)
    assert image.reduce(photo, (60, 84)) is photo


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "F", "I;16"])
def test_bands_make_no_difference(mode, colors, monkeypatch):
    gray = colors[..., 0]
    deep = {"F": gray.astype(np.float32) / 255, "I;16": gray.astype(np.uint16) * 257}
    photo = Image.fromarray(deep[mode]) if mode in deep else Image.fromarray(colors).convert(mode)
    if mode == "P":
        photo.info["transparency"] = 3
    whole = image.from_pil(photo)
    monkeypatch.setattr(image, "_BAND_PIXELS", 3 * photo.width + 1)
    np.testing.assert_array_equal(image.from_pil(photo), whole)


def test_a_webp_canvas_larger_than_any_frame_is_refused(tmp_path):
    path = tmp_path / "wide.webp"
    first, second = (Image.new("RGBA", (17, 9), color) for color in ("red", "blue"))
    first.save(path, lossless=True, save_all=True, append_images=[second])  # moving images have a canvas of their own
    content = bytearray(path.read_bytes())
    place = content.index(b"VP8X") + 15  # the height less one, three bytes
    content[place : place + 3] = (8323084).to_bytes(3, "little")
    path.write_bytes(content)
    with pytest.raises(UserError, match="at most 16383 pixels a side, this claims 8323085"):
        image.read(path)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_jpeg_comes_reduced_and_upright_with_its_true_size(orientation: int, tmp_path: Path) -> None:
    stored, exif = Image.new("RGB", (800, 400), "red"), Image.Exif()
    stored.paste("blue", (0, 0, 400, 400))
    exif[0x0112] = orientation
    stored.save(tmp_path / "p.jpg", exif=exif)
    photo, true = image.load_near(tmp_path / "p.jpg", 200)
    assert (true, photo.shape) == (((400, 800), (100, 200, 3)) if orientation == 1 else ((800, 400), (200, 100, 3)))
    whole = image.read(tmp_path / "p.jpg")
    assert np.abs(whole[::4, ::4].astype(int) - photo).mean() < 5
    stored.save(tmp_path / "p.png")
    assert image.load_near(tmp_path / "p.png", 200)[0].shape == (400, 800, 3)
