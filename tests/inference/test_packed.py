"""Reading .pdn files: every fault is one clear error, and no damage goes further. Running them on images."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from pixeldiff import Classifier, UserError
from pixeldiff.inference.packed import PackedNetwork
from pixeldiff.inference.packed_file import FORMAT, parse_packed, read_packed
from tests.references.tensors import save


def build(edit=lambda described, tensors: None) -> bytes:
    """A little network of every kind of layer; `edit` may spoil the description or the tensors before they are put
    together."""
    rng = np.random.default_rng(1)
    floats = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    signs = lambda count: rng.integers(0, 256, -(-count // 8)).astype(np.uint8)  # noqa: E731
    pairs = [[y, x, 0, 0] for y in (-1, 0, 1) for x in (-1, 0, 1) if y or x]
    binary = {"op": "binary", "kernel_size": 3, "differing": 0, "pairs": [], "activations": 1}
    mixed = {"differing": 2, "pairs": pairs, "activations": 2}
    replica = {"copies": 1, "parts": 1, "pool": True}
    described = {
        "format": FORMAT,
        "version": 1,
        "name": "little",
        "task": "classes",
        "license": "Apache-2.0",
        "labels": ["a", "b", "c"],
        "preprocessing": {"size": 16, "crop": 0.875, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
        "layers": [
            {"op": "conv", "inputs": 3, "outputs": 8, "kernel_size": 3, "stride": 1, "rprelu": True},
            {"op": "max_pool", "inputs": 8, "outputs": 8},
            binary | {"inputs": 8, "outputs": 8, "stride": 1, "shortcut": "identity"},
            binary | mixed | {"inputs": 8, "outputs": 16, "stride": 2, "shortcut": replica},
            binary | {"inputs": 16, "outputs": 5, "stride": 2, "shortcut": "projection"},
            {"op": "linear", "inputs": 5, "outputs": 3},
        ],
    }
    tensors = {
        "0.weight": floats(8, 3, 3, 3),
        "0.norm": floats(2, 8),
        "0.rprelu": floats(3, 8),
        "2.plain": signs(8 * 8 * 9),
        "2.plain_norm": floats(2, 8),
        "2.activations": floats(1, 3, 8),
        "3.plain": signs(16 * 6 * 9),
        "3.plain_norm": floats(2, 16),
        "3.difference": signs(16 * 2 * 8),
        "3.difference_norm": floats(2, 16),
        "3.activations": floats(2, 3, 16),
        "4.plain": signs(5 * 16 * 9),
        "4.plain_norm": floats(2, 5),
        "4.activations": floats(1, 3, 5),
        "4.shortcut_weight": floats(5, 16, 1, 1),
        "4.shortcut_norm": floats(2, 5),
        "5.weight": floats(3, 5),
        "5.bias": floats(3),
    }
    edit(described, tensors)
    return save(tensors, {"pixeldiff": json.dumps(described)})


def with_header(content: bytes, change) -> bytes:
    """The same data under a changed safetensors header."""
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    change(table)
    header = json.dumps(table).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "little.pdn"
    target.write_bytes(build())
    return target


def test_a_sound_file_is_read(path):
    file = read_packed(path)
    assert file.name == "little"
    assert [layer.outputs for layer in file.layers] == [8, 8, 8, 16, 5, 3]


def layer(index, **changes):
    return lambda described, tensors: described["layers"][index].update(changes)


def entry(**changes):
    return lambda described, tensors: described.update(changes)


def preprocessing(**changes):
    return lambda described, tensors: described["preprocessing"].update(changes)


def wide(described, tensors):
    stem, pool, binary, *_ = described["layers"]
    stem.update(outputs=64)
    pool.update(inputs=64, outputs=64)
    binary.update(inputs=64, kernel_size=31)


def embedding(described, tensors, version=2, width=2, size=(16, 16)):
    """Turn the little classifier into a network that ends in an embedding."""
    described.update(version=version, labels=[])
    described["preprocessing"] = {"size": list(size), "mean": [0.5] * 3, "std": [0.5] * 3}
    described["layers"][-1].update(op="flatten_linear", height=2, width=width)
    tensors["5.weight"] = np.linspace(-1, 1, 3 * 5 * 2 * width, dtype=np.float32).reshape(3, 5, 2, width)


FAULTS = {
    "unknown version": (entry(version=3), "version is 3, this pixeldiff reads 1 and 2"),
    "true is no version": (entry(version=True), "version is True"),
    "an embedding in version 1": (lambda d, t: embedding(d, t, version=1), "has no flatten_linear"),
    "a rectangle in version 1": (preprocessing(size=[16, 16]), "'size'"),
    "a map of another size": (lambda d, t: embedding(d, t, width=3), "takes a map of 2x3, the one before gives 2x2"),
    "a size of one number": (lambda d, t: embedding(d, t, size=[16]), "'size'"),
    "other format": (entry(format="gguf"), "gguf"),
    "labels": (entry(labels=["a"]), "1 labels for 3 classes"),
    "labels of numbers": (entry(labels=[1, 2, 3]), "labels"),
    "no layers": (entry(layers=[]), "layers"),
    "license": (entry(license=None), "license"),
    "chain": (layer(5, inputs=9), "layer 5 takes 9 channels"),
    "op": (layer(1, op="softmax"), "unknown op 'softmax'"),
    "even kernel": (layer(0, kernel_size=4), "even kernel size 4"),
    "huge channels": (layer(0, outputs=10**9), "'outputs' of layer 0"),
    "bool for number": (layer(0, stride=True), "'stride' of layer 0"),
    "fraction for number": (layer(0, stride=1.0), "'stride' of layer 0"),
    "rprelu": (layer(0, rprelu=1), "'rprelu'"),
    "stride of identity": (layer(2, stride=2), "shortcut of layer 2"),
    "pairs without channels": (layer(2, pairs=[[0, 0, 1, 1]]), "pixel pairs"),
    "far pair": (layer(3, pairs=[[0, 0, 1000, 0]]), "offset"),
    "short pair": (layer(3, pairs=[[0, 0]]), "four offsets"),
    "two activations": (layer(2, activations=2), "two activations"),
    "replica": (layer(3, shortcut={"copies": 2, "parts": 1, "pool": True}), "does not lead from 8 to 16"),
    "shortcut": (layer(2, shortcut="magic"), "unknown shortcut"),
    "linear in the middle": (layer(1, op="linear"), "ends in its only linear"),
    "too many products": (wide, "sums more than 32767"),
    "size": (preprocessing(size=0), "'size'"),
    "huge maps": (preprocessing(size=4096), "layer 0 makes a map of"),
    "crop": (preprocessing(crop=0), "crop"),
    "std": (preprocessing(std=[1, 0, 1]), "std"),
    "mean": (preprocessing(mean=[10**400, 0, 0]), "mean"),
    "missing tensor": (lambda d, t: t.pop("2.plain"), "'2.plain' is missing"),
    "extra tensor": (lambda d, t: t.update(x=t["5.bias"]), "unknown tensor 'x'"),
    "shape": (lambda d, t: t.update({"5.bias": t["5.bias"][:2].copy()}), "'5.bias' is not F32"),
    "dtype": (lambda d, t: t.update({"5.bias": t["5.bias"].astype(np.float64)}), "'5.bias' is not F32"),
    "not finite": (lambda d, t: t["5.bias"].fill(np.nan), "not finite"),
}


@pytest.mark.parametrize(("edit", "message"), FAULTS.values(), ids=FAULTS)
def test_each_inconsistency_has_its_own_error(edit, message):
    with pytest.raises(UserError, match=message):
        parse_packed(build(edit))


def test_an_embedding_is_a_linear_layer_over_all_pixels(rng):
    file = parse_packed(build(embedding))
    assert (file.preprocessing.size, file.preprocessing.crop) == ((16, 16), None)
    network = PackedNetwork(file, 1)
    x = file.preprocessing.normalize(rng.integers(0, 256, (3, 16, 16, 3), dtype=np.uint8))
    features = network.maps(x, 0, len(file.layers) - 1)
    expected = np.einsum("nhwc,ochw->no", features, file.tensors["5.weight"]) + file.tensors["5.bias"]
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("edit", [lambda described, tensors: None, embedding], ids=["classes", "embedding"])
def test_a_network_is_its_layers_one_after_the_other(rng, edit):
    """Also with threads, and with images in a batch."""
    file = parse_packed(build(edit))
    x = file.preprocessing.normalize(rng.integers(0, 256, (5, 16, 16, 3), dtype=np.uint8))
    expected = []
    for image in x[:, None]:
        maps = image
        for layer in range(len(file.layers)):
            maps = PackedNetwork(file, 1).maps(maps, layer, layer + 1)
        expected.append(maps[0, 0, 0])
    for threads in (1, 2):
        np.testing.assert_array_equal(PackedNetwork(file, threads)(x), expected)


def test_maps_that_do_not_fit_are_refused(rng):
    network = PackedNetwork(parse_packed(build()), 1)
    with pytest.raises(ValueError, match="channels"):
        network.maps(np.zeros((1, 16, 16, 4), np.float32))
    with pytest.raises(ValueError, match="no such layers"):
        network.maps(np.zeros((1, 16, 16, 3), np.float32), 2, 2)


def test_truncated_at_every_length():
    content = build()
    for length in [*range(0, 300), *range(300, len(content), 37), len(content) - 1]:
        with pytest.raises(UserError):
            parse_packed(content[:length])


def test_bytes_beyond_the_tensors():
    with pytest.raises(UserError, match="4 bytes beyond"):
        parse_packed(build() + b"more")


def test_a_header_that_claims_too_much():
    with pytest.raises(UserError, match="claims"):
        parse_packed(b"\xff" * 8 + build()[8:])


def test_tensors_must_not_overlap():
    def overlap(table):
        table["0.norm"]["data_offsets"] = table["2.plain_norm"]["data_offsets"]

    with pytest.raises(UserError, match="overlap or leave gaps"):
        parse_packed(with_header(build(), overlap))


def test_other_files_are_refused(tmp_path):
    other = tmp_path / "other.pdn"
    other.write_bytes(save({"x": np.zeros(3, np.float32)}))
    with pytest.raises(UserError, match=r"other\.pdn.*not a packed network"):
        read_packed(other)
    with pytest.raises(UserError, match="cannot read"):
        read_packed(tmp_path / "none.pdn")


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """One to eight changes: bytes set, ranges cut, doubled or moved, mostly in the header."""
    data = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(int(rng.integers(1, 9))):
        where = int(rng.integers(0, header if rng.random() < 0.8 else len(content))) % max(1, len(data))
        length = int(rng.integers(1, 20))
        kind = rng.integers(4)
        if kind == 0:
            data[where] = int(rng.integers(256))
        elif kind == 1:
            del data[where : where + length]
        elif kind == 2:
            data[where:where] = data[where : where + length]
        else:
            data[where : where + 1] = bytes(rng.choice(list(b'0123456789-.eE[]{},:"tn\\u'), 1).astype(np.uint8))
    return bytes(data)


def test_mutated_files_never_crash(tmp_path):
    """10,000 files with PIXELDIFF_FUZZ=10000; what is still accepted can be run."""
    content = build()
    rng = np.random.default_rng(7)
    path = tmp_path / "mutated.pdn"
    refused = ran = 0
    for _ in range(int(os.environ.get("PIXELDIFF_FUZZ", "1000"))):
        path.write_bytes(mutate(content, rng))
        try:
            network = Classifier(path)
        except UserError:
            refused += 1
            continue
        if network.file.preprocessing.size[0] <= 200:  # or it would take its time
            network(np.zeros((20, 20, 3), np.uint8))
            ran += 1
    assert refused > 500
    assert ran > 3


def test_accepted_mutations_can_be_run(tmp_path):
    """Changes of the data alone, which no reader can see, and of harmless numbers."""
    content = bytearray(build())
    rng = np.random.default_rng(3)
    header = 8 + int.from_bytes(content[:8], "little")
    path = tmp_path / "mutated.pdn"
    ran = 0
    for _ in range(30):
        mutated = content.copy()
        for place in rng.integers(header, len(content), 20):
            mutated[place] = int(rng.integers(256))
        path.write_bytes(mutated)
        try:
            network = Classifier(path)
        except UserError:
            continue
        network(np.zeros((16, 16, 3), np.uint8))
        ran += 1
    assert ran > 3


def test_predictions(path, rng):
    network = Classifier(path, threads=1)
    image = rng.integers(0, 256, (30, 20, 3), dtype=np.uint8)
    best = network(image, top=2)
    assert len(best) == 2
    assert best[0].probability >= best[1].probability
    assert best[0].label == "abc"[best[0].index]
    assert network([image, image], top=2) == [best, best]
    assert network(Image.fromarray(image), top=2) == best
    assert sum(p.probability for p in network(image)) == pytest.approx(1)


def test_preparation_is_the_center_square(path):
    network = Classifier(path)
    image = np.zeros((32, 64, 3), np.uint8)
    image[:, :16] = image[:, -16:] = 255  # outside the center square of 28, and what its smoothing reads
    assert network.prepare(image).shape == (16, 16, 3)
    assert network.prepare(image).max() == 0
    assert network.prepare(image / np.float32(255)).max() == 0


def test_a_batch_gives_what_its_images_give(path, rng):
    network = Classifier(path, threads=2)
    batch = rng.integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    alone = np.concatenate([network.logits(batch[i : i + 1]) for i in range(5)])
    assert np.array_equal(network.logits(batch), alone)


def test_bad_arguments(path, monkeypatch):
    with pytest.raises(UserError, match="threads"):
        Classifier(path, threads=0)
    with pytest.raises(UserError, match="top"):
        Classifier(path)(np.zeros((4, 4, 3), np.uint8), top=0)
    with pytest.raises(UserError, match="pixeldiff export"):
        Classifier("net.safetensors")
    with pytest.raises(UserError, match="check the name"):
        Classifier("none.pdn")
    monkeypatch.setenv("PIXELDIFF_ISA", "mmx")
    with pytest.raises(UserError, match="mmx"):
        Classifier(path)
