"""What a release rests on: one version, and files that tools of others read."""

import json
import os
import re
import shutil
import subprocess
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
        weights.training_file("bipdc-cifar100")


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


STUB = """#!{bash}
echo "{name} $* page=$PIXELDIFF_PAGE_TESTS" >> "$CALLS"
test "$FAILS" != "{name} $*"
"""


def run_ci(folder, *programs, **environment):
    """Run .ci/run where every program is a stub that notes its call: the result, and the calls."""
    for name in ("bash", "dirname", "mktemp", "cat"):
        (folder / name).symlink_to(shutil.which(name))
    for name in ("make", *programs):
        (folder / name).write_text(STUB.format(bash=shutil.which("bash"), name=name))
        (folder / name).chmod(0o755)
    (folder / "id").write_text(f"#!{shutil.which('bash')}\necho 0\n")
    (folder / "id").chmod(0o755)
    calls = folder / "calls"
    environment |= {"PATH": str(folder), "CALLS": str(calls), "TMPDIR": str(folder)}
    done = subprocess.run([ROOT / ".ci/run"], env=environment, capture_output=True, text=True)
    return done, calls.read_text().splitlines()


needs_bash = pytest.mark.skipif(not shutil.which("bash") or os.name == "nt", reason="bash is not installed")


@needs_bash
def test_ci_installs_builds_and_requires_the_page(tmp_path):
    done, calls = run_ci(tmp_path, "apt-get", CI="true")
    assert done.returncode == 0, done.stderr
    install = next(call for call in calls if call.startswith("apt-get install"))
    assert {"emscripten", "chromium"} <= set(install.split())
    assert calls.index(install) < calls.index("make web page=")
    assert calls[-1] == "make test page=required"


@needs_bash
def test_ci_fails_if_the_page_is_not_built(tmp_path):
    done, calls = run_ci(tmp_path, "apt-get", CI="true", FAILS="make web")
    assert done.returncode == 1
    assert "the page was not built" in done.stdout
    assert "make test page=required" not in calls


@needs_bash
@pytest.mark.parametrize(("programs", "environment"), [((), {"CI": "true"}), (("apt-get",), {})])
def test_ci_says_where_the_page_is_not_tested(programs, environment, tmp_path):
    done, calls = run_ci(tmp_path, *programs, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("note: ")
    assert calls == ["make test page="]


def test_a_workflow_tests_the_page():
    job = optional("yaml").safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["page"]
    assert job["env"] == {"PIXELDIFF_PAGE_TESTS": "required"}
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/page", "make test-page"]


def test_no_target_hides_a_failed_test():
    recipes = (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    assert not [line for line in recipes if "pytest" in line and ("||" in line or line.startswith("\t-"))]
