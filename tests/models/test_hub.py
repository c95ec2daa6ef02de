"""Weight folders (config.json + model.safetensors) and torch.hub entry points."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from pixeldiff import UserError, replace_convs
from pixeldiff.models import create_model
from pixeldiff.models.hub import PIPELINES, from_pretrained, push_to_hub, save_pretrained
from pixeldiff.tasks import TASKS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    model = create_model("tiny", width=4, side_channels=2, pattern="baseline")
    save_pretrained(model, tmp_path / "net")
    return tmp_path / "net"


def test_a_folder_gives_the_network_back(tmp_path):
    model = create_model("tiny", width=4, side_channels=2, pattern="cvvv").eval()
    save_pretrained(model, tmp_path / "a" / "b")
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["README.md", "config.json", "model.safetensors"]
    again = from_pretrained(tmp_path / "a" / "b")
    assert again.config == model.config
    image = torch.randn(1, 3, 17, 24, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again(image), model(image))


def test_replaced_layers_are_not_saved_as_if_they_were_not(tmp_path):
    model = create_model("tiny", width=4)
    replace_convs(model, "central", ratio=0.25)
    with pytest.raises(UserError, match="layers of this network were replaced"):
        save_pretrained(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_mistakes_are_named(folder, tmp_path):
    with pytest.raises(UserError, match="is not a folder with"):
        from_pretrained(tmp_path / "missing")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"config": config["config"] | {"width": 5}}))
    with pytest.raises(UserError, match="does not hold the weights"):
        from_pretrained(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="not a config written by"):
        from_pretrained(folder)
    for wrong in ("[1]", "[" * 100_000, '{"family": [], "config": 3}'):
        (folder / "config.json").write_text(wrong)
        with pytest.raises(UserError):
            from_pretrained(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot create the folder"):
        save_pretrained(create_model("tiny", width=4, side_channels=2), tmp_path / "file" / "x")


class Hub:
    """Stand in for huggingface_hub: keep repositories as folders."""

    def __init__(self, folder):
        self.folder = folder

    def snapshot_download(self, name, allow_patterns):
        if not (self.folder / name).is_dir():
            raise OSError("404 Client Error.\nRepository Not Found")
        return str(self.folder / name)

    def create_repo(self, name, private, exist_ok):
        if name.startswith("nobody/"):
            raise OSError("401 Unauthorized")
        (self.folder / name).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, repo_id, folder_path):
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)


def test_to_the_hub_and_back(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(tmp_path))
    model = create_model("tiny", width=4, side_channels=2)
    push_to_hub(model, "me/edges")
    assert from_pretrained("me/edges").config == model.config
    for wrong in ("edges", "a/b/c", "../edges"):
        with pytest.raises(UserError, match="invalid name on the Hub"):
            push_to_hub(model, wrong)
    with pytest.raises(
        UserError, match=r"cannot upload nobody/edges to the Hub \(401 Unauthorized\); run `hf auth login`"
    ):
        push_to_hub(model, "nobody/edges")
    with pytest.raises(UserError, match=r"neither a local folder nor a network on the Hub \(404 Client Error\.\)"):
        from_pretrained("me/other")


def test_the_hub_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"needs huggingface_hub; install it with: pip install 'pixeldiff\[hub\]'"):
        from_pretrained("me/edges")


def test_the_card_is_in_the_hubs_format_and_stays(folder):
    text = (folder / "README.md").read_text()
    head = pytest.importorskip("yaml").safe_load(text.split("---\n")[1])
    assert head["library_name"] == "pixeldiff"
    assert head["pipeline_tag"] == "image-to-image"
    (folder / "README.md").write_text("mine")
    save_pretrained(from_pretrained(folder), folder)
    assert (folder / "README.md").read_text() == "mine"


def test_every_task_has_a_name_on_the_hub():
    assert PIPELINES.keys() == TASKS.keys()


def test_torch_hub_entry_points():
    model = torch.hub.load(str(ROOT), "pidinet_tiny_l", source="local", width=4)
    assert model.config.width == 4
    assert model.config.cdcm is False
