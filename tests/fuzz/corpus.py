"""What is fuzzed: for each format small valid files, made here, and the reader that a user's file reaches."""

from __future__ import annotations

import io
import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from threading import Semaphore
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, features

from pixeldiff import image, weights
from pixeldiff.data import edges, maps, voc
from pixeldiff.data.cifar import read_cifar100
from pixeldiff.data.faces import read_pairs
from pixeldiff.data.landmarks import read_landmarks
from pixeldiff.evaluation import robustness
from pixeldiff.evaluation.classes import PublishedCifarC
from pixeldiff.evaluation.robustness import Results, conditions
from pixeldiff.export.onnx import export_onnx
from pixeldiff.export.packed import pack_model
from pixeldiff.inference.classes import Classifier
from pixeldiff.inference.edges import EdgeNetwork, Look
from pixeldiff.inference.face_index import FaceIndex, IndexedImage
from pixeldiff.jobs.video import detect_video
from pixeldiff.models import saving as checkpoint
from pixeldiff.models.bipidinet import BiPiDiNet, BiPiDiNetConfig
from pixeldiff.models.hub import from_pretrained
from pixeldiff.models.pidinet import PiDiNet, PiDiNetConfig
from pixeldiff.training import recipe
from pixeldiff.training.recipe_file import read_file
from pixeldiff.training.tasks.edge_sources import Source, list_pairs, read_fractions, read_pseudo_label
from pixeldiff.weights.description import normalization
from pixeldiff.weights.graph_file import read_properties
from tests.fuzz import mutate

EDGES = PiDiNetConfig(4, 2)
BINARY = BiPiDiNetConfig("before", width=0.125, stem="cifar", classes=3)


@dataclass(frozen=True)
class Format:
    """`file` is the case's name in its folder, beside `companions`; `share` how often it comes, slow ones seldom."""

    file: str
    seeds: tuple[bytes, ...]
    readers: tuple[Callable[[Path], Any], ...]
    aimed: mutate.Damage | None = None
    share: int = 20
    companions: dict[str, bytes] = field(default_factory=dict)


def _pixels(shape: tuple[int, ...] = (13, 17, 3), kind: str = "u1") -> NDArray[Any]:
    return np.random.default_rng(0).integers(0, 120, shape).astype(kind)


def _saved(kind: str, *modes: str, **options: Any) -> tuple[bytes, ...]:
    files = []
    for mode in modes:
        deep = mode.startswith("I;16")
        image = Image.fromarray(_pixels((13, 17), "u2")) if deep else Image.fromarray(_pixels()).convert(mode)
        files.append(io.BytesIO())
        image.save(files[-1], kind, **options)
    return tuple(file.getvalue() for file in files)


def _images() -> dict[str, Format]:
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [Image.fromarray(_pixels()), Image.fromarray(_pixels()[::-1])]
    animated: dict[str, Any] = {"save_all": True, "append_images": frames}
    seeds = {
        "jpg": (*_saved("JPEG", "RGB", "L", "CMYK", exif=exif), *_saved("JPEG", "RGB", progressive=True)),
        "webp": (*_saved("WEBP", "RGB", "RGBA"), *_saved("WEBP", "RGB", lossless=True, **animated)),
        "tiff": (
            *_saved("TIFF", "RGB", "RGBA", "L", "1", "P", "F", "I;16"),
            *_saved("TIFF", "RGB", compression="tiff_lzw"),
            *_saved("TIFF", "RGB", compression="tiff_adobe_deflate"),
            *_saved("TIFF", "RGB", compression="jpeg"),
        ),
        "bmp": _saved("BMP", "RGB", "L", "P", "1", "RGBA"),
        "gif": (*_saved("GIF", "P"), *_saved("GIF", "RGB", **animated)),
        "jp2": _saved("JPEG2000", "RGB", "L", "RGBA"),
        "pnm": (
            *_saved("PPM", "RGB", "L", "1", "I;16"),
            b"P3 2 2 255 1 2 3 4 5 6 7 8 9 10 11 12",
            b"P2\n2 2 9\n1 2 3 4",
        ),
    }
    if features.check("avif"):
        seeds["avif"] = (*_saved("AVIF", "RGB", "RGBA"), *_saved("AVIF", "RGB", **animated))
    found = {
        n: Format(f"case.{n}", files, (image.read, image.read_stored, image.read_indices)) for n, files in seeds.items()
    }
    readers = (image.read, maps.read_map, edges.read_mask, read_fractions, read_pseudo_label)
    png = (*_saved("PNG", "RGB", "RGBA", "L", "LA", "P", "1", "I;16"), *_saved("PNG", "RGB", exif=exif, **animated))
    return found | {"png": Format("case.png", png, readers, mutate.png, 40)}


