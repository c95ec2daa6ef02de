"""`pixeldiff eval edges|classes|...` as users type it."""

import importlib.util
import json
import subprocess
import sys

import click
import numpy as np
import pytest
from PIL import Image

from pixeldiff import EdgeDetector
from pixeldiff.cli import main
from pixeldiff.cli.eval import edges
from pixeldiff.data.cifar import read_cifar100
from pixeldiff.data.edges import READERS, EdgeDataset, find_labels, read_mask
from pixeldiff.inference.classes import Classifier
from pixeldiff.metrics.classes import accuracy
from pixeldiff.metrics.edges import evaluate_image, summarize
from tests.data.test_cifar import write_cifar
from tests.extras import optional

NEEDS_MATPLOTLIB = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")

torch = optional("torch")
create_model = optional("pixeldiff.models").create_model
save_model = optional("pixeldiff.models.saving").save_model
FolderImages = optional("pixeldiff.training.tasks.class_images").FolderImages
predict = optional("pixeldiff.training.tasks.classes").predict


def run_edges(*arguments: object) -> int:
    return run("eval", "edges", *arguments)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def results_of(path, task="edges"):
    content = json.loads(path.read_text())
    assert (content["version"], content["command"], content["failed"]) == (1, f"eval {task}", [])
    return content["results"]


@pytest.fixture
def folders(tmp_path, rng):
    """Two folders of maps and one of truth, four small images."""
    for folder in ("good", "poor", "truth"):
        (tmp_path / folder).mkdir()
    for k in range(4):
        truth = np.zeros((40, 50), dtype=bool)
        truth[8 + 5 * k, 6:44] = True
        noise = rng.random(truth.shape).astype(np.float32)
        Image.fromarray((truth * 255).astype(np.uint8)).save(tmp_path / "truth" / f"{k}.png")
        np.save(tmp_path / "good" / f"{k}.npy", 0.9 * truth + 0.05 * noise)
        np.save(tmp_path / "poor" / f"{k}.npy", 0.3 * truth + 0.6 * noise)
    return tmp_path


def test_scores_one_folder(folders, capsys):
    out = folders / "good.json"
    assert run_edges(folders / "good", "--ground-truth", folders / "truth", "--json", out, "--thresholds", 9) == 0
    (scores,) = results_of(out)
    assert {"ods", "ois", "ap", "r50", "curve"} <= set(scores)
    assert set(scores["curve"]) == {"threshold", "recall", "precision", "f"}
    assert len(scores["curve"]["f"]) == 9
    assert scores["ods"] > 0.9
    assert f"{scores['ods']:.4f}" in capsys.readouterr().out
    assert (folders / "good.json.cache").exists()


def test_compares_folders_and_writes_everything(folders, capsys):
    pytest.importorskip("matplotlib")
    files = {name: folders / name for name in ("all.json", "pr.svg", "each.csv")}
    outputs = ("--json", files["all.json"], "--plot", files["pr.svg"], "--per-image", files["each.csv"])
    given = (
        "eval",
        "edges",
        folders / "good",
        folders / "poor",
        "--ground-truth",
        folders / "truth",
        "--thresholds",
        5,
    )
    assert run(*given, *outputs, "--text-files", folders / "text") == 0
    results = results_of(files["all.json"])
    assert [one["name"] for one in results] == ["good", "poor"]
    assert results[0]["ods"] > results[1]["ods"]
    assert len(files["each.csv"].read_text().splitlines()) == 1 + 2 * 4
    assert (folders / "text" / "poor" / "3_ev1.txt").exists()
    before = {name: path.read_bytes() for name, path in files.items()}
    for option, file in zip(outputs[::2], outputs[1::2], strict=True):
        capsys.readouterr()
        assert run(*given, option, file) == 2
        assert f"{file} exists; give another name or --overwrite" in capsys.readouterr().err
    assert run(*given, *outputs, "--threads", 1, "--overwrite") == 0
    assert {name: path.read_bytes() for name, path in files.items()} == before


def test_nothing_is_dropped_or_replaced_silently(folders, capsys):
    given = ("eval", "edges", folders / "good", "--ground-truth", folders / "truth", "--thresholds", 3)
    assert run(*given[:3], folders / "good", folders / "good", *given[3:]) == 2
    assert "two folders of maps are called" in capsys.readouterr().err
    assert run(*given, "--json", folders / "truth/0.png") == 2
    assert "among the inputs" in capsys.readouterr().err
    assert run(*given, "--json", folders / "scores.txt") == 2
    assert "ends in .json" in capsys.readouterr().err
    (folders / "file").touch()
    assert run(*given, "--text-files", folders / "file/text") == 2
    assert "cannot write" in capsys.readouterr().err


