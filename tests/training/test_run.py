"""The state of a run: its place in the data, resuming, killing, locks, full disks, what may follow what."""

import dataclasses
import multiprocessing
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pixeldiff import files
from pixeldiff.cli import main
from pixeldiff.errors import OutputError, UserError
from pixeldiff.models import create_model
from pixeldiff.models.saving import read_metadata, save_model
from pixeldiff.training.loop import train
from pixeldiff.training.order import ResumableBatchSampler
from pixeldiff.training.recipe import Recipe
from pixeldiff.training.run import Run, lock_run_dir
from pixeldiff.weights import sha256
from tests.training.small_run import (
    EPOCH,
    FOLDERS,
    assert_same_weights,
    lines,
    losses,
    recipe_text,
    small_recipe,
    stop_after,
)


def test_positions_cover_each_epoch_once(root: Path) -> None:
    recipe = small_recipe(root, train={"batch_size": 2, "grad_accum_steps": 3})
    whole = ResumableBatchSampler(9, recipe, 0, 6)
    keys = [key for batch in whole for key in batch]
    assert len(keys) == 36
    for epoch in range(4):
        assert sorted(index for e, index in keys if e == epoch) == list(range(9))
    # Two processes see the same images per forward pass as one, and a later start the same rest.
    halves = zip(
        ResumableBatchSampler(9, recipe, 2, 6, 0, 2), ResumableBatchSampler(9, recipe, 2, 6, 1, 2), strict=True
    )
    assert [one + other for one, other in halves] == list(whole)[2 * 3 :]
    # Forward passes that can be shared out are: two processes have half of 12 images, one at a time, each.
    single = small_recipe(root, train={"batch_size": 1, "grad_accum_steps": 12})
    parts = [list(ResumableBatchSampler(9, single, 0, 2, rank, 2)) for rank in (0, 1)]
    assert [len(part) for part in parts] == [12, 12]
    assert sorted(key for part in parts for keys in part for key in keys) == sorted(
        key for keys in ResumableBatchSampler(9, single, 0, 2) for key in keys
    )
    with pytest.raises(UserError, match=r"train.batch_size = 2 .*grad_accum_steps = 3 .* 4 processes"):
        ResumableBatchSampler(9, recipe, 0, 6, 0, 4)


def test_average_is_the_definition(root: Path) -> None:
    """theta' <- d theta' + (1 - d) theta, with d = min(ema_decay, (1 + t) / (10 + t))."""
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
    log = {"train": {"log_every": 2}}  # stopped between two lines, whose losses are means over two steps
    train(small_recipe(root, **log), root / "whole")
    stop_after(small_recipe(root, **log), root / "parts", 2)
    assert train(small_recipe(root, **log, workers=1), root / "parts")
    assert_same_weights(root / "whole", root / "parts")
    assert len(losses(root / "whole")) == 6
    assert losses(root / "whole") == losses(root / "parts")


def test_soap_resumes_bit_equal_and_is_not_adam(root: Path) -> None:
    recipe = small_recipe(root, epochs=12, optimizer={"name": "soap"})  # 24 steps: the bases turn twice
    assert train(recipe, root / "whole")
    stop_after(recipe, root / "parts", 11)
    with pytest.raises(UserError, match=r"another optimizer\.name"):
        train(small_recipe(root, epochs=12), root / "parts")
    assert train(recipe, root / "parts")
    assert_same_weights(root / "whole", root / "parts")


def test_what_a_resumed_run_may_change_is_changed(root: Path) -> None:
    stop_after(small_recipe(root), root / "run", 2)
    other = small_recipe(root, optimizer={"betas": [0.5, 0.6], "weight_decay": 0.5})
    run = Run(other, root / "run", torch.device("cpu"))
    run.restore(run.read())
    assert [(g["betas"], g["weight_decay"]) for g in run.optimizer.param_groups] == [((0.5, 0.6), 0.5)]


