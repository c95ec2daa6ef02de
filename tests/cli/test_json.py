"""The one outer shape of `--json`."""

import json

import pytest

from pixeldiff.cli import _json
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