def test_text_files_stay_in_their_folder(folders, capsys):
    for place, name in (("a", "good"), ("b", "poor")):
        (folders / place).mkdir()
        (folders / name).rename(folders / place / "maps")
    given = (
        "eval",
        "edges",
        folders / "a/maps",
        folders / "b/maps",
        "--ground-truth",
        folders / "truth",
        "--thresholds",
        3,
    )
    assert run(*given, "--text-files", folders / "text") == 0
    assert not list((folders / "b/maps").glob("*.txt"))
    assert len(list((folders / "text").glob("*/eval_bdry.txt"))) == 2
    capsys.readouterr()
    assert run(*given, "--text-files", folders / "text") == 2
    assert "--text-files" in capsys.readouterr().err
    assert run(*given, "--text-files", folders / "text", "--overwrite") == 0


def test_average_and_ceval(folders, capsys):
    truth = ("--ground-truth", folders / "truth", "--thresholds", 3)
    assert run_edges("--ensemble", folders / "good", folders / "poor", *truth) == 0
    assert "good+poor" in capsys.readouterr().out
    assert run_edges(folders / "good", *truth, "--ceval") == 0
    assert "No NMS, no thinning" in capsys.readouterr().out


def test_golden_bench(data, tmp_path):
    bench = data / "bsds-bench"
    given = ("eval", "edges", bench / "png", "--ground-truth", bench / "groundTruth", "--no-nms", "--thresholds", 5)
    assert run(*given, "--text-files", tmp_path) == 0
    ours, expected = np.loadtxt(tmp_path / "eval_bdry.txt"), np.loadtxt(bench / "expected" / "eval_bdry.txt")
    np.testing.assert_allclose(ours, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (["good"], "--ground-truth"),
        (["--ground-truth", "truth"], "nothing to score"),
        (["good", "--ground-truth", "nowhere"], "nowhere"),
        (["good", "--ground-truth", "truth", "--plot", "pr.gif"], "pr.gif"),
        (["good", "--ground-truth", "truth", "--json", "no/such/folder.json"], "no/such"),
        (["good", "--dataset", "nyud", "--data-dir", "truth"], "nyud"),
        (["good", "--dataset", "bsds500", "--data-dir", "truth"], "groundTruth/test"),
        (["good", "--dataset", "bsds500", "--data-dir", "nowhere"], "'nowhere'"),
        (["good", "--ground-truth", "truth", "--split", "val"], "--split"),
        (["good", "--images", "good"], "--labels"),
        (["good", "--ground-truth", "truth", "--images", "good", "--labels", "truth"], "--ground-truth"),
        (["good", "--ground-truth", "truth", "--max-dist", "2"], "max_dist"),
        (["good", "--ground-truth", "truth", "--corruption", "fog"], "--corruption"),
        (["-m", "none.onnx", "--ground-truth", "truth"], "none.onnx"),
        (["--ensemble", "good", "--ground-truth", "truth"], ""),
        (["good", "--ground-truth", "truth", "--scales", "0.5,1"], "--scales"),
        (["good", "--ground-truth", "truth", "--scales", "half"], "--scales"),
    ],
)
def test_mistakes_are_one_line(folders, monkeypatch, capsys, arguments, subject):
    monkeypatch.chdir(folders)
    assert run_edges(*arguments) == 2
    captured = capsys.readouterr()
    assert subject in captured.err
    assert captured.err.count("\n") == 1


def test_the_split_that_is_asked_for_is_scored(folders, capsys):
    for split in ("val", "test"):
        (folders / "BSDS500/groundTruth" / split).mkdir(parents=True)
        for k in range(4 if split == "test" else 3):
            content = (folders / f"truth/{k}.png").read_bytes()
            (folders / "BSDS500/groundTruth" / split / f"{k}.png").write_bytes(content)
    given = (
        "eval",
        "edges",
        folders / "good",
        "--dataset",
        "bsds500",
        "--data-dir",
        folders / "BSDS500",
        "--json",
        "-",
    )
    assert run(*given, "--thresholds", 3) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["split"] == "test"
    (folders / "good/3.npy").unlink()
    assert run(*given, "--thresholds", 3, "--split", "val") == 0
    (scores,) = json.loads(capsys.readouterr().out)["results"]
    assert (scores["split"], scores["images"]) == ("val", 3)
    assert run(*given, "--split", "validation") == 2
    assert "validation" in capsys.readouterr().err


