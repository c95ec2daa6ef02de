"""Embeddings beside a folder: kept, added to, dropped; ranked as defined; files that are damaged or of others."""

import io
import json
import os

import numpy as np
import pytest

from pixeldiff import UserError
from pixeldiff.errors import InputError
from pixeldiff.inference.face_index import FaceIndex

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
    index = FaceIndex(folder.with_suffix(".faces.npz"), "net", sha256, size)
    index.read()
    index.add(folder, index.drop(folder, names), embed or Embed(), 2, lambda done: None)
    return index


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
    index = search(folder, ["a", "b", "x/c"], embed=embed)
    assert sorted(embed.seen) == ["a", "b"]
    assert sorted(index.images) == ["a", "b", "x/c"]
    assert len(index.images["a"].vectors) == 2
    assert sorted(search(folder, ["x/c"]).images) == ["x/c"]
    embed = Embed()
    assert sorted(search(folder, ["a", "x/c"], embed=embed).images) == ["a", "x/c"]
    assert embed.seen == ["a"]


def test_ranks_are_the_best_cosines(folder, rng):
    index = search(folder)
    vector = rng.normal(size=SIZE).astype(np.float32)
    expected = sorted(
        ((max(float(own @ vector) for own in Embed()(folder / name)), name) for name in ("a", "b", "x/c")), reverse=True
    )
    for one in (index, search(folder)):
        ranked = one.rank(vector)
        assert [name for _, name in ranked] == [name for _, name in expected]
        np.testing.assert_allclose([score for score, _ in ranked], [score for score, _ in expected], rtol=1e-5)
    assert "b" not in [name for _, name in index.rank(vector, ["b"])]
    assert index.rank(vector, ["a", "b", "x/c"]) == []


def test_a_run_that_is_stopped_keeps_what_is_ready(folder):
    for k in range(60):
        (folder / f"p{k:02}").write_text("1")
    names = [f"p{k:02}" for k in range(60)]
    index = FaceIndex(folder.with_suffix(".faces.npz"), "net", "1", SIZE)

    def stop(done):
        if len(index.images) >= 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.add(folder, names, Embed(), 1, stop)
    embed = Embed()
    assert sorted(search(folder, names, embed=embed).images) == names
    assert len(embed.seen) == 28
    assert sorted(path.name for path in folder.parent.iterdir()) == ["photos", "photos.faces.npz"]


def test_embeddings_of_another_network_are_told(folder):
    search(folder)
    with pytest.raises(UserError, match=r"photos.faces.npz holds embeddings of another model, 'net', .* --rebuild"):
        search(folder, sha256="2")
    with pytest.raises(UserError, match="another model"):
        search(folder, sha256="2", size=SIZE + 1)


def damaged(file):
    """Contents that are not those of an index, each with a valid beginning."""
    content = file.read_bytes()
    yield content[:-1]
    yield content[: len(content) // 2]
    yield content[:64]
    with np.load(file) as arrays:
        header, vectors = json.loads(arrays["pixeldiff_faces"].tobytes()), arrays["vectors"]
    row = header["images"][0]
    for changed in (
        {**header, "size": SIZE + 1},
        {**header, "size": True},
        {**header, "model": 7},
        {key: value for key, value in header.items() if key != "images"},
        {**header, "images": [[1.5, *row[1:]], *header["images"][1:]]},
        {**header, "images": [[row[0], 1, 1, -1, ""], *header["images"][1:]]},
        {**header, "images": [[row[0], 1, 1, 2**63 - 1, ""], *header["images"][1:]]},
        {},
        [],
    ):
        yield archive(json.dumps(changed), vectors)
    text = json.dumps(header)
    yield archive(text, np.full_like(vectors, np.nan))
    yield archive(text, vectors.astype(np.float64))
    yield archive(text, np.array([{}], object))
    yield archive("[" * 100_000, vectors)


def archive(text, vectors):
    buffer = io.BytesIO()
    np.savez(buffer, pixeldiff_faces=np.frombuffer(text.encode(), np.uint8), vectors=vectors)
    return buffer.getvalue()


def test_damaged_files_are_reported(folder):
    search(folder)
    file = folder.with_suffix(".faces.npz")
    for content in list(damaged(file)):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"photos.faces.npz is damaged.*--rebuild"):
            search(folder)
        FaceIndex(file, "net", "1", SIZE).check_foreign()


@pytest.mark.parametrize("content", [b"", b"my own notes", b"PK\x03\x04 another archive"])
def test_others_files_are_never_replaced(folder, content):
    file = folder.with_suffix(".faces.npz")
    file.write_bytes(content)
    with pytest.raises(UserError, match="--embeddings"):
        search(folder)
    with pytest.raises(UserError, match="--embeddings"):
        FaceIndex(file, "net", "1", SIZE).check_foreign()
    assert file.read_bytes() == content
