"""Weight files: ours round-trip, damaged ones are explained."""

import dataclasses
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.export.packed import pack_model
from pixeldiff.models import create_model
from pixeldiff.models.saving import load_model, load_with_description, read_metadata, save_model


def test_save_and_load(tmp_path):
    torch.manual_seed(0)
    model = create_model("tiny-l", pattern="cvvv").eval()
    save_model(model, tmp_path / "a.safetensors", {"license": "mine"})
    again = load_model(tmp_path / "a.safetensors")
    x = torch.randn(1, 3, 20, 30)
    assert again.config == model.config
    assert torch.equal(again(x), model(x))
    said = read_metadata(tmp_path / "a.safetensors")
    assert (said["license"], said["task"], said["family"]) == ("mine", "edges", "pidinet")
    assert said["preprocessing"] == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_damaged_and_foreign_files_are_explained(tmp_path):
    path = tmp_path / "a.safetensors"
    save_model(create_model("tiny-l"), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load_model(path)
    (tmp_path / "b.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match="not a PiDiNet"):
        load_model(tmp_path / "b.pth")
    torch.save({"state_dict": {"module.fc.weight": torch.zeros(2, 2)}}, tmp_path / "c.pth")
    with pytest.raises(UserError, match=r"not PiDiNet weights: stem\.weight is missing"):
        load_model(tmp_path / "c.pth")
    torch.save({"state_dict": [1, 2]}, tmp_path / "e.pth")
    with pytest.raises(UserError, match=r"not a PiDiNet .pth file \(AttributeError\)"):
        load_model(tmp_path / "e.pth")
    with pytest.raises(UserError, match="no weights file"):
        load_model(tmp_path / "missing.pth")
    save_file({"x": torch.zeros(1)}, tmp_path / "d.safetensors")
    with pytest.raises(UserError, match="not one of pixeldiff's"):
        load_model(tmp_path / "d.safetensors")
    for text, says in {
        "{": "not a JSON object",
        '{"family": "pidinet", "config": {"width": "a"}}': "cannot be built",
    }.items():
        save_file({"x": torch.zeros(1)}, tmp_path / "e.safetensors", {"pixeldiff": text})
        with pytest.raises(UserError, match=says):
            load_model(tmp_path / "e.safetensors")


def test_weights_of_another_config_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    save_model(create_model("tiny-l"), path)
    with safe_open(path, "pt") as file:
        described = file.metadata()
    save_file({k: v.contiguous() for k, v in create_model("small-l").state_dict().items()}, path, described)
    with pytest.raises(UserError, match="holds weights of another network: size mismatch"):
        load_model(path)


def test_a_packed_file_is_named_as_such(tmp_path):
    pack_model(create_model("resnet18_binary_cifar", width=0.125, classes=4).eval(), tmp_path / "net.pdn")
    with pytest.raises(UserError, match="is a packed network"):
        load_model(tmp_path / "net.pdn")
    (tmp_path / "tiny").mkdir()  # a folder of that name is no file
    with pytest.raises(UserError, match="is a folder; give the weights file"):
        load_model(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"width": 10**6}, "size mismatch for stem.weight"),  # 200 TB if believed
        ({"width": 10**30}, "cannot be built"),
        ({"side_channels": 10**7}, "size mismatch for sides"),
        ({"pattern": 5}, "cannot be built"),
        ({"cdcm": False}, "holds weights of another network"),
        ({"kernel": 3}, "unknown option kernel"),
    ],
)
def test_a_file_that_lies_about_its_network_costs_no_memory(tmp_path, change, says):
    model = create_model("tiny", width=4, side_channels=2)
    path = tmp_path / "a.safetensors"
    save_model(model, path)
    with safe_open(path, "pt") as file:
        described = json.loads(file.metadata()["pixeldiff"])
    described["config"] |= change
    save_file(model.state_dict(), path, {"pixeldiff": json.dumps(described)})
    with pytest.raises(UserError, match=says) as raised:
        load_model(path)
    assert "\n" not in str(raised.value)


def test_a_binary_network_that_lies_about_its_width(tmp_path):
    changes = {"fixed_lbp": "random", "width": 0.125, "classes": 3}
    model = create_model("resnet18_bipdc_cifar", **changes)
    path = tmp_path / "a.safetensors"
    save_model(model, path)
    assert load_model(path).config == model.config
    described = {"family": "bipidinet", "config": dataclasses.asdict(model.config) | {"width": 2000.0}}
    save_file(model.state_dict(), path, {"pixeldiff": json.dumps(described)})
    with pytest.raises(UserError, match="size mismatch"):
        load_model(path)


def test_descriptions_nested_beyond_reason_and_odd_types(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"pixeldiff": "[" * 100_000})
    with pytest.raises(UserError, match="not a JSON object"):
        load_model(path)
    model = create_model("tiny-l", width=4)
    state = model.state_dict() | {"stem.weight": model.stem.weight.detach().to(torch.int8)}
    described = {"family": "pidinet", "config": dataclasses.asdict(model.config)}
    save_file(state, path, {"pixeldiff": json.dumps(described)})
    with pytest.raises(UserError, match=r"holds stem.weight as I8"):
        load_model(path)


def test_older_files_say_less_and_still_load(tmp_path):
    model = create_model("tiny-l", width=4)
    path = tmp_path / "a.safetensors"
    described = {"family": "pidinet", "config": dataclasses.asdict(model.config)}
    save_file(model.state_dict(), path, {"pixeldiff": json.dumps(described)})
    again, said = load_with_description(path)
    assert again.config == model.config
    assert (said["name"], said["task"], said["preprocessing"]) == ("a", "edges", image.preprocessing())


def test_a_network_of_somebody_else_is_refused(tmp_path):
    with pytest.raises(UserError, match="Linear is not one of pixeldiff's networks"):
        save_model(torch.nn.Linear(2, 2), tmp_path / "a.safetensors")
