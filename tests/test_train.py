"""The training loop on a small run: resuming, killing, full disks, broken losses, several processes, the command."""

import dataclasses
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pixeldiff.checkpoint import load_model, read_metadata
from pixeldiff.errors import UserError
from pixeldiff.recipe import Schedule, parse_recipe, tomllib
from pixeldiff.run import Positions, Run, hold
from pixeldiff.tasks.data import normalise
from pixeldiff.tasks.edge_data import list_pairs, read_pair
from pixeldiff.tasks.edges import robust_loss
from pixeldiff.train import learning_rate, train
from pixeldiff.weights import sha256

RECIPE = """
task = "edges"
seed = 3
[model]
name = "tiny"
width = 4
side_channels = 2
[data]
root = "{root}"
sources = ["photos:edges"]
flips = true
crop = 16
[schedule]
kind = "cosine"
epochs = {epochs}
warmup_steps = 2
[loop]
batch = 4
accumulate = 2
ema = 0.9
workers = {workers}
log_steps = 1
checkpoint_minutes = {minutes}
"""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are quickest on one thread, and a fork must not inherit a pool of them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def root(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Eight small pictures: a bright square and its outline."""
    for folder in ("photos", "edges"):
        (tmp_path / folder).mkdir()
    for k in range(8):
        image = rng.integers(0, 60, (24, 28, 3), dtype=np.uint8)
        label = np.zeros((24, 28), np.uint8)
        y, x = rng.integers(2, 8, 2)
        image[y : y + 10, x : x + 12] += 150
        label[y : y + 10, x : x + 12] = 255
        label[y + 1 : y + 9, x + 1 : x + 11] = 0
        Image.fromarray(image).save(tmp_path / f"photos/{k}.png")
        Image.fromarray(label).save(tmp_path / f"edges/{k}.png")
    return tmp_path


def recipe_text(root: Path, epochs: float = 3, workers: int = 0, minutes: float = 5, **_: object) -> str:
    return RECIPE.format(root=root, epochs=epochs, workers=workers, minutes=minutes)


def small_recipe(root: Path, **changes: object):
    table = tomllib.loads(recipe_text(root, **changes))
    for name, values in changes.items():
        if isinstance(values, dict):
            table[name] = {**table.get(name, {}), **values}
    return parse_recipe(table)


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in lines(out) if "loss" in line]


def assert_same_weights(one: Path, other: Path) -> None:
    a, b = load_file(one / "last.safetensors"), load_file(other / "last.safetensors")
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


def test_learning_rate() -> None:
    steps = Schedule()
    assert [learning_rate(steps, 1.0, s, 200) for s in (0, 99, 100, 159, 160, 199)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    cosine = Schedule(kind="cosine", warmup_steps=10)
    assert learning_rate(cosine, 1.0, 0, 100) == pytest.approx(0.1)
    assert learning_rate(cosine, 1.0, 50, 100) == pytest.approx(0.5)
    assert learning_rate(cosine, 1.0, 99, 100) < 0.001


def test_positions_cover_each_epoch_once(root: Path) -> None:
    recipe = small_recipe(root, loop={"batch": 6, "accumulate": 3})
    whole = Positions(9, recipe, 0, 6)
    keys = [key for batch in whole for key in batch]
    assert len(keys) == 36
    for epoch in range(4):
        assert sorted(index for e, index in keys if e == epoch) == list(range(9))
    # Two processes see the same pictures per forward pass as one, and a later start the same rest.
    halves = zip(Positions(9, recipe, 2, 6, 0, 2), Positions(9, recipe, 2, 6, 1, 2), strict=True)
    assert [one + other for one, other in halves] == list(whole)[2 * 3 :]
    # Forward passes that can be shared out are: two processes have half of 12 pictures, one at a time, each.
    single = small_recipe(root, loop={"batch": 12, "accumulate": 12})
    parts = [list(Positions(9, single, 0, 2, rank, 2)) for rank in (0, 1)]
    assert [len(part) for part in parts] == [12, 12]
    assert sorted(key for part in parts for keys in part for key in keys) == sorted(
        key for keys in Positions(9, single, 0, 2) for key in keys
    )
    with pytest.raises(UserError, match=r"loop.batch = 6 .* 4 processes"):
        Positions(9, recipe, 0, 6, 0, 4)


def test_learns_and_records(root: Path) -> None:
    recipe = small_recipe(
        root,
        epochs=10,
        optimizer={"lr": 0.02},
        loop={"evaluate_steps": 20, "preview_steps": 20, "log_steps": 10},
        evaluate={"sources": ["photos:edges"]},
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
    for pair in list_pairs(root, "photos:edges"):
        image, label = read_pair(pair)
        logits = model.side_logits(normalise(torch.from_numpy(image).permute(2, 0, 1)[None]))
        held_out.append(robust_loss(logits, torch.from_numpy(label)[None, None] / 255).item())
    assert scores[-1]["held_out_loss"] == pytest.approx(np.mean(held_out), rel=1e-4)


def test_checkpoints_from_before_a_key_existed_go_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = small_recipe(root, epochs=1)
    train(recipe, root / "run")
    state = torch.load(root / "run/checkpoint.pt", weights_only=True)
    del state["recipe"]["data"]["colour"], state["recipe"]["initial"]
    torch.save(state, root / "run/checkpoint.pt")
    capsys.readouterr()
    assert train(recipe, root / "run")
    assert "another" not in capsys.readouterr().err
    with pytest.raises(UserError, match="another data"):
        train(small_recipe(root, epochs=1, data={"colour": 0.1}), root / "run")


def test_weights_survive_a_failing_score(root: Path) -> None:
    for folder in ("held", "held-edges"):
        (root / folder).mkdir()
        (root / folder / "a.png").write_text("no picture")
    with pytest.raises(UserError, match="not a picture"):
        train(small_recipe(root, epochs=1, evaluate={"sources": ["held:held-edges"]}), root / "run")
    assert load_model(root / "run/weights/4.safetensors").config.width == 4


def test_small_windows_are_refused(root: Path) -> None:
    with pytest.raises(UserError, match=r"photos/\d.png .*gives 5x4 pixels.*data.scales"):
        train(small_recipe(root, data={"crop": 0, "scales": [0.18]}), root / "run")


def test_half_precision_learns_nearly_the_same(root: Path) -> None:
    train(small_recipe(root, epochs=1), root / "full")
    train(small_recipe(root, epochs=1, loop={"bf16": True}), root / "half")
    assert losses(root / "half") == pytest.approx(losses(root / "full"), rel=0.05)
    assert losses(root / "half") != losses(root / "full")


@pytest.mark.parametrize("last", [True, False])
def test_channels_last_reaches_the_first_layer(root: Path, last: bool) -> None:
    run = Run(small_recipe(root, loop={"channels_last": last}), root / "run", torch.device("cpu"))
    pictures, labels = run.task.collate([run.task[0, 0], run.task[0, 1]])
    wanted = torch.channels_last if last else torch.contiguous_format
    for layout in (torch.channels_last, torch.contiguous_format):  # as tasks may hand them over
        placed = run.placed(pictures.contiguous(memory_format=layout))
        assert placed.is_contiguous(memory_format=wanted)
        assert run.model.stem(placed.float()).is_contiguous(memory_format=wanted)
    assert torch.equal(run.placed(labels), labels)


def test_average_is_the_definition(root: Path) -> None:
    """theta' <- d theta' + (1 - d) theta, with d = min(ema, (1 + t) / (10 + t))."""
    run = Run(small_recipe(root), root, torch.device("cpu"))
    expected = {key: value.clone() for key, value in run.model.state_dict().items()}
    for step in (1, 2, 500):
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.add_(1.0)
        run.step = step
        run.update_average()
        decay = min(0.9, (1 + step) / (10 + step))
        now = run.model.state_dict()
        expected = {key: decay * value + (1 - decay) * now[key] for key, value in expected.items()}
    for key, value in run.average.state_dict().items():
        assert torch.allclose(value, expected[key], atol=1e-6), key


def test_resume_is_bit_equal(root: Path) -> None:
    """Half the run, then the rest with another number of workers: the same bits and the same journal."""
    train(small_recipe(root), root / "whole")
    half = small_recipe(root)
    stop_after(half, root / "parts", 5)
    assert train(small_recipe(root, workers=1), root / "parts")
    assert_same_weights(root / "whole", root / "parts")
    assert losses(root / "whole") == losses(root / "parts")


def stop_after(recipe, out: Path, step: int) -> None:
    """Run until `step` is recorded, then get SIGTERM, as from a scheduler."""
    from pixeldiff import journal

    class Stopping(journal.Journal):
        def advance(self, now: int, seconds: float) -> None:
            super().advance(now, seconds)
            if now == step:
                os.kill(os.getpid(), signal.SIGTERM)

    from pixeldiff import train as module

    original, module.Journal = module.Journal, Stopping
    try:
        assert not train(recipe, out)
    finally:
        module.Journal = original


def test_other_recipe_is_refused(root: Path) -> None:
    train(small_recipe(root, epochs=0.5), root / "run")
    with pytest.raises(UserError, match="another model"):
        train(small_recipe(root, model={"name": "tiny", "width": 5}), root / "run")
    with pytest.raises(UserError, match="already holds a run"):
        train(small_recipe(root), root / "run", resume=False)
    assert train(small_recipe(root, epochs=1), root / "run"), "a longer schedule may go on"
    assert train(small_recipe(root, epochs=0.5), root / "run"), "a shorter one has ended already"


def test_results_without_a_checkpoint_are_kept(root: Path) -> None:
    """The checkpoint is the large file that people delete."""
    recipe = small_recipe(root, epochs=0.5)
    train(recipe, root / "run")
    (root / "run/checkpoint.pt").unlink()
    before = (root / "run/last.safetensors").read_bytes()
    with pytest.raises(UserError, match="another seed"):
        train(dataclasses.replace(recipe, seed=4), root / "run")
    with pytest.raises(UserError, match="already holds a run"):
        train(recipe, root / "run", resume=False)
    assert (root / "run/last.safetensors").read_bytes() == before
    assert train(recipe, root / "run")
    again = load_file(root / "run/last.safetensors")
    (root / "run/last.safetensors").write_bytes(before)
    assert all(torch.equal(value, again[key]) for key, value in load_file(root / "run/last.safetensors").items())


def test_a_finished_run_has_weights(root: Path) -> None:
    recipe = small_recipe(root, epochs=0.5)
    train(recipe, root / "run")
    before = load_file(root / "run/last.safetensors")
    (root / "run/last.safetensors").unlink()
    assert train(recipe, root / "run")
    after = load_file(root / "run/last.safetensors")
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_other_pictures_are_refused(root: Path) -> None:
    train(small_recipe(root, epochs=0.5), root / "run")
    (root / "photos").rename(root / "moved")
    (root / "moved").rename(root / "photos")
    assert train(small_recipe(root, epochs=1), root / "run")
    for folder in ("photos", "edges"):
        (root / folder / "8.png").write_bytes((root / folder / "7.png").read_bytes())
    with pytest.raises(UserError, match="other pictures"):
        train(small_recipe(root, epochs=2), root / "run")


def test_one_process_at_a_time(root: Path) -> None:
    recipe = small_recipe(root, epochs=0.5)
    context = multiprocessing.get_context("fork")
    held = context.Event()

    def keep() -> None:
        with hold(root / "run"):
            held.set()
            time.sleep(60)

    other = context.Process(target=keep)
    other.start()
    held.wait()
    with pytest.raises(UserError, match="another process trains in"):
        train(recipe, root / "run")
    other.kill()
    other.join()
    assert train(recipe, root / "run")


def test_a_place_that_cannot_be_written_is_told_at_once(root: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write into .*\(Not a directory\)"):
        train(small_recipe(root), root / "photos/0.png/run")


def test_damaged_checkpoint_is_named(root: Path) -> None:
    (root / "run").mkdir()
    (root / "run/checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="is not a checkpoint"):
        train(small_recipe(root), root / "run")


def test_initial_weights(root: Path) -> None:
    train(small_recipe(root, epochs=0.5), root / "first")
    table = {"optimizer": {"lr": 1e-12}}
    recipe = small_recipe(root, epochs=0.5, **table)
    recipe = dataclasses.replace(recipe, initial=str(root / "first/last.safetensors"))
    train(recipe, root / "second")
    first, second = load_file(root / "first/last.safetensors"), load_file(root / "second/last.safetensors")
    described = read_metadata(root / "second/last.safetensors")
    assert described["initial_sha256"] == sha256(root / "first/last.safetensors")
    assert all(torch.allclose(first[k], second[k], atol=1e-7) for k in first)
    other = dataclasses.replace(small_recipe(root, model={"name": "tiny", "width": 5}), initial=recipe.initial)
    train(other, root / "wider")
    assert load_file(root / "wider/last.safetensors")["stem.weight"].shape[0] == 5
    plain = small_recipe(root, model={"name": "tiny", "pattern": "baseline"})
    other = dataclasses.replace(plain, initial=recipe.initial)
    with pytest.raises(UserError, match=r"another network.*narrower PiDiNet"):
        train(other, root / "third")
    other = dataclasses.replace(plain, initial="runs/none.safetensors")
    with pytest.raises(UserError, match=r"initial = 'runs/none.safetensors': no weights file.*trained before"):
        train(other, root / "third")
    with pytest.raises(UserError, match="another initial"):
        train(recipe, root / "first")
    (root / "first/last.safetensors").unlink()
    longer = dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, epochs=1.0))
    assert train(longer, root / "second"), "a run that has begun no longer needs them"
    assert read_metadata(root / "second/last.safetensors")["initial_sha256"] == described["initial_sha256"]


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_non_finite_stops_with_the_batch_named(root: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(root)
    stop_after(recipe, root / "run", 3)
    before = (root / "run/checkpoint.pt").read_bytes()
    from pixeldiff.tasks import edges

    original = edges.robust_loss

    def broken(logits, *rest):
        loss = original(logits, *rest)
        return loss * math.nan if where == "loss" else loss + (logits[0].sum() * 0).sqrt()

    monkeypatch.setattr(edges, "robust_loss", broken)
    with pytest.raises(UserError, match=rf"{where}.* at step 4.*photos/\d.png .rotation"):
        train(recipe, root / "run")
    assert (root / "run/checkpoint.pt").read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_survived(root: Path) -> None:
    """The temporary checkpoint is a link to a device that is always full: ENOSPC, as on a full disk."""
    recipe = small_recipe(root)
    stop_after(recipe, root / "run", 3)
    before = (root / "run/checkpoint.pt").read_bytes()
    (root / "run/checkpoint.tmp").symlink_to("/dev/full")
    longer = small_recipe(root)
    stop_after(longer, root / "run", 5)
    assert (root / "run/checkpoint.pt").read_bytes() == before
    assert any("not saved" in line.get("warning", "") for line in lines(root / "run"))
    assert train(recipe, root / "run")
    train(recipe, root / "whole")
    assert_same_weights(root / "whole", root / "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_at_the_end_is_not_called_done(root: Path) -> None:
    recipe = small_recipe(root, epochs=0.5)
    (root / "run").mkdir()
    (root / "run/checkpoint.tmp").symlink_to("/dev/full")
    assert not train(recipe, root / "run")
    assert (root / "run/last.safetensors").exists(), "weights come before the checkpoint that calls them finished"
    assert train(recipe, root / "run")


def command(root: Path, out: str, launcher: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", *launcher, "pixeldiff", "train", str(root / "recipe.toml"), "--out", str(root / out)]


QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def test_killed_five_times_ends_in_the_same_weights(root: Path) -> None:
    """kill -9 at random moments; checkpoints are written at every step."""
    recipe = small_recipe(root, epochs=12, minutes=0)
    train(recipe, root / "whole")
    chance = random.Random(0)
    for _ in range(5):
        # A fork, not a new interpreter: the test is about the run, not about importing torch six times.
        process = multiprocessing.get_context("fork").Process(target=train, args=(recipe, root / "killed"))
        begun = progress(root / "killed")
        process.start()
        while process.is_alive() and progress(root / "killed") < begun + 4:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.1)
        assert process.is_alive(), "the run ended before it could be killed"
        process.kill()
        process.join()
    assert train(recipe, root / "killed")
    assert_same_weights(root / "whole", root / "killed")
    assert losses(root / "whole") == losses(root / "killed")


def progress(out: Path) -> int:
    path = out / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_two_processes_give_the_same_losses(root: Path) -> None:
    (root / "recipe.toml").write_text(recipe_text(root, epochs=2))
    train(small_recipe(root, epochs=2), root / "one")
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    done = subprocess.run(command(root, "two", launcher), env=QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert losses(root / "two") == pytest.approx(losses(root / "one"), rel=1e-4)
    a, b = load_file(root / "one/last.safetensors"), load_file(root / "two/last.safetensors")
    assert all(torch.allclose(a[key], b[key], atol=1e-4) for key in a)


def test_command_says_mistakes_in_one_line(root: Path) -> None:
    (root / "recipe.toml").write_text(recipe_text(root).replace("crop", "crob"))
    done = subprocess.run(command(root, "run"), env=QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == ["pixeldiff: unknown key data.crob; did you mean crop?"]


def test_a_mistake_of_ours_in_a_worker_ends_the_run(root: Path) -> None:
    """The worker ignores signals: unless it is told to end, the process would wait for it for ever."""
    (root / "recipe.toml").write_text(recipe_text(root, workers=1))
    script = (
        "from pixeldiff.tasks import edge_data\nfrom pixeldiff.cli import main\n"
        "def broken(*_): raise RuntimeError('broken warp')\n"
        f"edge_data.warp = broken\nmain(['train', {str(root / 'recipe.toml')!r}, '--out', {str(root / 'run')!r}])"
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
    (line,) = [line for line in done.stderr.splitlines() if "pixeldiff:" in line]
    assert line.startswith("pixeldiff: ")
    assert line.endswith("is 5x5; make them the same size")
    assert "Traceback" not in done.stderr
