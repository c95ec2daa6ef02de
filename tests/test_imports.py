"""The two sentences of the design: the light world imports without torch, and arrows never point back."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pixeldiff

ROOT = Path(pixeldiff.__file__).parent
HEAVY = {"torch", "onnx", "onnxscript", "safetensors", "tensorboard", "tomli", "torchvision"}

# What a light room may itself know of: image and metrics are leaves, runtime stands on them, cli on everything.
ALLOWED = {
    "errors": set(),
    "weights": {"errors"},
    "unfinished": {"errors"},
    "image": {"errors", "unfinished"},
    "cifar": {"errors"},
    "folders": {"errors", "image"},
    "lbp": set(),
    "metrics": {"errors", "_native", "image", "folders"},
    "runtime": {"errors", "unfinished", "weights", "image", "metrics", "_native"},
    "video": {"errors", "unfinished", "image", "metrics", "runtime"},
    "serve": {"errors", "weights", "image", "runtime"},
    "corruptions": {"errors"},
    "robustness": {"errors", "image", "metrics", "corruptions"},
    "robustness_report": {"image", "metrics", "robustness"},
}
# The torch world in the order of its arrows; a module may use those before it, and the light world.
TORCH_ORDER = (
    "ops",
    "layers",
    "binary",
    "models",
    "checkpoint",
    "tasks",
    "analysis",
    "analysis_plots",
    "recipe",
    "journal",
    "run",
    "train",
    "export",
    "export_packed",
    "compare",
)
# Verbs that belong to the torch world or start it; each says so in words when torch is absent.
TORCH_VERBS = {"train", "data", "export", "complexity", "analyze", "robustness"}


# What may know both worlds, or nothing: the verbs, and drop-ins for others' programs.
BETWEEN = {"", "__main__", "cli", "compat"}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imported(path):
    """Every absolute module name that a file imports, at whatever depth."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add(node.module)
            # `from pixeldiff import image` names a module of ours, not an attribute.
            if node.module == "pixeldiff":
                names |= {f"pixeldiff.{alias.name}" for alias in node.names}
    return names


def rooms(names):
    """The top rooms of ours among imported names."""
    ours = {name.split(".")[1] for name in names if name.startswith("pixeldiff.")}
    return {room for room in ours if (ROOT / room).is_dir() or (ROOT / f"{room}.py").exists()}


MODULES = dict(modules())


def test_every_room_has_its_place():
    assert {name.split(".")[0] for name in MODULES} == {*ALLOWED, *TORCH_ORDER, *BETWEEN}


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in ALLOWED])
def test_light_rooms_know_only_what_stands_below_them(module):
    room = module.split(".")[0]
    names = imported(MODULES[module])
    assert not {name.split(".")[0] for name in names} & HEAVY
    assert rooms(names) <= ALLOWED[room] | {room}


LIGHT_VERBS = [name for name in MODULES if name.startswith("cli.") and name.split(".")[1] not in TORCH_VERBS]


@pytest.mark.parametrize("module", LIGHT_VERBS)
def test_light_verbs_do_not_reach_the_torch_world(module):
    names = imported(MODULES[module])
    assert not {name.split(".")[0] for name in names} & HEAVY
    assert not rooms(names) & set(TORCH_ORDER)


@pytest.mark.parametrize("room", TORCH_ORDER)
def test_arrows_of_the_torch_world_never_point_back(room):
    later = set(TORCH_ORDER[TORCH_ORDER.index(room) + 1 :]) | {"cli", "runtime"}
    if room == "export_packed":
        later -= {"runtime"}  # it runs the file that it has written, to compare it with the network
    for module, path in MODULES.items():
        if module.split(".")[0] == room:
            assert not rooms(imported(path)) & later, module


@pytest.mark.parametrize(
    "words",
    [
        ["train", "recipe.toml", "--out", "run"],
        ["data", "hed-bsds", "from", "to"],
        ["export", "net.safetensors", "--to", "net.onnx"],
        ["complexity", "tiny"],
        ["analyze", "net.safetensors", "--out", "figures"],
    ],
    ids=lambda words: words[0],
)
def test_verbs_of_the_torch_world_say_what_to_install(words, tmp_path):
    script = f"import sys; sys.modules['torch'] = None\nfrom pixeldiff.cli import main\nmain({words})"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs torch; install it with: pip install 'pixeldiff[" in done.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import pixeldiff",
        "from pixeldiff import EdgeDetector",
        "import pixeldiff.cli.detect",
        "import pixeldiff.compat.controlnet",
    ],
)
def test_light_imports_leave_torch_out(statement):
    script = f"{statement}\nimport sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
