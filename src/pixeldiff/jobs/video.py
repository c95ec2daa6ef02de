"""Videos through a network with PyAV (extra `video`): decoding, network and encoding at the same time.

A thread decodes; `streams` workers run the network, one frame each; the caller's thread takes the results in order,
encodes them and copies the audio packets between them. The queue is short, so memory does not grow with the clip.
Frames keep their time stamps, also at variable frame rates. Frames that the container rotates come out unrotated.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import InputError, MissingExtra, UserError
from pixeldiff.files import Job, atomic_path, cannot_write, remove_stale_temp_files
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.inference.edges import EdgeNetwork, EdgeResult, Look, detect_edges
from pixeldiff.inference.sizes import ModelInput, input_size, prepare, to_image_size
from pixeldiff.jobs.operation import Result, Status, attempt
from pixeldiff.render.drawing import Drawing, draw, provenance, resolve

SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv")
WRITTEN = (".mkv", ".mov", ".mp4", ".webm")  # suffixes of results
_CODECS = {".webm": "libvpx-vp9"}  # the others take H.264
_QUALITY = {
    # No frames that refer to later ones: in MP4 they would shorten clips with a variable frame rate.
    "libx264": {"preset": "veryfast", "crf": "18", "bf": "0"},
    "libvpx-vp9": {"crf": "24", "b": "0", "cpu-used": "6"},
}
_AHEAD = 2  # frames in flight per stream of the network

Progress = Callable[[int, int | None], None]  # called with the frames done and, if known, the total


@dataclass
class Clip:
    """What became of a video."""

    frames: int = 0
    damaged: int = 0  # corrupt frames, left out or decoded in part
    size: tuple[int, int] = (0, 0)  # height, width
    input_size: tuple[int, int] | None = None  # height and width at which the network ran
    audio: str = "none"  # none, copied, or left out (the new file's kind cannot hold it)
    seconds: float = 0.0
    stopped: bool = False  # by Ctrl-C; the file holds the frames that were ready

    @property
    def record(self) -> dict[str, Any]:
        """What --json says of the video."""
        height, width = self.size
        return {
            "height": height,
            "width": width,
            "input_size": self.input_size or self.size,
            "frames": self.frames,
            "damaged": self.damaged,
            "audio": self.audio,
            "seconds": self.seconds,
        }


@dataclass
class _Shot:
    """A frame in work; `result` is what the network makes of it."""

    result: Future[Any]
    pts: int
    duration: int


@dataclass
class _Decoder:
    """The thread that reads a clip into `items`: shots and audio packets, then None."""

    container: Any
    submit: Callable[[ImageArray], Future[Any]]
    items: queue.Queue[Any]
    clip: Clip
    stop: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            for item in self._read():
                if not self._put(item):
                    return
        except BaseException as error:  # raised in the caller's thread
            self.error = error
        finally:
            self._put(None)

    def _put(self, item: Any) -> bool:
        while not self.stop.is_set():
            try:
                self.items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def _read(self) -> Iterator[Any]:
        import av

        video = self.container.streams.video[0]
        audio = self.container.streams.audio[:1]
        step = _frame_step(video)
        expected, last = 0, None
        for packet in _packets(self.container, [video, *audio], self.clip):
            if packet.stream is not video:
                if packet.dts is not None:  # else the empty packet that ends a stream
                    yield packet
                continue
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                self.clip.damaged += 1
                continue
            for frame in frames:
                self.clip.damaged += frame.is_corrupt
                pts = frame.pts
                if pts is None or (last is not None and pts <= last):  # in joined files, and in AVI with B-frames
                    pts = expected
                duration = frame.duration or step
                last, expected = pts, pts + duration
                yield _Shot(self.submit(_unrotated(frame)), pts, duration)


def _packets(container: Any, streams: list[Any], clip: Clip) -> Iterator[Any]:
    """Yield packets until the file ends, or up to where it is truncated."""
    import av

    packets = container.demux(streams)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.error.FFmpegError:
            clip.damaged += 1
            return
        yield packet


def _frame_step(video: Any) -> int:
    """Return the mean time between two frames in units of the stream's time base."""
    rate: Fraction = video.average_rate or Fraction(25)
    base: Fraction = video.time_base
    return max(1, round(1 / (rate * base)))


def _unrotated(frame: Any) -> ImageArray:
    image = frame.to_ndarray(format="rgb24")
    turns = round(frame.rotation / 90) % 4  # counter-clockwise
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image