def _arrays() -> dict[str, Format]:
    arrays = [_pixels((5, 7)), _pixels((5, 7), "u2"), _pixels((5, 7)) > 90, _pixels((5, 7), "f4") / 255]
    files = [io.BytesIO() for _ in arrays]
    for file, array in zip(files, arrays, strict=True):
        np.save(file, array)
    npy = tuple(file.getvalue() for file in files)
    file = io.BytesIO()
    np.save(file, np.arange(10000) % 100)
    published = partial(_in_folder, PublishedCifarC)
    return {
        "npy": Format("case.npy", npy, (maps.read_map,), None, 60),
        "published": Format("labels.npy", (file.getvalue(),), (published,), None, 5),
    }


def _in_folder(read: Callable[[Path], Any], path: Path) -> Any:
    return read(path.parent)


def _matlab() -> dict[str, Format]:
    from scipy.io import savemat

    cells = np.empty((1, 2), object)
    for k in range(2):
        cells[0, k] = {"Segmentation": _pixels((5, 7), "u2"), "Boundaries": _pixels((5, 7)) > 60}
    files = []
    for content in ({"groundTruth": cells}, {"map": _pixels((5, 7)) / 255}, {"a": "text", "m": _pixels((2, 3))}):
        for compressed in (False, True):
            files.append(io.BytesIO())
            savemat(files[-1], content, do_compression=compressed)
    seeds = tuple(file.getvalue() for file in files)
    return {"mat": Format("case.mat", seeds, (maps.read_map, edges.read_bsds, read_fractions), mutate.mat, 60)}


def _texts() -> dict[str, Format]:
    (png,) = _saved("PNG", "L")
    beside = {"a.png": png, "b.png": png}
    rows = b"a.png b.png\nb.png a.png 0.5\n"
    readers = (edges.find_labels, lambda p: list_pairs(p.parent, Source("list", file=p.name)))
    results = Results("edges", "d", 3, 0, {"tiny": "0"}, {("tiny", ("fog", 1)): {"ods": 0.5, "ois": 0.5}})
    card = {"name": "tiny", "license": "MIT", "scores": {"ODS": 0.7}, "sha256": {".onnx": "0"}}
    table = b"""task = "edges"\nseed = 1\n[model]\nname = "tiny"\nwidth = 8\n[data]
root = "r"\nsources = [{ type = "list", file = "a.lst" }]
[optimizer]\nlr = 0.1\nbetas = [0.9, 0.99]\n[schedule]\nsamples = 20\n[train]\nbatch_size = 4\n"""
    changes = b'extends = "base.toml"\nseed = 2\n'
    variants = changes + b"[variant.c16]\nmodel.pattern = 'c16'\n[variant.other]\nmodel = {csam = false}\n"
    variants += b"train.batch_size = 2\n[grid]\nmodel.width = [4, 8]\nmodel.name = ['tiny', 'small']\n"
    stages = changes + b'[[stage]]\nname = "one"\nseed = 3\n[[stage]]\nname = "two"\nschedule.samples = 10\n'
    sets = b"model.pattern=c16\nschedule.samples=30\noptimizer={lr = 1e-3}\nseed=7\n"
    sets += b"data.sources=[{type='list',file='a.lst'}]\n"
    pairs = b'[["a.png", "b.png"], ["b.png", "a.png"]]'
    cells = json.dumps(results.as_json()).encode()
    return {
        "lst": Format("case.lst", (rows, b"\xef\xbb\xbfa.png\tb.png\t1\r\n"), readers, None, 30, beside),
        "txt": Format("case.txt", (rows,), readers, None, 20, beside),
        "json": Format("case.json", (pairs,), readers, mutate.json_text, 30, beside),
        "toml": Format(
            "case.toml", (table, changes, variants, stages), (_read_recipes,), None, 40, {"base.toml": table}
        ),
        "set": Format("case.txt", (sets,), (_set_keys,), None, 20, {"base.toml": table}),
        "results": Format("case.json", (cells,), (Results.load, _resume), mutate.json_text),
        "card": Format("case.json", (json.dumps(card).encode(),), (_read_card,), mutate.json_text),
        **_boxes(beside),
    }


