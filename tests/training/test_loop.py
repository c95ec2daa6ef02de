"""The training loop on a small run: learning, broken losses, several processes, the command."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pixeldiff.errors import UserError
from pixeldiff.models.saving import load_model, read_metadata
from pixeldiff.training.loop import train
from pixeldiff.training.run import Run
from pixeldiff.training.schedule import Schedule, learning_rate
from pixeldiff.training.tasks.edge_sources import Source, list_pairs, read_pair
from pixeldiff.training.tasks.edges import Task, robust_loss
from pixeldiff.training.tasks.images import normalize
from tests.training.small_run import FOLDERS, command, lines, losses, recipe_text, small_recipe, stop_after

QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def test_learning_rate() -> None:
    steps = Schedule(200)
    assert [learning_rate(steps, 1.0, s, 200) for s in (0, 99, 100, 159, 160, 199)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    cosine = Schedule(100, "cosine", warmup_steps=10)
    assert learning_rate(cosine, 1.0, 0, 100) == pytest.approx(0.1)
    assert learning_rate(cosine, 1.0, 50, 100) == pytest.approx(0.5)
    assert learning_rate(cosine, 1.0, 99, 100) < 0.001


def test_learns_and_records(root: Path) -> None:
    recipe = small_recipe(
        root,
        epochs=10,
        optimizer={"lr": 0.02},
        train={"eval_every": 20, "preview_every": 20, "log_every": 10},
        evaluate={"sources": [FOLDERS]},
    )
    assert train(recipe, root / "run")
    found = losses(root / "run")
    assert len(found) == 4
    assert found[-1] < 0.8 * found[0]
    scores = [line for line in lines(root / "run") if "ods" in line]
    assert [line["step"] for line in scores] == [20, 40]
    assert 0 < scores[-1]["ods"] < 1
    assert (root / "run/previews/0000020.png").exists()
    assert list((root / "run/tensorboard").iterdir())
    described = read_metadata(root / "run/best.safetensors")
    assert described["recipe"]["seed"] == 3
    assert described["task"] == "edges"
    model = load_model(root / "run/last.safetensors")
    assert model.config.width == 4
    held_out = []
    for pair in list_pairs(root, Source(**FOLDERS)):
        image, label = read_pair(pair)
        logits = model.side_logits(normalize(torch.from_numpy(image).permute(2, 0, 1)[None]))
        held_out.append(robust_loss(logits, torch.from_numpy(label)[None, None] / 255).item())
    assert scores[-1]["held_out_loss"] == pytest.approx(np.mean(held_out), rel=1e-4)


def test_the_rate_is_that_of_the_steps_and_the_last_losses_are_recorded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock by which a forward pass takes a second and scoring a thousand."""
    now = [0.0]
    loss = Task.loss

    def second(*arguments: Any) -> torch.Tensor:
        now[0] += 1
        return loss(*arguments)

    def score(*_: Any) -> dict[str, float]:
        now[0] += 1000
        return {}

    monkeypatch.setattr(Task, "loss", second)
    monkeypatch.setattr(Task, "evaluate", score)
    monkeypatch.setattr("pixeldiff.training.loop.time", SimpleNamespace(monotonic=lambda: now[0]))
    train(small_recipe(root, epochs=1.25, train={"eval_every": 2, "log_every": 2}), root / "run")
    logged = [(line["step"], line["images_per_second"]) for line in lines(root / "run")]
    assert logged == [(2, 2.0), (4, 2.0), (5, 2.0)]  # four images in two forward passes


def test_weights_survive_a_failing_score(root: Path) -> None:
    for folder in ("held", "held-edges"):
        (root / folder).mkdir()
        (root / folder / "a.png").write_text("no image")
    with pytest.raises(UserError, match="not an image"):
        train(
            small_recipe(
                root, epochs=1, evaluate={"sources": [{"type": "folders", "images": "held", "labels": "held-edges"}]}
            ),
            root / "run",
        )
    assert load_model(root / "run/weights/4.safetensors").config.width == 4


def test_small_windows_are_refused(root: Path) -> None:
    with pytest.raises(UserError, match=r"photos/\d.png .*gives 5x4 pixels.*augment.scale"):
        train(small_recipe(root, augment={"crop": 0, "scale": [0.18]}), root / "run")


def test_half_precision_learns_nearly_the_same(root: Path) -> None:
    train(small_recipe(root, epochs=1), root / "full")
    train(small_recipe(root, epochs=1, train={"precision": "bf16"}), root / "half")
    assert losses(root / "half") == pytest.approx(losses(root / "full"), rel=0.05)
    assert losses(root / "half") != losses(root / "full")