def rewrite_clips(
    jobs: Sequence[Job],
    rewrite: Callable[[Job, Progress], Clip],
    overwrite: bool,
    progress: Callable[[], AbstractContextManager[Progress]],
) -> Iterator[Result]:
    """Yield what became of videos, one after the other. A job that fails does not stop the others; a full disk and
    Ctrl-C do. `progress` is called for each video."""

    def work(job: Job) -> Result:
        assert job.target is not None
        if job.target.exists() and not overwrite:
            return Result(job, "skipped", files=(job.target,))
        with progress() as show:
            clip = rewrite(job, show)
        status: Status = "stopped" if clip.stopped else "done"
        return Result(job, status, files=(job.target,), record=clip.record)

    for job in jobs:
        result = attempt(job, work)
        yield result
        if result.status in ("full", "stopped"):
            return


def _silent(done: int, total: int | None) -> None:
    pass


@dataclass
class _Smoothed:
    """Frames whose maps are mixed with the one before: where the network runs, before suppression and drawing."""

    network: EdgeNetwork
    look: Look
    drawing: Drawing
    smoothing: float
    before: FloatMap | None = None

    def detect(self, frame: ImageArray) -> tuple[FloatMap, ModelInput, ImageArray | None]:
        prepared = prepare(frame, self.look.max_size)
        with self.network.slots:
            maps = self.network.run([prepared.image], self.look)[0]
        return maps, prepared, frame if self.drawing.background == "photo" else None

    def draw(self, detected: tuple[FloatMap, ModelInput, ImageArray | None]) -> NDArray[np.uint8]:
        """Draw a frame; frames come in their order."""
        maps, prepared, photo = detected
        if self.before is not None and self.before.shape == maps.shape:
            maps = self.smoothing * self.before + (1 - self.smoothing) * maps
        self.before = maps
        full = to_image_size(maps, prepared.size, self.look.nms)
        return np.asarray(draw(EdgeResult(full, self.look, maps.shape[1:]), self.drawing, photo))


def detect_video(
    network: EdgeNetwork,
    source: Path,
    target: Path,
    look: Look | None = None,
    drawing: Drawing | None = None,
    smoothing: float = 0.0,
    streams: int = 1,
    progress: Progress = _silent,
) -> Clip:
    """Write the edges of a clip: same frames, times and audio.

    `smoothing` A mixes each map with the one before, A * before + (1 - A) * now. `progress` gets the number of frames
    done and, if known, of all. Ctrl-C ends the file where it is; the result says so. The file gets its name when it is
    playable.
    """
    look, drawing = look or Look(), replace(drawing or Drawing(), format="png")  # a frame is an image
    resolve(look, drawing)
    if drawing.background == "transparent":
        raise InputError("videos have no transparent background; use black, white or photo")
    note = provenance(network.name, look, drawing) + (f" --temporal-smoothing {smoothing:g}" if smoothing else "")

    def draw_frame(frame: ImageArray) -> NDArray[np.uint8]:
        return np.asarray(draw(detect_edges(network, frame, look), drawing, frame))

    work: Callable[[ImageArray], Any] = draw_frame
    finish: Callable[[Any], NDArray[np.uint8]] = np.asarray
    if smoothing:
        smoothed = _Smoothed(network, look, drawing, smoothing)
        work, finish = smoothed.detect, smoothed.draw
    clip = rewrite_video(source, target, work, finish, streams, progress, note)
    clip.input_size = input_size(clip.size, look.max_size)
    return clip


def rewrite_video(
    source: Path,
    target: Path,
    work: Callable[[ImageArray], Any],
    finish: Callable[[Any], NDArray[np.uint8]],
    streams: int = 1,
    progress: Progress = _silent,
    note: str = "",
) -> Clip:
    """A clip with other frames: `work` on each, `streams` at once, then `finish` in their order, gray or RGB; `note`
    says what made it."""
    clip = Clip()
    start = time.perf_counter()
    remove_stale_temp_files([target.parent])
    with _open(source) as container, _named_errors(source, target), atomic_path(target, target.suffix) as unfinished:
        decoding = _decoding(container, work, streams, clip)
        with decoding as decoder, _Writer(unfinished, container, clip, note) as writer:
            _write_all(decoder, writer, finish, progress, container.streams.video[0].frames or None)
        if clip.stopped and not clip.frames:
            raise KeyboardInterrupt
        if not clip.frames:
            raise UserError(f"{source} has no frame that can be decoded; it is damaged")
    clip.seconds = time.perf_counter() - start
    return clip


