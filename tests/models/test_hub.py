"""Weight folders (config.json + model.safetensors) and torch.hub entry points."""

import json
from pathlib import Path

import pytest
import torch

from pixeldiff import UserError, replace_convs
from pixeldiff.models import create_model
from pixeldiff.models.hub import from_pretrained, save_pretrained

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    model = create_model("tiny", width=4, side_channels=2, pattern="baseline")
    save_pretrained(model, tmp_path / "net")
    return tmp_path / "net"


def test_a_folder_gives_the_network_back(tmp_path):
    model = create_model("tiny", width=4, side_channels=2, pattern="cvvv").eval()
    save_pretrained(model, tmp_path / "a" / "b")
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["config.json", "model.safetensors"]
    again = from_pretrained(tmp_path / "a" / "b")
    assert again.config == model.config
    image = torch.randn(1, 3, 17, 24, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again(image), model(image))


def test_replaced_layers_are_not_saved_as_if_they_were_not(tmp_path):
    model = create_model("tiny", width=4)
    replace_convs(model, "central", share=0.2)
    with pytest.raises(UserError, match="layers of this network were replaced"):
        save_pretrained(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_mistakes_are_named(folder, tmp_path):
    with pytest.raises(UserError, match="is no folder with"):
        from_pretrained(tmp_path / "missing")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"config": config["config"] | {"width": 5}}))
    with pytest.raises(UserError, match="does not hold the weights"):
        from_pretrained(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="not a config of pixeldiff"):
        from_pretrained(folder)
    for wrong in ("[1]", "[" * 100_000, '{"family": [], "config": 3}'):
        (folder / "config.json").write_text(wrong)
        with pytest.raises(UserError):
            from_pretrained(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot make the folder"):
        save_pretrained(create_model("tiny", width=4, side_channels=2), tmp_path / "file" / "x")


def test_torch_hub_entry_points():
    model = torch.hub.load(str(ROOT), "pidinet_tiny_l", source="local", width=4)
    assert model.config.width == 4
    assert model.config.cdcm is False