@pytest.mark.parametrize("last", [True, False])
def test_channels_last_reaches_the_first_layer(root: Path, last: bool) -> None:
    run = Run(small_recipe(root, train={"channels_last": last}), root / "run", torch.device("cpu"))
    images, labels, _ = run.task.train_data.collate([run.task.train_data[key] for key in ((0, 0), (0, 1))])
    wanted = torch.channels_last if last else torch.contiguous_format
    for layout in (torch.channels_last, torch.contiguous_format):  # as tasks may hand them over
        placed = run.placed(images.contiguous(memory_format=layout))
        assert placed.is_contiguous(memory_format=wanted)
        assert run.model.stem(placed.float()).is_contiguous(memory_format=wanted)
    assert torch.equal(run.placed(labels), labels)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_non_finite_stops_with_the_batch_named(root: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(root)
    stop_after(recipe, root / "run", 3)
    before = (root / "run/checkpoint.pt").read_bytes()
    from pixeldiff.training.tasks import edges

    original = edges.robust_loss

    def broken(logits, *rest):
        loss = original(logits, *rest)
        return loss * math.nan if where == "loss" else loss + (logits[0].sum() * 0).sqrt()

    monkeypatch.setattr(edges, "robust_loss", broken)
    with pytest.raises(UserError, match=rf"{where}.* at step 4.*photos/\d.png .rotation"):
        train(recipe, root / "run")
    assert (root / "run/checkpoint.pt").read_bytes() == before


def test_a_signal_stops_the_command_with_its_own_exit_code(root: Path) -> None:
    """SIGTERM twice, as under torchrun, which passes on what its processes were sent already."""
    (root / "recipe.toml").write_text(recipe_text(root, epochs=1000))
    process = subprocess.Popen(command(root, "run"), env=QUIET, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not (root / "run/metrics.jsonl").exists():
        time.sleep(0.05)
    for _ in range(2):
        process.terminate()
    said, _ = process.communicate()
    assert (process.returncode, said) == (130, "stopped; to resume, run the same command again\n")
    assert (root / "run/checkpoint.pt").exists()


def test_two_processes_give_the_same_losses(root: Path) -> None:
    (root / "recipe.toml").write_text(recipe_text(root, epochs=2))
    train(small_recipe(root, epochs=2), root / "one")
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    done = subprocess.run(command(root, "two", launcher), env=QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert losses(root / "two") == pytest.approx(losses(root / "one"), rel=1e-4)
    a, b = load_file(root / "one/last.safetensors"), load_file(root / "two/last.safetensors")
    assert all(torch.allclose(a[key], b[key], atol=1e-4) for key in a)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads of Linux")
def test_no_thread_of_the_group_is_left_when_python_ends(root: Path) -> None:
    """Such a thread may abort a process whose work is done."""
    script = root / "script.py"
    script.write_text(
        "import pathlib, torch\nfrom pixeldiff.training.processes import Processes\n"
        "def group(): return any('gloo' in p.read_text() for p in pathlib.Path('/proc/self/task').glob('*/comm'))\n"
        "with Processes():\n"
        "    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))\n    assert group()\n"
        "assert not group()\n"
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, str(script)], env=QUIET, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_command_says_mistakes_in_one_line(root: Path) -> None:
    (root / "recipe.toml").write_text(recipe_text(root).replace("crop", "crob"))
    done = subprocess.run(command(root, "run"), env=QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == ["error: unknown key augment.crob; did you mean crop?"]


def test_a_mistake_of_ours_in_a_worker_ends_the_run(root: Path) -> None:
    """The worker ignores signals: unless it is told to end, the process would wait for it for ever."""
    (root / "recipe.toml").write_text(recipe_text(root, workers=1))
    script = (
        "from pixeldiff.training.tasks import edge_pairs\nfrom pixeldiff.cli import main\n"
        "def broken(*_): raise RuntimeError('broken warp')\n"
        f"edge_pairs.warp = broken\nmain(['train', {str(root / 'recipe.toml')!r}, '-o', {str(root / 'run')!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=QUIET, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "broken warp" in done.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_a_wrong_label_is_one_line(root: Path, workers: int) -> None:
    Image.new("L", (5, 5)).save(root / "edges/3.png")
    (root / "recipe.toml").write_text(recipe_text(root, workers=workers))
    done = subprocess.run(command(root, "run"), env=QUIET, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert line.startswith("error: ")
    assert line.endswith("is 5x5; make them the same size")
    assert "Traceback" not in done.stderr