@contextlib.contextmanager
def _named_errors(source: Path, target: Path) -> Iterator[None]:
    """Turn errors of PyAV and the disk into errors of one line that name the clip."""
    import av

    try:
        yield
    except UserError:
        raise
    except (OSError, av.error.FFmpegError) as error:
        raise cannot_write(target, error) from error
    except Exception as error:  # of PyAV
        raise UserError(f"{source}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _decoding(container: Any, work: Callable[[ImageArray], Any], streams: int, clip: Clip) -> Iterator[_Decoder]:
    """Start the thread that reads the clip and `streams` workers for the network."""
    with ThreadPoolExecutor(streams) as workers:
        decoder = _Decoder(
            container,
            lambda image: workers.submit(work, image),
            queue.Queue(_AHEAD * streams),
            clip,
        )
        thread = threading.Thread(target=decoder.run, name="decode")
        thread.start()
        try:
            yield decoder
        finally:
            decoder.stop.set()
            thread.join()


def _write_all(
    decoder: _Decoder,
    writer: _Writer,
    finish: Callable[[Any], NDArray[np.uint8]],
    progress: Progress,
    total: int | None,
) -> None:
    try:
        while (item := decoder.items.get()) is not None:
            if not isinstance(item, _Shot):
                writer.copy(item)
                continue
            writer.add(finish(item.result.result()), item.pts, item.duration)
            progress(writer.clip.frames, total)
        if decoder.error is not None:
            raise decoder.error
    except KeyboardInterrupt:
        writer.clip.stopped = True


class _Writer:
    """The new file. It starts with the first frame, which gives the size; earlier audio waits."""

    def __init__(self, path: Path, source: Any, clip: Clip, note: str) -> None:
        import av

        self.clip = clip
        self._source = source
        self._container = av.open(str(path.absolute()), "w")  # relative, 12:30.mp4 would have a protocol
        self._container.metadata["comment"] = note
        self._video: Any = None
        self._audio: Any = None
        self._early: list[Any] = []
        self._durations: dict[int, int] = {}

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._video is not None:
            self._encode(None)
        self._container.close()

    def _begin(self, height: int, width: int) -> None:
        video = self._source.streams.video[0]
        codec = _CODECS.get(Path(self._container.name).suffix.lower(), "libx264")
        self._video = self._container.add_stream(codec, rate=video.average_rate or 25, options=_QUALITY[codec])
        self._video.width, self._video.height = width, height
        if shape := video.sample_aspect_ratio:  # of a pixel; rotated frames have been turned
            turned = (width, height) != (video.width, video.height)
            self._video.codec_context.sample_aspect_ratio = 1 / shape if turned else shape
        # Color planes of half resolution need even sides; every player can show them.
        self._video.pix_fmt = "yuv420p" if height % 2 == width % 2 == 0 else "yuv444p"
        self._video.codec_context.time_base = video.time_base
        self._video.time_base = video.time_base
        self.clip.size = (height, width)
        for stream in self._source.streams.audio[:1]:
            if stream.codec_context.name in self._container.supported_codecs:
                self._audio = self._container.add_stream_from_template(stream)
            self.clip.audio = "left out" if self._audio is None else "copied"
        for packet in self._early:
            self.copy(packet)

    def add(self, image: NDArray[np.uint8], pts: int, duration: int) -> None:
        import av

        size = (image.shape[0], image.shape[1])
        if self._video is None:
            self._begin(*size)
        if size != self.clip.size:  # some streams change their size
            self.clip.damaged += 1
            return
        frame = av.VideoFrame.from_ndarray(image, format="gray" if image.ndim == 2 else "rgb24")
        frame = frame.reformat(format=self._video.pix_fmt)
        frame.pts, frame.time_base = pts, self._video.codec_context.time_base
        self._durations[pts] = duration
        self._encode(frame)

    def _encode(self, frame: Any) -> None:
        for packet in self._video.encode(frame):
            # Encoders estimate durations from the mean frame rate; that of the last frame ends the clip.
            packet.duration = self._durations.pop(packet.pts, packet.duration)
            self._container.mux(packet)
            self.clip.frames += 1  # counted here, because Ctrl-C may interrupt `add`

    def copy(self, packet: Any) -> None:
        if self._video is None:
            self._early.append(packet)
        elif self._audio is not None:
            packet.stream = self._audio
            self._container.mux(packet)


def written_as(source: Path) -> str:
    """Return the suffix of a video's result: that of the video, or .mp4 for formats that are not written."""
    suffix = source.suffix.lower()
    return suffix if suffix in WRITTEN else ".mp4"


def is_clip(path: Path) -> bool:
    """Return whether a file is a video, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def _open(path: Path) -> Any:
    try:
        import av
    except ImportError as error:
        raise MissingExtra("video", "a video", error.name) from error
    av.logging.set_level(None)  # corrupt frames are counted, not printed
    if not path.is_file():
        raise UserError(f"no file {path}; check the name")
    try:
        container = av.open(str(path.absolute()), metadata_errors="replace")
    except Exception as error:  # PyAV has many
        raise UserError(f"{path} is not a video that can be read; use MP4, MKV, MOV, WebM or AVI") from error
    if not container.streams.video:
        container.close()
        raise UserError(f"{path} has no video stream, only {_kinds(container)}")
    container.streams.video[0].thread_type = "AUTO"
    return container


def _kinds(container: Any) -> str:
    return ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
