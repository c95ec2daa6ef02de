"""The authors' files load strictly, tell their variant, and are not believed."""

import zipfile

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.models import create_model
from pixeldiff.models.authors import infer_config
from pixeldiff.models.saving import load_model
from pixeldiff.nn.layers import PDConv2d

AUTHORS = {
    "table5_pidinet": (60, "carv" * 4, True, 710149),
    "table5_pidinet-small": (30, "carv" * 4, True, 183763),
    "table5_pidinet-tiny-l": (20, "carv" * 4, False, 73369),
    "table5_baseline": (60, "v" * 16, True, 710149),
}


@pytest.mark.parametrize("name", AUTHORS)
def test_authors_files_load_strictly_and_infer_their_variant(data, name):
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
    with pytest.raises(UserError, match="not a published one"):
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


def test_an_authors_file_that_lies_is_refused_before_it_is_built(tmp_path):
    state = {f"module.{key}": tensor for key, tensor in _as_trained("carv").items()}
    stem = state["module.stem.weight"]
    for changed, message in (
        (torch.zeros(1).expand(10**6, 3, 3, 3), "larger tensors than it holds"),
        (stem[:7].clone(), "holds weights of another network"),
        (stem.flatten(), "not 3x3 convolutions"),
        (torch.tensor(1.0), "not 3x3 convolutions"),
        (stem.to(torch.int32), "plain float tensors"),
        (stem.to_sparse(), "plain float tensors"),
        ("text", r"not a PiDiNet .pth file \(AttributeError\)"),
    ):
        torch.save({"state_dict": state | {"module.stem.weight": changed}}, tmp_path / "a.pth")
        with pytest.raises(UserError, match=message):
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