def test_scores_of_another_kind_are_not_compared(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def recipe(epochs: float, thresholds: int) -> Recipe:
        return small_recipe(root, epochs=epochs, evaluate={"sources": [FOLDERS], "thresholds": thresholds})

    train(recipe(0.5, 3), root / "run")
    state = torch.load(root / "run/checkpoint.pt", weights_only=True)
    torch.save({**state, "best": 1.0}, root / "run/checkpoint.pt")
    train(recipe(1, 3), root / "run")
    assert read_metadata(root / "run/best.safetensors")["steps"] == 2, "1.0 was better"
    train(recipe(1.5, 4), root / "run")
    assert read_metadata(root / "run/best.safetensors")["steps"] == 6
    assert "another schedule, optimizer, train or evaluate" in capsys.readouterr().err


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


def test_other_recipe_is_refused(root: Path) -> None:
    train(small_recipe(root, epochs=0.5), root / "run")
    with pytest.raises(UserError, match="another model"):
        train(small_recipe(root, model={"name": "tiny", "width": 5}), root / "run")
    with pytest.raises(UserError, match="already holds a run"):
        train(small_recipe(root), root / "run", resume=False)
    assert train(small_recipe(root, epochs=1), root / "run"), "a longer schedule may go on"
    assert train(small_recipe(root, epochs=0.5), root / "run"), "a shorter one has ended already"


def test_checkpoints_from_before_a_key_existed_go_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = small_recipe(root, epochs=1)
    train(recipe, root / "run")
    state = torch.load(root / "run/checkpoint.pt", weights_only=True)
    del state["recipe"]["augment"]["color_jitter"], state["recipe"]["init_from"]
    torch.save(state, root / "run/checkpoint.pt")
    capsys.readouterr()
    assert train(recipe, root / "run")
    assert "another" not in capsys.readouterr().err
    with pytest.raises(OutputError, match="another augment"):
        train(small_recipe(root, epochs=1, augment={"color_jitter": 0.1}), root / "run")


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


def test_other_images_are_refused(root: Path) -> None:
    train(small_recipe(root, epochs=0.5), root / "run")
    (root / "photos").rename(root / "moved")
    (root / "moved").rename(root / "photos")
    assert train(small_recipe(root, epochs=1), root / "run")
    for folder in ("photos", "edges"):
        (root / folder / "8.png").write_bytes((root / folder / "7.png").read_bytes())
    with pytest.raises(UserError, match="other images"):
        train(small_recipe(root, epochs=2), root / "run")


def test_one_process_at_a_time(root: Path) -> None:
    recipe = small_recipe(root, epochs=0.5)
    context = multiprocessing.get_context("fork")
    held = context.Event()

    def keep() -> None:
        with lock_run_dir(root / "run"):
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
    recipe = dataclasses.replace(recipe, init_from=str(root / "first/last.safetensors"))
    train(recipe, root / "second")
    first, second = load_file(root / "first/last.safetensors"), load_file(root / "second/last.safetensors")
    described = read_metadata(root / "second/last.safetensors")
    assert described["lineage"]["init_from"] == sha256(root / "first/last.safetensors")
    assert all(torch.allclose(first[k], second[k], atol=1e-7) for k in first)
    other = dataclasses.replace(small_recipe(root, model={"name": "tiny", "width": 5}), init_from=recipe.init_from)
    train(other, root / "wider")
    assert load_file(root / "wider/last.safetensors")["stem.weight"].shape[0] == 5
    plain = small_recipe(root, model={"name": "tiny", "pattern": "baseline"})
    other = dataclasses.replace(plain, init_from=recipe.init_from)
    with pytest.raises(UserError, match=r"does not fit \[model\].*or of a narrower one"):
        train(other, root / "third")
    other = dataclasses.replace(plain, init_from="runs/none.safetensors")
    with pytest.raises(UserError, match=r"init_from = 'runs/none.safetensors': no weights file.*pretrained model"):
        train(other, root / "third")
    with pytest.raises(UserError, match="another init_from"):
        train(recipe, root / "first")
    (root / "first/last.safetensors").unlink()
    longer = dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, samples=EPOCH))
    assert train(longer, root / "second"), "a run that has begun no longer needs them"
    assert read_metadata(root / "second/last.safetensors")["lineage"]["init_from"] == described["lineage"]["init_from"]


