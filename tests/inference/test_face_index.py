"""Embeddings beside a folder: kept, added to, dropped; ranked as defined; files that are damaged or of others."""

import os

import numpy as np
import pytest

from pixeldiff import UserError
from pixeldiff.inference.face_index import MAGIC, Gallery

SIZE = 6


@pytest.fixture
def folder(tmp_path):
    """Files whose content is the number of their faces."""
    for name, faces in (("a", 1), ("b", 3), ("x/c", 1), ("none", 0), ("bad", -1)):
        path = tmp_path / "photos" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(faces))
    return tmp_path / "photos"


class Embed:
    """Vectors that depend on the file's name; remembers who was asked for."""

    def __init__(self):
        self.seen = []

    def __call__(self, path):
        self.seen.append(path.name)
        count = int(path.read_text())
        if count < 1:
            raise UserError("no face")
        vectors = np.random.default_rng(list(path.name.encode())).normal(size=(count, SIZE)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


NAMES = ["a", "b", "bad", "none", "x/c"]


def search(folder, names=NAMES, sha256="1", embed=None, size=SIZE):
    gallery = Gallery(folder.with_suffix(".faces"), "net", sha256, size)
    gallery.read()
    gallery.add(folder, gallery.drop(folder, names), embed or Embed(), 2, lambda done: None)
    return gallery


def test_a_image_is_embedded_once(folder):
    embed = Embed()
    first = search(folder, embed=embed)
    assert sorted(embed.seen) == ["a", "b", "bad", "c", "none"]
    again = search(folder, embed=embed)
    assert len(embed.seen) == 5
    assert {name: one.error for name, one in again.images.items()} == {
        name: one.error for name, one in first.images.items()
    }
    for name, one in first.images.items():
        np.testing.assert_array_equal(again.images[name].vectors.reshape(-1), one.vectors.reshape(-1))
    assert again.failed() == {"bad": "no face", "none": "no face"}


def test_what_has_changed_or_is_gone(folder):
    search(folder)
    (folder / "a").write_text("2")
    os.utime(folder / "b", ns=(1, 1))
    embed = Embed()
    gallery = search(folder, ["a", "b", "x/c"], embed=embed)
    assert sorted(embed.seen) == ["a", "b"]
    assert sorted(gallery.images) == ["a", "b", "x/c"]
    assert len(gallery.images["a"].vectors) == 2
    assert sorted(search(folder, ["x/c"]).images) == ["x/c"]
    embed = Embed()
    assert sorted(search(folder, ["a", "x/c"], embed=embed).images) == ["a", "x/c"]
    assert embed.seen == ["a"]


def test_ranks_are_the_best_cosines(folder, rng):
    gallery = search(folder)
    vector = rng.normal(size=SIZE).astype(np.float32)
    expected = sorted(
        ((max(float(own @ vector) for own in Embed()(folder / name)), name) for name in ("a", "b", "x/c")), reverse=True
    )
    for one in (gallery, search(folder)):
        ranked = one.rank(vector)
        assert [name for _, name in ranked] == [name for _, name in expected]
        np.testing.assert_allclose([score for score, _ in ranked], [score for score, _ in expected], rtol=1e-5)
    assert "b" not in [name for _, name in gallery.rank(vector, ["b"])]
    assert gallery.rank(vector, ["a", "b", "x/c"]) == []


def test_a_run_that_is_stopped_keeps_what_is_ready(folder):
    for k in range(60):
        (folder / f"p{k:02}").write_text("1")
    names = [f"p{k:02}" for k in range(60)]
    gallery = Gallery(folder.with_suffix(".faces"), "net", "1", SIZE)

    def stop(done):
        if len(gallery.images) >= 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gallery.add(folder, names, Embed(), 1, stop)
    embed = Embed()
    assert sorted(search(folder, names, embed=embed).images) == names
    assert len(embed.seen) == 28
    assert sorted(path.name for path in folder.parent.iterdir()) == ["photos", "photos.faces"]


def test_embeddings_of_another_network_are_told(folder):
    search(folder)
    with pytest.raises(UserError, match=r"photos.faces holds embeddings of another network, 'net', .* --rebuild"):
        search(folder, sha256="2")
    with pytest.raises(UserError, match="another network"):
        search(folder, sha256="2", size=SIZE + 1)


def damaged(content):
    end = content.index(b"\n", len(MAGIC))
    yield content[:-1]
    yield content + b"1234"
    yield content[:end]
    yield content[: len(MAGIC)]
    yield content[:30]
    yield content.replace(b'"a"', b"1.5", 1)
    yield content.replace(b'"size": 6', b'"size": 7', 1)
    yield content.replace(b'"size": 6', b'"size": true', 1)
    yield content.replace(b'"images"', b'"Images"', 1)
    yield content[: end + 1] + np.full((len(content) - end - 1) // 4, np.nan, "<f4").tobytes()
    yield MAGIC + b"[" * 100_000 + b"\n"
    yield MAGIC + b"{}\n"
    yield MAGIC + b'{"network": "n", "sha256": "1", "size": 6, "images": [["a", 1, 1, -1, ""]]}\n'
    yield MAGIC + b'{"network": "n", "sha256": "1", "size": 6, "images": [["a", 1, 1, 9223372036854775807, ""]]}\n'


def test_damaged_files_are_told(folder):
    search(folder)
    file = folder.with_suffix(".faces")
    for content in damaged(file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"photos.faces is damaged.*; make it anew with --rebuild"):
            search(folder)
        Gallery(file, "net", "1", SIZE).check_foreign()


@pytest.mark.parametrize("content", [b"", b"my own notes", b"pixeldiff faces 2\n{}"])
def test_others_files_are_never_replaced(folder, content):
    file = folder.with_suffix(".faces")
    file.write_bytes(content)
    with pytest.raises(UserError, match="is no embedding file; name another file with --embeddings"):
        search(folder)
    with pytest.raises(UserError, match="is no embedding file"):
        Gallery(file, "net", "1", SIZE).check_foreign()
    assert file.read_bytes() == content
