"""The one outer shape of `--json`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pixeldiff.cli import _json, app
from pixeldiff.errors import UserError


def test_one_shape_on_stdout_and_in_a_file(tmp_path, capsys):
    expected = {"version": 1, "command": "eval", "seed": 3, "results": [{"name": "a"}], "failed": ["b"]}
    _json.write("-", "eval", [{"name": "a"}], ["b"], seed=3)
    assert json.loads(capsys.readouterr().out) == expected
    path = tmp_path / "r.json"
    _json.write(str(path), "eval", [{"name": "a"}], ["b"], seed=3)
    assert json.loads(path.read_text()) == expected
    assert capsys.readouterr().out == ""
    _json.write(None, "eval", [])
    assert capsys.readouterr().out == ""


def test_nothing_is_replaced_unasked(tmp_path):
    path = tmp_path / "r.json"
    _json.check(str(path), overwrite=False)
    path.write_text("mine")
    for refuse in (lambda: _json.check(str(path), False), lambda: _json.write(str(path), "eval", [])):
        with pytest.raises(UserError, match=r"r\.json exists; give another name or --overwrite"):
            refuse()
    assert path.read_text() == "mine"
    _json.write(str(path), "eval", [], overwrite=True)
    assert json.loads(path.read_text())["results"] == []
    with pytest.raises(UserError, match="make it first"):
        _json.check(str(tmp_path / "none" / "r.json"), False)
    with pytest.raises(UserError, match="is a folder; give the name of a file"):
        _json.check(str(tmp_path), overwrite=True)


@pytest.mark.parametrize("command", ["models", "recipes"])
def test_lists_go_into_files_as_results_do(command, tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [command, *map(str, arguments)])

    told = run("--json", tmp_path / "a.json")
    assert told.exit_code == 0
    assert max(map(len, told.output.splitlines())) <= 80
    assert json.loads((tmp_path / "a.json").read_text())["command"] == command
    assert isinstance(run("--json", tmp_path / "a.json").exception, UserError)
    assert run("--json", tmp_path / "a.json", "--overwrite").exit_code == 0
    assert isinstance(run("--json", tmp_path / "none" / "a.json").exception, UserError)
    assert not (tmp_path / "none").exists()


def test_one_recipe_fits_80_columns():
    for name in ("edges/patterns", "edges/tiny", "classes/cifar100"):
        *told, file, command = CliRunner().invoke(app, ["recipes", name]).output.splitlines()
        assert max(map(len, told)) <= 80
        assert (Path(file).suffix, command.split()[:3]) == (".toml", ["pixeldiff", "train", name])