@pytest.mark.parametrize("place", ["best.safetensors", "weights/60.safetensors"])
def test_a_run_does_not_replace_what_it_starts_from(root: Path, place: str) -> None:
    source = root / "mine" / place
    source.parent.mkdir(parents=True)
    recipe = small_recipe(root, epochs=0.25)
    save_model(create_model(**recipe.model), source)
    before = source.read_bytes()
    with pytest.raises(OutputError, match="choose another output folder"):
        train(dataclasses.replace(recipe, init_from=str(source)), root / "mine")
    assert source.read_bytes() == before
    assert train(dataclasses.replace(recipe, init_from=str(source)), root / "mine/next")


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next checkpoint is written through a link to a device that is always full: ENOSPC, as on a full disk."""
    name, left = files.name_unfinished, [1]

    def full_once(target: Path, suffix: str = "") -> Path:
        unfinished = name(target, suffix)
        if target.name == "checkpoint.pt" and left:
            left.pop()
            unfinished.symlink_to("/dev/full")
        return unfinished

    monkeypatch.setattr(files, "name_unfinished", full_once)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_survived(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(root)
    stop_after(recipe, root / "run", 3)
    before = (root / "run/checkpoint.pt").read_bytes()
    fill_disk(monkeypatch)
    longer = small_recipe(root)
    stop_after(longer, root / "run", 5)
    assert (root / "run/checkpoint.pt").read_bytes() == before
    assert any("not saved" in line.get("warning", "") for line in lines(root / "run"))
    assert train(recipe, root / "run")
    train(recipe, root / "whole")
    assert_same_weights(root / "whole", root / "run")


def test_a_best_score_without_its_weights_is_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the first score is taken, and free again for the second, which is no better."""
    scores = iter([{"ods": 0.5}, {"ods": 0.5}])
    monkeypatch.setattr("pixeldiff.training.tasks.edges.Task.evaluate", lambda *_: next(scores))
    save = Run.save_weights

    def full(run: Run, name: str) -> None:
        if run.step == 2 and name.startswith("best"):
            raise OSError("No space left on device")
        save(run, name)

    monkeypatch.setattr(Run, "save_weights", full)
    train(small_recipe(root, epochs=1, train={"eval_every": 2}), root / "run")
    assert read_metadata(root / "run/best.safetensors")["steps"] == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_at_the_end_is_not_called_done(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_recipe(root, epochs=0.5)
    fill_disk(monkeypatch)
    assert not train(recipe, root / "run")
    assert (root / "run/last.safetensors").exists(), "weights come before the checkpoint that calls them finished"
    assert train(recipe, root / "run")


def test_leftovers_of_a_killed_run_are_cleaned(root: Path) -> None:
    (root / "run/weights").mkdir(parents=True)
    left = [".pixeldiff-00000000-77-00000000.tmp", "weights/.pixeldiff-00000000-77-00000001.tmp"]
    for name in (*left, "my.tmp"):
        (root / "run" / name).write_bytes(b"half")
    train(small_recipe(root, epochs=0.5), root / "run")
    assert sorted(path.name for path in (root / "run").rglob("*.tmp")) == ["my.tmp"]


def test_a_disk_without_room_is_told_before_training(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 500, 500))
    with pytest.raises(UserError, match=r"space for 0.0 MB, and a checkpoint .* free some space"):
        train(small_recipe(root), root / "run")


def test_a_run_without_any_checkpoint_says_so(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def full(_: Run) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Run, "save", full)
    (root / "recipe.toml").write_text(recipe_text(root, epochs=0.5))
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(root / "recipe.toml"), "-o", str(root / "run")])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "stopping now loses the run" in said
    assert "nothing to resume" in said.splitlines()[-1]