def test_scoring_maps_needs_no_torch(folders):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pixeldiff.cli import main\n"
        f"main(['eval', 'edges', r'{folders / 'good'}', '--ground-truth', r'{folders / 'truth'}', '--thresholds', '3'])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.fixture
def images(tmp_path, rng):
    """A pair list of two photographs and their labels."""
    lines = []
    for k in range(2):
        image = rng.integers(0, 256, (40, 48 + k, 3), dtype=np.uint8)
        label = (rng.random((40, 48 + k)) < 0.1) * np.uint8(255)
        Image.fromarray(image).save(tmp_path / f"{k}.jpg")
        Image.fromarray(label).save(tmp_path / f"label{k}.png")
        lines.append(f"{k}.jpg label{k}.png")
    (tmp_path / "pairs.lst").write_text("\n".join(lines) + "\n")
    return tmp_path / "pairs.lst"


def test_scores_a_network(images, edge_weights, capsys):
    out = images.with_name("scores.json")
    given = ("eval", "edges", "--ground-truth", images, "--thresholds", 3, "--json", out)
    assert run(*given, "-m", edge_weights) == 0
    (scores,) = results_of(out)
    assert scores["name"] == edge_weights.stem
    detector = EdgeDetector(edge_weights, threads=1)
    maps = [detector(images.with_name(f"{k}.jpg")) for k in range(2)]
    truths = [read_mask(images.with_name(f"label{k}.png")) for k in range(2)]
    counts = [evaluate_image(one, [truth], 3) for one, truth in zip(maps, truths, strict=True)]
    assert scores["ods"] == summarize(counts).ods
    capsys.readouterr()


def test_scores_a_network_at_three_scales_and_mirrored(images, edge_weights, capsys):
    out = images.with_name("scores.json")
    given = (
        "eval",
        "edges",
        "--ground-truth",
        images,
        "--thresholds",
        3,
        "--json",
        out,
        "--overwrite",
        "-m",
        edge_weights,
    )
    detector = EdgeDetector(edge_weights, threads=1)
    truths = [read_mask(images.with_name(f"label{k}.png")) for k in range(2)]
    for flags, options in (
        (["--flip"], {"flip": True}),
        (["--flip", "--scales", "0.5,1,1.5"], {"flip": True, "scales": (0.5, 1, 1.5)}),
    ):
        assert run(*given, *flags) == 0  # what the cache holds is of other maps
        (scores,) = results_of(out)
        maps = [detector(images.with_name(f"{k}.jpg"), **options) for k in range(2)]
        counts = [evaluate_image(one, [truth], 3) for one, truth in zip(maps, truths, strict=True)]
        assert scores["ods"] == summarize(counts).ods
        assert (scores["flip"], "scales" in scores) == (True, "scales" in options)
    capsys.readouterr()
    assert run_edges(images.parent, "--ground-truth", images, "--flip") == 2
    assert "--flip and --scales are for models" in capsys.readouterr().err


def test_scores_a_file_that_only_torch_reads(images, tmp_path, capsys):
    torch.manual_seed(0)
    weights = tmp_path / "fresh.safetensors"
    save_model(create_model("tiny", width=4, side_channels=4), weights)
    assert run_edges("--ground-truth", images, "--thresholds", 3, "--ceval", "-m", weights) == 0
    assert "fresh" in capsys.readouterr().out


def test_accuracy_of_a_classifier(tmp_path, capsys):
    write_cifar(tmp_path / "cifar-100-python")
    torch.manual_seed(0)
    model = create_model("resnet18_bipdc_cifar", width=0.125, classes=100).eval()
    save_model(model, tmp_path / "net.safetensors", {"task": "classes"})
    assert run("export", tmp_path / "net.safetensors", "-o", tmp_path / "net.pdn") == 0
    capsys.readouterr()
    given = ("eval", "classes", "--data-dir", tmp_path, "--json", tmp_path / "scores.json", "--overwrite")
    test = read_cifar100(tmp_path, "test")
    expected = accuracy(Classifier(tmp_path / "net.pdn").logits(test.images), test.labels)
    for weights in ("net.pdn", "net.safetensors"):
        assert run(*given, "-m", tmp_path / weights) == 0
        (scores,) = results_of(tmp_path / "scores.json", "classes")
        assert {key: scores[key] for key in ("top1", "top5")} == expected
        assert scores["images"] == 120
        assert f"{expected['top5']:6.2f}" in capsys.readouterr().out


