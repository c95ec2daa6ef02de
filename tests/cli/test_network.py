"""From a user's word to an open network: names, files of every kind, and what is said of the others."""

from pathlib import Path

import numpy as np
import pytest

from pixeldiff import Classifier, UserError, weights
from pixeldiff.cli import _network
from pixeldiff.cli._network import find_network, open_network
from pixeldiff.inference.edges import EdgeNetwork
from pixeldiff.jobs.bench import peak_memory_mb
from tests.extras import optional

create_model = optional("pixeldiff.models").create_model
save_model = optional("pixeldiff.models.saving").save_model


@pytest.mark.parametrize(
    ("given", "kind", "task"),
    [("tiny", EdgeNetwork, "edges"), ("pidinet_tiny", EdgeNetwork, None), ("bipdc-cifar100", Classifier, None)],
)
def test_a_name_opens_the_shipped_network(given, kind, task):
    with open_network(given, task, threads=1, streams=2) as opened:
        assert isinstance(opened.network, kind)
        assert opened.path == opened.runs == weights.runtime_file(given)
        assert opened.name == opened.network.name == opened.path.stem
        assert opened.sha256 == weights.sha256(opened.path)


def test_a_file_for_torch_is_exported_on_the_way(tmp_path, rng):
    networks = {"edges": ("tiny-l", {"width": 4}), "classes": ("resnet18_binary_cifar", {"width": 0.125})}
    image = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    for task, (name, changes) in networks.items():
        path = tmp_path / f"{task}.safetensors"
        save_model(create_model(name, **changes).eval(), path, {"license": "mine"})
        with open_network(path) as opened:
            assert (opened.name, opened.task.name, opened.path) == (task, task, path)
            assert (opened.runs.suffix, opened.network.name) == (opened.task.suffix, task)
            assert opened.sha256 == weights.sha256(path)
            assert len(opened.network(image))
        assert opened.runs.exists() == (task == "edges")  # our engine runs the trained file itself
    assert sorted(one.name for one in tmp_path.iterdir()) == ["classes.safetensors", "edges.safetensors"]


def test_without_torch_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.pth").write_bytes(b"any")
    monkeypatch.setattr(_network.importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(UserError, match=r"a\.pth needs torch; install it with: pip install 'pixeldiff\[train\]'"),
        find_network(tmp_path / "a.pth"),
    ):
        pass


def test_other_tasks_and_unknown_words(tmp_path):
    for given, task, says in (
        ("tiny", "classes", "for edges, not for classes"),
        ("nonsense", None, "no pretrained model named 'nonsense'; there are basic, "),
        (tmp_path, None, "is a folder; give the weights file in it"),
        (tmp_path / "none.onnx", None, "no weights file .*none.onnx"),
    ):
        with pytest.raises(UserError, match=says), open_network(given, task):
            pass


def test_a_module_that_lies_among_the_images_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("open('was-run', 'w').close()")
    save_model(create_model("tiny-l", width=4).eval(), tmp_path / "-a.safetensors")
    monkeypatch.chdir(tmp_path)
    with open_network("-a.safetensors") as opened:
        assert opened.name == "-a"
    assert peak_memory_mb("tiny", 1, (32, 32)) > 20
    assert not Path("was-run").exists()