def _boxes(beside: dict[str, bytes]) -> dict[str, Format]:
    """Annotations of objects; the images have 17 x 13 pixels."""
    images = [{"id": k, "file_name": f"{name}.png", "width": 17, "height": 13} for k, name in enumerate("ab")]
    box = {"id": 1, "image_id": 0, "category_id": 3, "bbox": [1, 2, 9, 8.5], "iscrowd": 0}
    coco = json.dumps({"images": images, "annotations": [box], "categories": [{"id": 3, "name": "cat"}]}).encode()
    xml = b"""<annotation><filename>a.png</filename><size><width>17</width><height>13</height></size><object>
<name>cat</name><difficult>0</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>10</xmax><ymax>11.5</ymax></bndbox>
</object></annotation>"""
    lines = b"0 0.5 0.5 0.3 0.25\n1 .2 .3 .1 .1\n"
    readers = {
        "coco": lambda path: voc.list_objects(path.parent, path.name),
        "xml": lambda path: voc.read_xml(path, path.parent, voc.CLASSES),
        "yolo": lambda path: voc.read_yolo(path.with_name("a.png"), path, ("cat", "dog")),
    }
    return {
        "coco": Format("case.json", (coco,), (readers["coco"],), mutate.json_text, 20, beside),
        "xml": Format("case.xml", (xml,), (readers["xml"],), None, 20, beside),
        "yolo": Format("case.txt", (lines,), (readers["yolo"],), None, 10, beside),
    }


def _faces() -> dict[str, Format]:
    """Lists of pairs, five points, and the embeddings of a folder."""
    (png,) = _saved("PNG", "L")
    points = " ".join(map(str, range(10)))
    table = json.dumps({"a/01": [[k, k + 1.5] for k in range(5)], "b": list(range(10))}).encode()
    lines = f"2\nname x y\na/01.jpg {points}\nb.png,{points.replace(' ', ',')}\n".encode()
    beside = {f"ann_{k:04}.png": png for k in (1, 2)}
    pairs = b"ann_0001.png ann_0002.png 1\nann_0001.png ann_0001.jpg 0\n"
    return {
        "points": Format("case.txt", (lines, table), (read_landmarks,), mutate.json_text, 20),
        "pairs": Format("pairs.txt", (pairs,), (lambda path: read_pairs("pairs", path.parent),), None, 20, beside),
        "faces": Format("case.faces.npz", (_written(_save_index, "case.faces.npz"),), (_search,), None, 20),
    }


def _save_index(path: Path) -> None:
    index = FaceIndex(path, "net", "1", 4)
    for name, faces in (("a", 1), ("b", 2), ("c", 0)):
        vectors = np.full((faces, 4), 0.5, np.float32)
        index.images[name] = IndexedImage(7, 10**18, vectors, "" if faces else "no face was found")
    index.save()


def _search(path: Path) -> None:
    index = FaceIndex(path, "net", "1", 4)
    index.read()
    index.rank(np.full(4, 0.5, np.float32))
    index.failed()


def _read_recipes(path: Path) -> None:
    """Each variant and stage of a file, as a table and as a recipe."""
    file = read_file(path)
    parts = [{"variant": name} for name in file.variants] + [{"stage": name} for name in file.stages]
    for part in parts or [{}]:
        recipe.as_table(recipe.read_recipe(path, **part))


def _set_keys(path: Path) -> None:
    """Each line a --set."""
    lines = path.read_bytes().decode(errors="surrogateescape").splitlines()  # as Python decodes arguments
    recipe.read_recipe(path.with_name("base.toml"), changes=lines)


def _resume(path: Path) -> None:
    """A run that goes on, to its table."""
    run = Results("edges", "d", 3, 0, {"tiny": "0", "small": "1"}).resume(path)
    grid = conditions(("fog",), (1,))
    robustness.table(run, ["tiny", "small"], grid)
    robustness.compare(run, ["tiny", "small"], grid)


def _describe(path: Path) -> None:
    """Before any of the file's numbers is read."""
    normalization(weights.describe(path))


def _read_card(path: Path) -> None:
    shipped, weights.FOLDER = weights.FOLDER, path.parent
    try:
        weights.cards()
    finally:
        weights.FOLDER = shipped


