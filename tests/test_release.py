"""What a release rests on: one version, and files that tools of others read."""

import json
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import pixeldiff
from pixeldiff import weights
from pixeldiff.errors import UserError

ROOT = Path(__file__).parents[1]
VERSION = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]


def test_the_version_is_the_same_everywhere():
    citation = re.search(r"^version: (.*)", (ROOT / "CITATION.cff").read_text(), re.M)
    comfyui = re.search(r'^version = "(.*)"', (ROOT / "comfyui/pyproject.toml").read_text(), re.M)
    page = json.loads((ROOT / "web/package.json").read_text())["version"]
    assert {citation[1], comfyui[1], page, pixeldiff.__version__, version("pixeldiff")} == {VERSION}
    assert f"## {VERSION} " in (ROOT / "CHANGELOG.md").read_text()


def test_sources_on_the_path_have_a_version_too(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    assert pixeldiff.__version__ == "0+sources"


def test_a_file_that_the_wheels_leave_out_is_told(monkeypatch, tmp_path):
    card = weights.FOLDER / "bipdc-cifar100.json"
    (tmp_path / card.name).write_bytes(card.read_bytes())
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"bipdc-cifar100\.safetensors is not part of the wheels; pip install"):
        weights.trained("bipdc-cifar100")