def test_accuracy_on_folders_of_classes(tmp_path, capsys, rng, monkeypatch):
    names = ("cat", "dog", "eel")
    for label, name in enumerate(names):
        (tmp_path / "val" / name).mkdir(parents=True)
        for k in range(label + 1):
            image = rng.integers(256, size=(40, 30 + k, 3), dtype=np.uint8)
            Image.fromarray(image).save(tmp_path / "val" / name / f"{k}.png")
    (tmp_path / "val/cat/._0.png").write_bytes(b"left behind by an archive")
    torch.manual_seed(0)
    model = create_model("resnet18_bipdc_cifar", width=0.125, classes=3).eval()
    described = {"labels": list(names), "recipe": {"data": {"dataset": "folder", "size": 24}}}
    save_model(model, tmp_path / "net.safetensors", described)
    assert run("export", tmp_path / "net.safetensors", "-o", tmp_path / "net.pdn") == 0
    images = FolderImages(tmp_path, "val", size=24)
    logits, labels = predict(model, images)
    given = ("eval", "classes", "--dataset", "folder", "-m", tmp_path / "net.pdn", "--json", tmp_path / "scores.json")
    monkeypatch.setenv("PIXELDIFF_DATA", str(tmp_path.parent))
    for data in (tmp_path, tmp_path / "val", tmp_path.name):
        assert run(*given, "--data-dir", data, "--overwrite") == 0
        (scores,) = results_of(tmp_path / "scores.json", "classes")
        assert {key: scores[key] for key in ("top1", "top5")} == accuracy(logits, labels)
        assert scores["images"] == 6
    capsys.readouterr()
    (tmp_path / "val" / "eel").rename(tmp_path / "val" / "fox")
    assert run(*given, "--data-dir", tmp_path, "--overwrite") == 2
    assert "trained for" in capsys.readouterr().err


