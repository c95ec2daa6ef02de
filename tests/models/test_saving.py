"""Weight files: ours round-trip, the authors' load strictly, damaged ones are explained."""

import dataclasses
import json
import zipfile

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pixeldiff.errors import UserError
from pixeldiff.export.packed import pack_model
from pixeldiff.models import create_model
from pixeldiff.models.saving import infer_config, load_model, read_metadata, save_model
from pixeldiff.nn.layers import PDConv2d

AUTHORS = {
    "table5_pidinet": (60, "carv" * 4, True, 710149),
    "table5_pidinet-small": (30, "carv" * 4, True, 183763),
    "table5_pidinet-tiny-l": (20, "carv" * 4, False, 73369),
    "table5_baseline": (60, "v" * 16, True, 710149),
}


def test_save_and_load(tmp_path):
    torch.manual_seed(0)
    model = create_model("tiny-l", pattern="cvvv").eval()
    save_model(model, tmp_path / "a.safetensors", {"licence": "mine"})
    again = load_model(tmp_path / "a.safetensors")
    x = torch.randn(1, 3, 20, 30)
    assert again.config == model.config
    assert torch.equal(again(x), model(x))
    assert read_metadata(tmp_path / "a.safetensors")["licence"] == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("name", AUTHORS)
def test_authors_files_load_strictly_and_tell_their_variant(data, name):
    width, pattern, full, count = AUTHORS[name]
    model = load_model(data / "pidinet-official" / f"{name}.pth")
    config = model.config
    assert (config.width, config.pattern, config.cdcm, config.csam) == (width, pattern, full, full)
    assert sum(p.numel() for p in model.parameters()) == count


def test_the_pattern_shows_in_the_dead_weights():
    torch.manual_seed(0)
    assert infer_config(_as_trained("carv")).pattern == "carv" * 4
    assert infer_config(_as_trained("r16")).pattern == "r" * 16
    with pytest.raises(UserError, match="could be c-v15 or a-v15"):
        infer_config(_as_trained("c-v15"))
    with pytest.raises(UserError, match="none of the published ones"):
        infer_config(_as_trained("cvca" * 4))
    assert infer_config(_as_trained("cvca" * 4), pattern="cvca" * 4).pattern == "cvca" * 4


def _as_trained(pattern):
    """Weights as the authors' training leaves them: those without effect have decayed to zero."""
    model = create_model("tiny", pattern=pattern)
    layers = [m for m in model.modules() if isinstance(m, PDConv2d)]
    for layer, letter in zip(layers, model.config.pattern, strict=True):
        for dead in {"c": [4], "a": [4], "r": [0], "v": []}[letter]:
            layer.weight.data.flatten(2)[:, :, dead] = 0
    return model.state_dict()


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
        "{": "no JSON object",
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
    with pytest.raises(UserError, match="no shipped weights named"):
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
    with pytest.raises(UserError, match="no JSON object"):
        load_model(path)
    model = create_model("tiny-l", width=4)
    state = model.state_dict() | {"stem.weight": model.stem.weight.detach().to(torch.int8)}
    described = {"family": "pidinet", "config": dataclasses.asdict(model.config)}
    save_file(state, path, {"pixeldiff": json.dumps(described)})
    with pytest.raises(UserError, match=r"holds stem.weight as I8"):
        load_model(path)


def test_an_authors_file_that_lies_is_refused_before_it_is_built(tmp_path):
    state = {f"module.{key}": tensor for key, tensor in _as_trained("carv").items()}
    stem = state["module.stem.weight"]
    for changed, says in (
        (torch.zeros(1).expand(10**6, 3, 3, 3), "larger tensors than it holds"),
        (stem[:7].clone(), "holds weights of another network"),
        (stem.flatten(), "no 3x3 convolutions"),
        (torch.tensor(1.0), "no 3x3 convolutions"),
        (stem.to(torch.int32), "plain float tensors"),
        (stem.to_sparse(), "plain float tensors"),
        ("text", r"not a PiDiNet .pth file \(AttributeError\)"),
    ):
        torch.save({"state_dict": state | {"module.stem.weight": changed}}, tmp_path / "a.pth")
        with pytest.raises(UserError, match=says):
            load_model(tmp_path / "a.pth")


def test_a_compressed_authors_file_is_refused(tmp_path):
    torch.save({"state_dict": {"zeros": torch.zeros(1000)}}, tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as old,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(UserError, match="compressed archive"):
        load_model(tmp_path / "b.pth")
