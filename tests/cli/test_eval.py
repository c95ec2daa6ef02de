"""`pixeldiff eval` as it is typed."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from pixeldiff import EdgeDetector
from pixeldiff.cli import main
from pixeldiff.data.cifar import read_cifar100
from pixeldiff.data.truth import read_label
from pixeldiff.inference.classes import Classifier
from pixeldiff.metrics.classes import accuracy
from pixeldiff.metrics.edges import evaluate_image, summarize
from tests.data.test_cifar import write_cifar
from tests.extras import optional

torch = optional("torch")
create_model = optional("pixeldiff.models").create_model
save_model = optional("pixeldiff.models.saving").save_model
FolderImages = optional("pixeldiff.training.tasks.class_images").FolderImages
predict = optional("pixeldiff.training.tasks.classes").predict


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def results_of(path):
    content = json.loads(path.read_text())
    assert (content["version"], content["command"], content["failed"]) == (1, "eval", [])
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
    assert run("eval", folders / "good", "--truth", folders / "truth", "--json", out, "--thresholds", 9) == 0
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
    given = ("eval", folders / "good", folders / "poor", "--truth", folders / "truth", "--thresholds", 5)
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
    given = ("eval", folders / "good", "--truth", folders / "truth", "--thresholds", 3)
    assert run(*given[:2], folders / "good", folders / "good", *given[2:]) == 2
    assert "two sources are called" in capsys.readouterr().err
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
    given = ("eval", folders / "a/maps", folders / "b/maps", "--truth", folders / "truth", "--thresholds", 3)
    assert run(*given, "--text-files", folders / "text") == 0
    assert not list((folders / "b/maps").glob("*.txt"))
    assert len(list((folders / "text").glob("*/eval_bdry.txt"))) == 2
    capsys.readouterr()
    assert run(*given, "--text-files", folders / "text") == 2
    assert "holds files already" in capsys.readouterr().err
    assert run(*given, "--text-files", folders / "text", "--overwrite") == 0


def test_average_and_ceval(folders, capsys):
    truth = ("--truth", folders / "truth", "--thresholds", 3)
    assert run("eval", "--average", folders / "good", folders / "poor", *truth) == 0
    assert "good+poor" in capsys.readouterr().out
    assert run("eval", folders / "good", *truth, "--ceval") == 0
    assert "Not suppressed, not thinned" in capsys.readouterr().out


def test_golden_bench(data, tmp_path):
    bench = data / "bsds-bench"
    given = ("eval", bench / "png", "--truth", bench / "groundTruth", "--no-nms", "--thresholds", 5)
    assert run(*given, "--text-files", tmp_path) == 0
    ours, expected = np.loadtxt(tmp_path / "eval_bdry.txt"), np.loadtxt(bench / "expected" / "eval_bdry.txt")
    np.testing.assert_allclose(ours, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["good"], "what is the truth"),
        (["--truth", "truth"], "nothing to score"),
        (["good", "--truth", "nowhere"], "no truth"),
        (["good", "--truth", "truth", "--plot", "pr.gif"], "cannot plot"),
        (["good", "--truth", "truth", "--json", "no/such/folder.json"], "no folder"),
        (["good", "--dataset", "nyud", "--data", "truth"], "layout of bsds500 only"),
        (["good", "--dataset", "bsds500", "--data", "truth"], "is not BSDS500"),
        (["good", "--dataset", "bsds500", "--data", "nowhere"], "no data folder 'nowhere'"),
        (["good", "--truth", "truth", "--split", "val"], "leave one of them out"),
        (["--model", "tiny", "--dataset", "cifar100", "--nms-radius", "1"], "--nms-radius is of edges"),
        (["--model", "tiny", "--dataset", "cifar100", "--split", "val"], "--split is of edges"),
        (["good", "--truth", "truth", "--max-dist", "2"], "max_dist"),
        (["--weights", "none.onnx", "--truth", "truth"], "no weights file"),
        (["--average", "good", "--truth", "truth"], "--average takes two folders"),
    ],
)
def test_mistakes_are_one_line(folders, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(folders)
    assert run("eval", *arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_the_split_that_is_asked_for_is_scored(folders, capsys):
    for split in ("val", "test"):
        (folders / "BSDS500/groundTruth" / split).mkdir(parents=True)
        for k in range(4 if split == "test" else 3):
            content = (folders / f"truth/{k}.png").read_bytes()
            (folders / "BSDS500/groundTruth" / split / f"{k}.png").write_bytes(content)
    given = ("eval", folders / "good", "--dataset", "bsds500", "--data", folders / "BSDS500", "--json", "-")
    assert run(*given, "--thresholds", 3) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["split"] == "test"
    (folders / "good/3.npy").unlink()
    assert run(*given, "--thresholds", 3, "--split", "val") == 0
    (scores,) = json.loads(capsys.readouterr().out)["results"]
    assert (scores["split"], scores["images"]) == ("val", 3)
    assert run(*given, "--split", "validation") == 2
    assert "BSDS500 has train, val, test, not 'validation'" in capsys.readouterr().err


def test_scoring_maps_needs_no_torch(folders):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pixeldiff.cli import main\n"
        f"main(['eval', r'{folders / 'good'}', '--truth', r'{folders / 'truth'}', '--thresholds', '3'])"
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
    given = ("eval", "--truth", images, "--thresholds", 3, "--json", out)
    assert run(*given, "--weights", edge_weights) == 0
    (scores,) = results_of(out)
    assert scores["name"] == edge_weights.stem
    detector = EdgeDetector(edge_weights, threads=1)
    maps = [detector(images.with_name(f"{k}.jpg")) for k in range(2)]
    truths = [read_label(images.with_name(f"label{k}.png")) for k in range(2)]
    counts = [evaluate_image(one, [truth], 3) for one, truth in zip(maps, truths, strict=True)]
    assert scores["ods"] == summarize(counts).ods
    capsys.readouterr()


def test_scores_a_network_at_three_scales_and_mirrored(images, edge_weights, capsys):
    out = images.with_name("scores.json")
    given = ("eval", "--truth", images, "--thresholds", 3, "--json", out, "--overwrite", "--weights", edge_weights)
    detector = EdgeDetector(edge_weights, threads=1)
    truths = [read_label(images.with_name(f"label{k}.png")) for k in range(2)]
    for flags, options in (
        (["--flip"], {"flip": True}),
        (["--flip", "--multi-scale"], {"flip": True, "scales": (0.5, 1, 1.5)}),
    ):
        assert run(*given, *flags) == 0  # what the cache holds is of other maps
        (scores,) = results_of(out)
        maps = [detector(images.with_name(f"{k}.jpg"), **options) for k in range(2)]
        counts = [evaluate_image(one, [truth], 3) for one, truth in zip(maps, truths, strict=True)]
        assert scores["ods"] == summarize(counts).ods
        assert (scores["flip"], scores.get("multi_scale", False)) == (True, "scales" in options)
    capsys.readouterr()
    assert run("eval", images.parent, "--truth", images, "--flip") == 2
    assert "--flip and --multi-scale are for a network" in capsys.readouterr().err


def test_scores_a_file_of_the_torch_world(images, tmp_path, capsys):
    torch.manual_seed(0)
    weights = tmp_path / "fresh.safetensors"
    save_model(create_model("tiny", width=4, side_channels=4), weights)
    assert run("eval", "--truth", images, "--thresholds", 3, "--ceval", "--weights", weights) == 0
    assert "fresh" in capsys.readouterr().out


def test_accuracy_of_a_classifier(tmp_path, capsys):
    write_cifar(tmp_path / "cifar-100-python")
    torch.manual_seed(0)
    model = create_model("resnet18_bipdc_cifar", width=0.125, classes=100).eval()
    save_model(model, tmp_path / "net.safetensors", {"task": "classes"})
    assert run("export", tmp_path / "net.safetensors", "-o", tmp_path / "net.pdn") == 0
    capsys.readouterr()
    given = ("eval", "--dataset", "cifar100", "--data", tmp_path, "--json", tmp_path / "scores.json", "--overwrite")
    test = read_cifar100(tmp_path, "test")
    expected = accuracy(Classifier(tmp_path / "net.pdn").logits(test.images), test.labels)
    for weights in ("net.pdn", "net.safetensors"):
        assert run(*given, "--weights", tmp_path / weights) == 0
        (scores,) = results_of(tmp_path / "scores.json")
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
    given = ("eval", "--dataset", "folder", "--weights", tmp_path / "net.pdn", "--json", tmp_path / "scores.json")
    monkeypatch.setenv("PIXELDIFF_DATA", str(tmp_path.parent))
    for data in (tmp_path, tmp_path / "val", tmp_path.name):
        assert run(*given, "--data", data, "--overwrite") == 0
        (scores,) = results_of(tmp_path / "scores.json")
        assert {key: scores[key] for key in ("top1", "top5")} == accuracy(logits, labels)
        assert scores["images"] == 6
    capsys.readouterr()
    (tmp_path / "val" / "eel").rename(tmp_path / "val" / "fox")
    assert run(*given, "--data", tmp_path, "--overwrite") == 2
    assert "trained for" in capsys.readouterr().err


def test_a_float_classifier_is_explained(tmp_path, capsys):
    save_model(create_model("resnet18_cifar", width=0.125), tmp_path / "net.safetensors")
    given = ("eval", "--dataset", "cifar100", "--data", tmp_path, "--weights", tmp_path / "net.safetensors")
    assert run(*given) == 2
    assert "metrics.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--weights", "net.pdn"], "where are the images?"),
        (["--data", "."], "give --model NAME or --weights FILE"),
        (
            ["--data", ".", "--model", "tiny", "--plot", "pr.png"],
            "--plot is of edges (custom, bsds500, nyud, multicue, biped), and cifar100 of classes",
        ),
    ],
)
def test_accuracy_needs_a_network_and_data(options, says, capsys, tmp_path, monkeypatch):
    write_cifar(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("eval", "--dataset", "cifar100", *options) == 2
    assert says in capsys.readouterr().err


def test_force_scores_what_looks_inverted(folders, capsys):
    for k in range(4):
        np.save(folders / "good" / f"{k}.npy", 1 - np.load(folders / "good" / f"{k}.npy"))
    given = ("eval", folders / "good", "--truth", folders / "truth", "--thresholds", 3, "--json", folders / "x.json")
    assert run(*given) == 2
    assert "--force if it is meant so" in capsys.readouterr().err
    assert run(*given, "--force") == 0
    (folders / "x.json").unlink()
    assert run(*given) == 2, "what was forced before is not forced now"
    for path in sorted((folders / "truth").iterdir()):
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    assert run(*given, "--force") == 0


def test_truth_without_a_boundary_is_told(folders, capsys):
    for path in sorted((folders / "truth").iterdir()):
        Image.new("L", (50, 40)).save(path)
    assert run("eval", folders / "good", "--truth", folders / "truth", "--thresholds", 3) == 2
    assert "no truth marks a boundary" in capsys.readouterr().err


def test_scores_a_network_on_own_images_and_labels(folders, rng, capsys):
    (folders / "photos").mkdir()
    for k in range(4):
        image = rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(image).save(folders / "photos" / f"{k}.png")
    pairs = f"{folders / 'photos'}:{folders / 'truth'}"
    assert run("eval", "--model", "tiny", "--truth", pairs, "--thresholds", 3) == 0
    assert "tiny" in capsys.readouterr().out
    assert run("eval", "--model", "tiny", "--truth", folders / "truth", "--thresholds", 3) == 2
    assert "--truth IMAGES:LABELS" in capsys.readouterr().err


def test_a_damaged_cache_is_scored_again(folders):
    out = folders / "good.json"
    given = ("eval", folders / "good", "--truth", folders / "truth", "--json", out, "--thresholds", 3, "--overwrite")
    assert run(*given) == 0
    before, cache = out.read_bytes(), folders / "good.json.cache"
    keys = [json.loads(line)["key"] for line in cache.read_text().splitlines()]
    empty = {key: [0] for key in ("matched_truth", "all_truth", "matched_prediction", "all_prediction")}
    lines = [{"key": keys[0]}, {"key": keys[1], **empty, "crispness": 0, "peak": 1}, {"key": keys[2], "peak": "high"}]
    cache.write_text("".join(json.dumps(line) + "\n" for line in lines) + "[" * 100_000)
    assert run(*given) == 0
    assert out.read_bytes() == before


def test_json_on_stdout_is_all_that_is_printed(folders, capsys):
    given = ("eval", folders / "good", "--truth", folders / "truth", "--thresholds", 3, "--json", "-")
    assert run(*given) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["command"], content["results"][0]["name"]) == ("eval", "good")
    assert not list(folders.glob("*.cache"))


def test_help_shows_the_options_of_each_task(capsys):
    assert run("eval", "--help") == 0
    common, edges, classes = re.split(r"^Edges \(.*$|^Classes \(.*$", capsys.readouterr().out, flags=re.MULTILINE)
    assert "--threads" in common
    assert "--thresholds" not in common
    assert "--thresholds" in edges
    assert "[default: test]" in edges
    assert "VOC: a list" not in edges
    assert "top-1 and top-5 accuracy" in classes


def test_maps_are_no_images_of_classes(folders, capsys):
    assert run("eval", folders / "good", "--dataset", "cifar100", "--data", folders) == 2
    assert "MAPS is of edges" in capsys.readouterr().err
    assert run("eval", "--model", "tiny", "--weights", "tiny.onnx", "--truth", folders / "truth") == 2
    assert "they exclude each other" in capsys.readouterr().err