def test_a_float_classifier_is_explained(tmp_path, capsys):
    save_model(create_model("resnet18_cifar", width=0.125), tmp_path / "net.safetensors")
    write_cifar(tmp_path)
    given = ("eval", "classes", "--data-dir", tmp_path, "-m", tmp_path / "net.safetensors")
    assert run(*given) == 2
    assert "metrics.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        (["-m", "bipdc-cifar100"], "--data-dir"),
        (["--data-dir", "."], "--model"),
        pytest.param(["--data-dir", ".", "-m", "bipdc-cifar100", "--plot", "pr.png"], "--plot", marks=NEEDS_MATPLOTLIB),
        (["--data-dir", ".", "-m", "tiny"], "tiny"),
        (["--data-dir", ".", "-m", "bipdc-cifar100", "--nms-radius", "1"], "--nms-radius"),
    ],
)
def test_accuracy_needs_a_network_and_data(options, subject, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("PIXELDIFF_DATA", raising=False)
    write_cifar(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("eval", "classes", *options) == 2
    assert subject in capsys.readouterr().err


def test_what_looks_inverted_is_scored_if_allowed(folders, capsys):
    for k in range(4):
        np.save(folders / "good" / f"{k}.npy", 1 - np.load(folders / "good" / f"{k}.npy"))
    given = (
        "eval",
        "edges",
        folders / "good",
        "--ground-truth",
        folders / "truth",
        "--thresholds",
        3,
        "--json",
        folders / "x.json",
    )
    assert run(*given) == 2
    assert "--allow-inverted" in capsys.readouterr().err
    assert run(*given, "--allow-inverted") == 0
    (folders / "x.json").unlink()
    assert run(*given) == 2, "what was allowed before is not allowed now"
    for path in sorted((folders / "truth").iterdir()):
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    assert run(*given, "--allow-inverted") == 0


def test_truth_without_a_boundary_is_told(folders, capsys):
    for path in sorted((folders / "truth").iterdir()):
        Image.new("L", (50, 40)).save(path)
    assert run_edges(folders / "good", "--ground-truth", folders / "truth", "--thresholds", 3) == 2
    assert "no label marks an edge" in capsys.readouterr().err


def test_scores_a_network_on_images_and_labels(folders, rng, capsys):
    (folders / "photos").mkdir()
    for k in range(4):
        image = rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(image).save(folders / "photos" / f"{k}.png")
    pairs = ("--images", folders / "photos", "--labels", folders / "truth")
    assert run_edges("-m", "tiny", *pairs, "--thresholds", 3) == 0
    assert "tiny" in capsys.readouterr().out
    assert run_edges("-m", "tiny", "--ground-truth", folders / "truth", "--thresholds", 3) == 2
    assert "--images" in capsys.readouterr().err


def test_maps_and_models_are_scored_together(images, edge_weights, tmp_path, capsys):
    (tmp_path / "maps").mkdir()
    detector = EdgeDetector(edge_weights, threads=1)
    for k in range(2):
        np.save(tmp_path / "maps" / f"{k}.npy", detector(images.with_name(f"{k}.jpg")))
    out = tmp_path / "scores.json"
    given = ("eval", "edges", tmp_path / "maps", "-m", edge_weights, "-m", "tiny", "--ground-truth", images)
    given = (*given, "--allow-inverted")  # of random weights
    assert run(*given, "--thresholds", 3, "--json", out) == 0
    maps, network, tiny = results_of(out)
    assert [maps["name"], network["name"], tiny["name"]] == ["maps", edge_weights.stem, "tiny"]
    assert maps["ods"] == network["ods"] != tiny["ods"]
    assert run(*given, "--thresholds", 3, "--limit", 1, "--json", "-") == 0
    printed = capsys.readouterr().out
    assert json.loads(printed[printed.index("{") :])["results"][0]["images"] == 1


def test_a_made_up_data_set_is_scored(folders, monkeypatch, capsys):
    """One reader and one entry; training reads the same table."""

    def read(root, split):
        return list(find_labels(root / split).values())

    monkeypatch.setitem(READERS, "lines", EdgeDataset(read, "Lines", "nowhere", splits=("truth",), max_dist=0.02))
    dataset = next(param for param in edges.params if param.name == "dataset")
    monkeypatch.setattr(dataset, "type", click.Choice(list(READERS)))
    given = ("eval", "edges", folders / "good", "--dataset", "lines", "--data-dir", folders, "--split", "truth")
    assert run(*given, "--thresholds", 3, "--json", "-") == 0
    (scores,) = json.loads(capsys.readouterr().out)["results"]
    assert (scores["settings"]["max_dist"], scores["images"]) == (0.02, 4)


def test_a_damaged_cache_is_scored_again(folders):
    out = folders / "good.json"
    given = (
        "eval",
        "edges",
        folders / "good",
        "--ground-truth",
        folders / "truth",
        "--json",
        out,
        "--thresholds",
        3,
        "--overwrite",
    )
    assert run(*given) == 0
    before, cache = out.read_bytes(), folders / "good.json.cache"
    keys = [json.loads(line)["key"] for line in cache.read_text().splitlines()]
    empty = {key: [0] for key in ("matched_truth", "all_truth", "matched_prediction", "all_prediction")}
    lines = [{"key": keys[0]}, {"key": keys[1], **empty, "crispness": 0, "peak": 1}, {"key": keys[2], "peak": "high"}]
    cache.write_text("".join(json.dumps(line) + "\n" for line in lines) + "[" * 100_000)
    assert run(*given) == 0
    assert out.read_bytes() == before


def test_json_on_stdout_is_all_that_is_printed(folders, capsys):
    given = ("eval", "edges", folders / "good", "--ground-truth", folders / "truth", "--thresholds", 3, "--json", "-")
    assert run(*given) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["command"], content["results"][0]["name"]) == ("eval edges", "good")
    assert not list(folders.glob("*.cache"))


def test_help_of_each_task_shows_its_options(capsys):
    assert run("eval", "--help") == 0
    assert {"edges", "classes", "faces", "objects"} <= set(capsys.readouterr().out.split())
    shown = {}
    for task in ("edges", "classes", "faces", "objects"):
        assert run("eval", task, "--help") == 0
        shown[task] = capsys.readouterr().out
    for option in ("--model", "--data-dir", "--threads", "--json", "--corruption", "--severity", "--plot", "--limit"):
        assert all(option in text for text in shown.values()), option
    assert [task for task, text in shown.items() if "--thresholds" in text] == ["edges"]
    assert [task for task, text in shown.items() if "--lists" in text] == ["faces"]
