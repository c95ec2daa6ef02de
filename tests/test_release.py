"""What a release rests on: one version, and files that tools of others read."""

import json
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import pixeldiff
from pixeldiff import weights
from pixeldiff.errors import UserError
from tests.extras import optional
from tests.scripts import load_script

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


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_there_is(path):
    jobs = optional("yaml").safe_load(path.read_text())["jobs"]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for job in jobs.values():
        assert job["runs-on"]
        assert set(job.get("needs", [])) <= jobs.keys() or job["needs"] in jobs
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            words = step.get("run", "").split()
            assert words[:1] != ["make"] or words[1] in targets
            for name in (word for word in words if word.startswith(("tools/", ".ci/", "docs/"))):
                assert (ROOT / name).exists()


def test_the_lowest_dependencies_are_those_of_the_project():
    pins = load_script("tools/matrix.py").lowest()
    assert len(pins) == 5
    assert all("==" in pin and ">=" not in pin.split(";")[0] for pin in pins)


def test_cibuildwheel_builds_for_every_python_that_is_allowed():
    text = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.10"' in text
    assert 'wheel.py-api = "cp312"' in text
    assert 'build = "cp310-* cp311-* cp312-*"' in text


def test_comfyui_finds_what_it_reads():
    project = (ROOT / "comfyui/pyproject.toml").read_text()
    assert re.search(r'^\[tool\.comfy\]\nPublisherId = "\w+"\nDisplayName = ".+"', project, re.M)
    needed = (ROOT / "comfyui/requirements.txt").read_text().split()
    assert f"dependencies = {json.dumps(needed)}" in project
