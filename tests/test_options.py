"""Options: what each kind accepts, and that one field of Look or Drawing reaches every front."""

import subprocess
import sys
from pathlib import Path

import pytest

from pixeldiff.errors import InputError
from pixeldiff.inference.edges import Look
from pixeldiff.options import Choice, Flag, Number, Numbers, Option, build
from pixeldiff.render.drawing import Drawing, provenance

ROOT = Path(__file__).parents[1]

KINDS = {
    "flag": (Flag(), {"true": True, "1": True, "FALSE": False}, ("", "yes", "2")),
    "choice": (Choice(("a", "b")), {"a": "a"}, ("", "c", "A")),
    "number": (Number(0, 1), {"0": 0, "1": 1, ".25": 0.25}, ("", "-0.1", "1.1", "nan", "inf", "none", "x")),
    "above": (Number(0, above=True), {"1e-9": 1e-9}, ("0", "-1", "inf")),
    "whole": (Number(16, whole=True, none=True), {"16": 16, "none": None}, ("15", "16.5", "1e3", "")),
    "numbers": (Numbers(Number(0, 8, above=True)), {"1": (1,), "0.5,1": (0.5, 1)}, ("", "1,", "0,1", "1;2")),
}


@pytest.mark.parametrize("name", KINDS)
def test_text_is_parsed_and_written(name):
    kind, valid, invalid = KINDS[name]
    option = Option("made_up", kind, None, "")
    for text, value in valid.items():
        assert option.parse(text) == value
        assert option.parse(kind.text(value)) == value
    for text in invalid:
        with pytest.raises(InputError, match="expected"):
            option.parse(text)


@pytest.mark.parametrize(
    ("cls", "field", "value"),
    [
        (Look, "max_size", 15),
        (Look, "max_size", True),
        (Look, "max_size", 2.5),
        (Look, "scales", ()),
        (Look, "scales", 1.0),
        (Look, "scales", (0,)),
        (Look, "flip", 1),
        (Drawing, "threshold", "0.5"),
        (Drawing, "threshold", float("nan")),
        (Drawing, "background", "blue"),
        (Drawing, "format", "bmp"),
        (Drawing, "line_width", 0),
    ],
)
def test_wrong_values_name_the_field(cls, field, value):
    with pytest.raises(InputError, match=f"invalid {field} "):
        cls(**{field: value})
    with pytest.raises(InputError, match="unknown option 'treshold'"):
        build({"treshold": 1}, Look, Drawing)


def test_provenance_holds_what_is_not_the_default():
    assert provenance("tiny", Look(), Drawing()) == "pixeldiff detect --model tiny"
    look = Look(max_size=None, scales=(0.5, 1), flip=True, sides=True)
    drawing = Drawing("jpg", 0.25, "white")
    assert provenance("tiny", look, drawing) == (
        "pixeldiff detect --model tiny --max-size none --scales 0.5,1 --flip "
        "--format jpg --threshold 0.25 --background white"
    )


MADE_UP = """
import dataclasses, sys
from pixeldiff.options import Number, option
from pixeldiff.render import drawing

Wider = dataclasses.make_dataclass(
    "Drawing",
    [("glow", float, option(Number(0, 9), 0.0, "Width of the glow, in pixels."))],
    bases=(drawing.Drawing,),
    frozen=True,
)
drawing.Drawing = Wider
"""


def run(program):
    """Run a program in whose process Drawing has one more field, glow."""
    command = [sys.executable, "-c", MADE_UP + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_field_reaches_the_command_line_and_provenance(tmp_path, edge_weights):
    photo = ROOT / "docs/images/coffee.jpg"
    words = ["detect", photo, "-o", tmp_path / "x.png", "--model", edge_weights, "--glow", "2.5"]
    run(f"""
from pixeldiff.cli import main
try:
    main({[str(word) for word in words]!r})
except SystemExit as stop:
    sys.exit(stop.code)
""")
    assert b"--glow 2.5" in (tmp_path / "x.png").read_bytes()


def test_one_field_reaches_the_server(edge_weights):
    pytest.importorskip("fastapi")
    out = run(f"""
from fastapi.testclient import TestClient
from pathlib import Path
from pixeldiff.serve.app import create_app
client = TestClient(create_app({{"tiny": Path({str(edge_weights)!r})}}))
photo = Path("docs/images/coffee.jpg").read_bytes()
print(*(client.post("/api/edges", params={{"glow": glow}}, content=photo).status_code for glow in ("1", "99")))
""")
    assert out.split() == ["200", "422"]


def test_one_field_reaches_the_node():
    pytest.importorskip("torch")
    out = run("""
import importlib.util
spec = importlib.util.spec_from_file_location("pack", "comfyui/__init__.py")
pack = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pack)
print(pack.PixeldiffEdges.INPUT_TYPES()["optional"]["glow"][0])
""")
    assert out.strip() == "FLOAT"
