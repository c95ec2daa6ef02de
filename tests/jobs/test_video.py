"""Videos: frames, times, sound, rotation, corruption and interruption, on small clips."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from pixeldiff import cli
from pixeldiff.files import is_result
from pixeldiff.inference.edges import EdgeNetwork, Look, detect_edges
from pixeldiff.inference.sizes import input_size
from pixeldiff.jobs.video import detect_video
from pixeldiff.render.drawing import Drawing, draw

MS = Fraction(1, 1000)


def make_clip(path, times=None, size=(48, 64), audio=True, codec="libx264", between=0, shape=None, title=""):
    """Make a clip of a bar that moves over noise, one frame per time in milliseconds, with a tone."""
    times = [40 * k for k in range(12)] if times is None else times
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        if title:
            container.metadata["title"] = title
        video = container.add_stream(codec, rate=25, options={"bf": str(between)})
        video.height, video.width = size
        if shape:
            video.codec_context.sample_aspect_ratio = shape
        video.pix_fmt = "yuv420p" if size[0] % 2 == size[1] % 2 == 0 else "yuv444p"
        video.codec_context.time_base = MS
        sound = container.add_stream("aac", rate=16000, layout="mono") if audio else None
        noise = rng.integers(0, 60, (*size, 3), dtype=np.uint8)
        for k, when in enumerate(times):
            image = noise.copy()
            left = (2 + 3 * k) % size[1]
            image[:, left : left + 10] = 220
            image[: size[0] // 4] = (250, 30, 30)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = when, MS
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if sound is not None:
            wave = np.sin(np.arange(16 * (times[-1] + 40)) / 9).astype(np.float32)[None]
            frame = av.AudioFrame.from_ndarray(wave, format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 16000, 0, Fraction(1, 16000)
            container.mux(sound.encode(frame))
            container.mux(sound.encode(None))
    return path


def read_clip(path):
    """(frames as RGB arrays, times in seconds, audio packets as bytes, duration in seconds)"""
    with av.open(str(path)) as container:
        decoded = [(frame.to_ndarray(format="rgb24"), frame.time) for frame in container.decode(video=0)]
        duration = container.duration / 1e6
    with av.open(str(path)) as container:
        audio = (
            [bytes(p) for p in container.demux(container.streams.audio) if p.size] if container.streams.audio else []
        )
    return [one[0] for one in decoded], [one[1] for one in decoded], audio, duration


@pytest.fixture(scope="module")
def network(edge_weights):
    return EdgeNetwork(edge_weights, threads=1)


@pytest.fixture
def clip(tmp_path):
    return make_clip(tmp_path / "clip.mp4")


def test_frames_times_and_sound_are_those_of_the_clip(network, clip, tmp_path):
    report = detect_video(network, clip, tmp_path / "out.mp4", streams=2)
    assert (report.frames, report.damaged, report.audio, report.size) == (12, 0, "copied", (48, 64))
    frames, times, audio, duration = read_clip(clip)
    edges, edge_times, edge_audio, edge_duration = read_clip(tmp_path / "out.mp4")
    assert edge_times == times
    assert edge_audio == audio
    assert edge_duration == pytest.approx(duration, abs=0.001)
    for frame, found in zip(frames, edges, strict=True):
        expected = 255 * network(frame)
        # What the encoder of the new file loses.
        assert np.abs(found.mean(axis=2) - expected).mean() < 6
    assert sorted(os.listdir(tmp_path)) == ["clip.mp4", "out.mp4"]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_variable_frame_rates_are_kept(suffix, network, tmp_path):
    times = [0, 10, 50, 60, 400, 410, 900]
    source = make_clip(tmp_path / f"clip{suffix}", times, audio=False)
    detect_video(network, source, tmp_path / f"out{suffix}")
    first, then = read_clip(source), read_clip(tmp_path / f"out{suffix}")
    np.testing.assert_allclose(then[1], np.array(times) / 1000, atol=1e-3)
    assert then[3] == pytest.approx(first[3], abs=0.002)


def test_times_that_do_not_increase_are_repaired(network, tmp_path):
    """AVI keeps no times, so those of B-frames come out of order; joined files begin again at zero."""
    make_clip(tmp_path / "b.avi", audio=False, between=2)
    part = make_clip(tmp_path / "part.ts", audio=False).read_bytes()
    (tmp_path / "joined.ts").write_bytes(part + part)
    for name, frames in (("b.avi", 12), ("joined.ts", 24)):
        report = detect_video(network, tmp_path / name, tmp_path / "out.mp4")
        times = read_clip(tmp_path / "out.mp4")[1]
        assert (report.frames, len(times)) == (frames, frames)
        assert times == sorted(set(times))


def test_odd_sizes(network, tmp_path):
    source = make_clip(tmp_path / "clip.mkv", [0, 40, 80], size=(33, 47))
    assert detect_video(network, source, tmp_path / "out.mp4").size == (33, 47)
    assert read_clip(tmp_path / "out.mp4")[0][0].shape == (33, 47, 3)


def test_webm_without_sound_it_cannot_hold(network, clip, tmp_path):
    report = detect_video(network, clip, tmp_path / "out.webm")
    assert (report.frames, report.audio) == (12, "left out")
    assert len(read_clip(tmp_path / "out.webm")[0]) == 12


def test_rotated_clips_come_out_unrotated(network, tmp_path):
    source = make_clip(tmp_path / "clip.mp4", [0, 40, 80], audio=False, shape=Fraction(4, 3))
    # The track header's matrix: a quarter turn clockwise instead of none.
    one, zero = (1 << 16).to_bytes(4, "big"), bytes(4)
    plain = one + zero + zero + zero + one + zero
    turned = zero + one + zero + (-(1 << 16)).to_bytes(4, "big", signed=True) + zero + zero
    content = source.read_bytes()
    header = content.index(b"tkhd")
    place = content.index(plain, header)
    source.write_bytes(content[:place] + turned + content[place + len(plain) :])
    report = detect_video(network, source, tmp_path / "out.mp4")
    assert report.size == (64, 48)
    assert aspect(tmp_path / "out.mp4") == Fraction(3, 4)
    stored, found = read_clip(source)[0][0], read_clip(tmp_path / "out.mp4")[0][0]
    expected = 255 * network(np.rot90(stored, -1))
    assert np.abs(found.mean(axis=2) - expected).mean() < 6


def aspect(path):
    with av.open(str(path)) as container:
        return container.streams.video[0].sample_aspect_ratio


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_pixels_keep_their_shape(suffix, network, tmp_path):
    source = make_clip(tmp_path / f"clip{suffix}", [0, 40, 80], audio=False, shape=Fraction(4, 3))
    assert aspect(source) == Fraction(4, 3)
    detect_video(network, source, tmp_path / f"out{suffix}")
    assert aspect(tmp_path / f"out{suffix}") == Fraction(4, 3)


def test_temporal_smoothing_mixes_with_the_map_before(network, clip, tmp_path):
    detect_video(network, clip, tmp_path / "out.mp4", smoothing=0.75)
    expected = None
    for frame, found in zip(read_clip(clip)[0], read_clip(tmp_path / "out.mp4")[0], strict=True):
        edges = network(frame)
        expected = edges if expected is None else 0.75 * expected + 0.25 * edges
        assert np.abs(found.mean(axis=2) - 255 * expected).mean() < 6


def psnr(first, second):
    """Compare the brightness of two images; videos hold colors at half the resolution."""
    difference = (first.astype(float) - second) @ (0.299, 0.587, 0.114)
    return 10 * np.log10(255**2 / np.mean(difference**2))


@pytest.mark.parametrize("background", ["white", "photo"])
@pytest.mark.parametrize("smoothing", [0, 0.5])
def test_frames_are_drawn_as_images(background, smoothing, network, tmp_path):
    """The first frame has no map before it, so smoothing does not change it."""
    source = make_clip(tmp_path / "clip.mp4", [0], size=(96, 160), audio=False)
    look, drawing = Look(max_size=64, nms=True), Drawing(threshold=0.3, background=background)
    detect_video(network, source, tmp_path / "out.mkv", look, drawing, smoothing)
    (frame,), (drawn,) = read_clip(source)[0], read_clip(tmp_path / "out.mkv")[0]
    expected = np.asarray(draw(detect_edges(network, frame, look), drawing, frame).convert("RGB"))
    without_lines = frame if background == "photo" else np.full_like(frame, 255)
    assert psnr(drawn, expected) > psnr(drawn, without_lines) + 6


def test_corrupt_frames_are_counted(network, tmp_path):
    source = make_clip(tmp_path / "clip.mkv", [40 * k for k in range(30)], audio=False, codec="mpeg4")
    content = bytearray(source.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 300] = bytes(range(256)) + bytes(44)
    source.write_bytes(bytes(content))
    report = detect_video(network, source, tmp_path / "out.mp4")
    assert report.damaged > 0
    assert 15 <= report.frames <= 30
    assert len(read_clip(tmp_path / "out.mp4")[0]) == report.frames


def test_a_truncated_clip_gives_its_frames(network, tmp_path):
    source = make_clip(tmp_path / "clip.mkv", [40 * k for k in range(30)])
    source.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    report = detect_video(network, source, tmp_path / "out.mp4")
    assert 0 < report.frames < 30
    assert len(read_clip(tmp_path / "out.mp4")[0]) == report.frames


@pytest.fixture
def run(edge_weights, capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(["detect", *map(str, arguments), "--model", str(edge_weights)])
        return stop.value.code, *capsys.readouterr()

    return call


def test_the_command(run, clip, tmp_path):
    code, out, err = run(clip)
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'clip.edges.mp4'}: 12 frames")
    assert "already exists, skipped" in run(clip)[1]
    for kind in ("mkv", "webm", "mov"):
        assert run(clip, "-o", tmp_path / f"clip.edges.{kind}")[0] == 0
    results = sorted(tmp_path.glob("clip.edges.*"))
    assert [is_result(path) for path in results] == [True] * 4
    (tmp_path / "clips.mp4").mkdir()
    code, out, _ = run(tmp_path / "clip*.mp4", "-o", tmp_path / "clips.mp4")  # neither the result nor a folder is input
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith(str(tmp_path / "clips.mp4" / "clip.edges.mp4"))
    code, out, _ = run(
        clip, "-o", tmp_path / "x.mkv", "--background", "white", "--nms", "--threshold", "0.3", "--json", "-"
    )
    assert (code, json.loads(out)["results"][0]["frames"]) == (0, 12)
    assert np.mean(read_clip(tmp_path / "x.mkv")[0][0]) > 128
    assert run(clip, "-o", f"{tmp_path}/other.mp4/")[0] == 0
    assert (tmp_path / "other.mp4" / "clip.edges.mp4").exists()
    assert run(clip, "-o", tmp_path / "folder")[0] == 0
    assert (tmp_path / "folder" / "clip.edges.mp4").exists()


def test_images_and_videos_in_one_command(run, clip, tmp_path):
    """A folder is searched for images; videos are given by name."""
    photo = tmp_path / "clip.png"  # phones give a photo and its clip one name
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (24, 30, 3), dtype=np.uint8)).save(photo)
    code, out, err = run(photo, clip, tmp_path / "missing.mp4", "-o", tmp_path / "out", "--format", "webp")
    assert (code, err.count("\n")) == (1, 1)
    assert "error: no file" in err
    assert sorted(os.listdir(tmp_path / "out")) == ["clip.edges.mp4", "clip.edges.webp"]
    assert out.splitlines()[0] == str(tmp_path / "out" / "clip.edges.webp")
    assert "clip.edges.mp4: 12 frames" in out.splitlines()[1]
    code, out, _ = run(
        tmp_path / "clip.*", tmp_path, "-o", tmp_path / "out", "--json", "-", "--temporal-smoothing", "0.5"
    )
    summary = json.loads(out)
    assert (code, summary["done"], summary["skipped"], summary["failed"]) == (0, 1, 1, [])
    assert [(Path(one["input"]).name, one["status"]) for one in summary["results"]] == [
        ("clip.mp4", "skipped"),
        ("clip.png", "done"),
    ]
    assert run(photo, clip, "-o", tmp_path / "out", "--overwrite", "--background", "photo")[0] == 0


def test_a_disk_that_fills_up_with_images_gets_no_videos(run, clip, tmp_path, monkeypatch):
    Image.new("RGB", (20, 20)).save(tmp_path / "photo.png")

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    code, out, err = run(clip, tmp_path / "photo.png", "--json", "-")
    assert (code, err.count("\n")) == (2, 1)
    assert "0 of 2 written, then stopped" in err
    summary = json.loads(out)
    assert (summary["results"], len(summary["failed"])) == ([], 1)
    assert summary["failed"][0]["input"] == str(tmp_path / "photo.png")


def test_names_with_a_colon(run, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clip.rename("12:30:05.mp4")
    assert run("12:30:05.mp4", "-o", "out:1.mp4")[0] == 0
    assert len(read_clip(tmp_path / "out:1.mp4")[0]) == 12


def test_one_bad_video_does_not_stop_the_others(run, clip, tmp_path):
    (tmp_path / "text.mp4").write_text("not a video")
    code, out, err = run(tmp_path / "text.mp4", clip)
    assert (code, (tmp_path / "clip.edges.mp4").exists()) == (1, True)
    assert "12 frames" in out
    assert "error: " in err


@pytest.mark.parametrize("suffix", [".mp4", ".avi", ".mkv"])
def test_tags_that_are_no_utf8(suffix, run, clip, tmp_path):
    """Cameras and old programs write titles in Latin-1."""
    source = make_clip(tmp_path / f"old{suffix}", [0, 40, 80], audio=False, title="Caf__")
    content = source.read_bytes()
    assert b"Caf__" in content
    source.write_bytes(content.replace(b"Caf__", b"Caf\xe9\xe9"))
    code, out, err = run(source, clip)
    assert (code, err) == (0, "")
    assert "3 frames" in out
    assert "12 frames" in out


def test_foreign_exceptions_become_one_line(run, clip, tmp_path, monkeypatch):
    second = make_clip(tmp_path / "second.mp4", [0, 40, 80])
    add, calls = av.VideoFrame.from_ndarray, []

    def failing(*given, **options):
        calls.append(0)
        if len(calls) == 1:
            raise UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "odd")
        return add(*given, **options)

    class Frame:
        from_ndarray = staticmethod(failing)

    monkeypatch.setattr(av, "VideoFrame", Frame)
    code, out, err = run(clip, second)
    assert (code, err.count("\n")) == (1, 1)
    assert "error: " in err
    assert "UnicodeDecodeError" in err
    assert "second.edges.mp4: 3 frames" in out


def test_large_frames_are_downscaled_with_a_note(run, tmp_path):
    source = make_clip(tmp_path / "clip.mp4", [0, 40], size=(32, 1200), audio=False)
    code, out, err = run(source, "--json", "-")
    height, width = input_size((32, 1200))
    assert (code, json.loads(out)["results"][0]["input_size"]) == (0, [height, width])
    told = f"shrunk 1200x32 to {width}x{height} for detection; --max-size none uses all pixels"
    assert err == f"note: {told}\n"
    code, out, err = run(source, "--json", "-", "--max-size", "none", "--overwrite")
    assert (code, json.loads(out)["results"][0]["input_size"], err) == (0, [32, 1200], "")


def test_a_full_disk_ends_the_run(run, clip, tmp_path, monkeypatch):
    second = make_clip(tmp_path / "second.mp4", [0, 40, 80])

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    code, out, err = run(clip, second)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "0 of 2 written, then stopped" in err
    assert "the disk is full" in err
    assert sorted(os.listdir(tmp_path)) == ["clip.mp4", "second.mp4"]


def test_the_next_run_removes_temporary_files_of_a_killed_one(run, edge_weights, tmp_path):
    source = make_clip(tmp_path / "clip.mp4", [40 * k for k in range(400)])
    command = [sys.executable, "-m", "pixeldiff", "detect", source, "-o", tmp_path / "out", "--model", edge_weights]
    child = subprocess.Popen([*map(str, command), "--scales", "0.5,1,1.5"])
    while child.poll() is None and not list(tmp_path.glob("out/.*")):
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert [name.endswith(".tmp.mp4") for name in os.listdir(tmp_path / "out")] == [True]
    short = make_clip(tmp_path / "short.mp4", [0, 40])
    assert run(short, "-o", tmp_path / "out")[0] == 0
    assert os.listdir(tmp_path / "out") == ["short.edges.mp4"]


def test_mistakes_are_one_line(run, clip, tmp_path):
    (tmp_path / "text.mp4").write_text("not a video")
    (tmp_path / "file").write_text("x")
    Image.new("RGB", (20, 20)).save(tmp_path / "photo.jpg")
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        sound = container.add_stream("aac", rate=16000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "clip.mp4").write_bytes(clip.read_bytes())
    mistakes = {
        "would both become": [clip, tmp_path / "other" / "clip.mp4", "-o", tmp_path / "both"],
        "no file": [tmp_path / "missing.mp4"],
        "is not a video that can be read": [tmp_path / "text.mp4"],
        "has no video stream": [tmp_path / "sound.mp4"],
        "cannot write": [clip, "-o", tmp_path / "file" / "out.mp4"],
        "-o - is not supported for videos": [clip, "-o", "-"],
        "results are not written as .png; use .mkv": [clip, "-o", tmp_path / "out.png"],
        "clip.mp4 is an input": [clip, "-o", clip, "--overwrite"],
        "there are several": [clip, tmp_path / "photo.jpg", "-o", tmp_path / "out.png"],
        "one file, but": [clip, clip, "-o", tmp_path / "out.mp4"],
        "are for images": [clip, "--format", "png"],
        "--format and --sides are for images": [clip, "--sides"],
        "no transparent background": [clip, "--background", "transparent"],
        "is for videos": [tmp_path / "photo.jpg", "--temporal-smoothing", "0.5"],
    }
    for says, arguments in mistakes.items():
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (says, err)
        assert says in err
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_ctrl_c_leaves_a_playable_file(tmp_path):
    # Large frames that differ: an encoder keeps the first ones, and a file its first bytes, to itself for a while.
    source = make_clip(tmp_path / "clip.mp4", [40 * k for k in range(400)], size=(192, 256))
    target = tmp_path / "out.mp4"
    command = [sys.executable, "-m", "pixeldiff", "detect", source, "-o", target, "--model", "tiny"]
    child = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        text=True,
        # As from a terminal: what a shell runs in the background ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # The new file exists under its temporary name once the network runs.
    while child.poll() is None and not any(p.stat().st_size for p in tmp_path.glob(".pixeldiff-*")):
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "stopped early" in out
    frames = read_clip(target)[0]
    assert 0 < len(frames) < 400
    assert f"{len(frames)} frames" in out
    assert not list(tmp_path.glob(".*"))