def _written(write: Callable[[Path], Any], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _networks() -> dict[str, Format]:
    torch.manual_seed(0)
    edges, binary = PiDiNet(EDGES).eval(), BiPiDiNet(BINARY).eval()
    ours = [_written(partial(checkpoint.save_model, model), "a.safetensors") for model in (edges, binary)]
    onnx = _written(partial(export_onnx, edges), "a.onnx")
    after = BiPiDiNet(BiPiDiNetConfig("after", width=0.125, stem="cifar", classes=3)).eval()
    packed = tuple(_written(partial(pack_model, model), "a.pdn") for model in (binary, after))
    theirs = {f"module.{name}": tensor for name, tensor in _authors_names(edges.state_dict())}
    pth = [
        _written(lambda p, new=new: torch.save({"state_dict": theirs}, p, _use_new_zipfile_serialization=new), "a.pth")
        for new in (True, False)
    ]
    config = json.dumps(checkpoint.describe_model(edges)).encode()
    return {
        "safetensors": Format("case.safetensors", tuple(ours), (_describe, _run_torch), mutate.tensors, 20),
        "edges": Format("case.safetensors", (ours[0],), (_describe, _run_edges), mutate.tensors, 40),
        "layout": Format("case.safetensors", (ours[0],), (_run_edges,), mutate.layout, 20),
        "pretrained": Format(
            "config.json",
            (config,),
            (partial(_in_folder, from_pretrained),),
            mutate.json_text,
            5,
            {"model.safetensors": ours[0]},
        ),
        "pth": Format("case.pth", tuple(pth), (_run_authors,), mutate.zipped, 15),
        "onnx": Format("case.onnx", (onnx,), (_describe, read_properties, _run_graph), mutate.graph, 15),
        "pdn": Format("case.pdn", packed, (_describe, _run_packed), mutate.tensors, 40),
    }


def _authors_names(state: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Our names as the authors spell them."""
    for name, tensor in state.items():
        parts = name.split(".")
        if parts[0] == "stages":
            leaf = {"depthwise": "conv1", "pointwise": "conv2"}.get(parts[3], parts[3])
            name = f"block{int(parts[1]) + 1}_{int(parts[2]) + 1}.{leaf}.{parts[-1]}"
        elif parts[0] == "sides" and parts[2] == "dilate":
            layer = "conv1" if parts[3] == "squeeze" else f"conv2_{int(parts[4]) + 1}"
            name = f"dilations.{parts[1]}.{layer}.{parts[-1]}"
        elif parts[0] == "sides":
            group = "conv_reduces" if parts[2] == "reduce" else "attentions"
            layer = {"squeeze": "conv1", "attend": "conv2"}.get(parts[3], "conv")
            name = f"{group}.{parts[1]}.{layer}.{parts[-1]}"
        yield name.replace("stem.", "init_block.").replace("fusion.", "classifier."), tensor


def _run_torch(path: Path) -> None:
    with torch.no_grad():
        checkpoint.load_model(path)(torch.zeros(1, 3, 16, 16))


def _run_authors(path: Path) -> None:
    with torch.no_grad():
        checkpoint.load_model(path, "carv")(torch.zeros(1, 3, 16, 16))


def _run_edges(path: Path) -> None:
    network = EdgeNetwork(path, threads=1)
    network(_pixels((33, 40, 3)), Look(sides=True))
    network.memory_budget = 200_000
    network(_pixels((70, 200, 3)))  # in strips


def _run_graph(path: Path) -> None:
    EdgeNetwork(path, threads=1)(_pixels((33, 40, 3)))


def _run_packed(path: Path) -> None:
    Classifier(path, threads=1)(_pixels((40, 33, 3)))


def _cifar() -> dict[str, Format]:
    table = {b"data": _pixels((4, 3072)), b"fine_labels": [1, 2, 3, 99]}
    meta = pickle.dumps({b"fine_label_names": [b"%d" % i for i in range(100)]}, 2)
    return {
        "cifar": Format(
            "test",
            (pickle.dumps(table, 2),),
            (lambda p: read_cifar100(p.parent, "test"),),
            None,
            10,
            {"meta": meta, "train": b""},
        )
    }


def _videos() -> dict[str, Format]:
    try:
        import av
    except ImportError:
        return {}

    def write(path: Path, codec: str) -> None:
        with av.open(str(path), "w") as container:
            container.metadata["title"] = "a title"
            stream = container.add_stream(codec, rate=25)
            stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
            for _ in range(3):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(_pixels((24, 32, 3)), format="rgb24")))
            container.mux(stream.encode(None))

    kinds = {"mp4": "libx264", "mkv": "mpeg4", "avi": "mpeg4"}
    return {
        kind: Format(f"case.{kind}", (_written(partial(write, codec=codec), f"a.{kind}"),), (_run_video,), None, 2)
        for kind, codec in kinds.items()
    }


class _Flat:
    """A network that detects nothing, quickly."""

    name, slots = "flat", Semaphore(8)

    def run(self, batch: Sequence[NDArray[Any]], look: Look) -> NDArray[np.float32]:
        return np.zeros((len(batch), 1, *batch[0].shape[:2]), np.float32)


def _run_video(path: Path) -> None:
    detect_video(_Flat(), path, path.with_name("result.mp4"))  # type: ignore[arg-type]


@cache
def formats() -> dict[str, Format]:
    parts = (_images, _arrays, _matlab, _texts, _faces, _networks, _cifar, _videos)
    return {name: entry for part in parts for name, entry in part().items()}
