"""Edges of videos with PyAV (extra `video`): decoding, network and encoding at the same time.

A thread decodes; `streams` workers run the network, each on its own frame; the caller's thread takes the maps in order,
encodes them and copies the audio packets between them. The queue is short, so memory does not grow with the clip.
Frames keep their time stamps, whatever the frame rate does. Frames turned by the container are turned upright.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff.edgemap import nms, to_8_bit
from pixeldiff.errors import UserError
from pixeldiff.files import cannot_write, remove_leftovers, whole
from pixeldiff.image import FloatMap, Picture
from pixeldiff.runtime.edges import EdgeDetector, seen_size
from pixeldiff.runtime.formats import Options

SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv")
WRITTEN = (".mkv", ".mov", ".mp4", ".webm")  # what results may be
_CODECS = {".webm": "libvpx-vp9"}  # the others take H.264
_QUALITY = {
    # No frames that refer to later ones: in MP4 those would shorten clips whose frame rate varies.
    "libx264": {"preset": "veryfast", "crf": "18", "bf": "0"},
    "libvpx-vp9": {"crf": "24", "b": "0", "cpu-used": "6"},
}
_AHEAD = 2  # frames in flight per stream of the network


@dataclass
class Report:
    """What became of a clip."""

    frames: int = 0
    damaged: int = 0  # frames that could not be decoded, or only in part
    size: tuple[int, int] = (0, 0)  # height, width
    seen: tuple[int, int] = (0, 0)  # by the network
    audio: str = "none"  # none, copied, or left out (the new file's kind cannot hold it)
    seconds: float = 0.0
    stopped: bool = False  # by Ctrl-C; the file holds what was ready


@dataclass
class _Shot:
    """A frame on its way; `edges` is ready when the network is."""

    edges: Future[FloatMap]
    pts: int
    duration: int


@dataclass
class _Decoder:
    """The thread that reads the clip and fills `items` with shots and audio packets; None ends it."""

    container: Any
    submit: Callable[[Picture], Future[FloatMap]]
    items: queue.Queue[Any]
    report: Report
    stop: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            for item in self._read():
                if not self._put(item):
                    return
        except BaseException as error:  # told to the caller's thread
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
        for packet in _packets(self.container, [video, *audio], self.report):
            if packet.stream is not video:
                if packet.dts is not None:  # else the empty packet that ends a stream
                    yield packet
                continue
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                self.report.damaged += 1
                continue
            for frame in frames:
                self.report.damaged += frame.is_corrupt
                pts = frame.pts
                if pts is None or (last is not None and pts <= last):  # in joined files, and in AVI with B-frames
                    pts = expected
                duration = frame.duration or step
                last, expected = pts, pts + duration
                yield _Shot(self.submit(_upright(frame)), pts, duration)


def _packets(container: Any, streams: list[Any], report: Report) -> Iterator[Any]:
    """Packets until the file ends; where it is cut off, what came before counts."""
    import av

    packets = container.demux(streams)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.error.FFmpegError:
            report.damaged += 1
            return
        yield packet


def _frame_step(video: Any) -> int:
    """The usual time between two frames in units of the stream's time base."""
    rate = video.average_rate or Fraction(25)
    return max(1, round(1 / (rate * video.time_base)))


def _upright(frame: Any) -> Picture:
    picture = frame.to_ndarray(format="rgb24")
    turns = round(frame.rotation / 90) % 4  # counter-clockwise
    return np.ascontiguousarray(np.rot90(picture, turns)) if turns else picture


def detect_video(
    detector: EdgeDetector,
    source: Path,
    target: Path,
    options: Options,
    temporal: float = 0.0,
    streams: int = 1,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Report:
    """Write the edges of a clip: same frames, times and audio, white edges on black.

    `temporal` A mixes each map with the one before, A * before + (1 - A) * now. `progress` hears of frames done and, if
    known, of all. Ctrl-C ends the file where it is; the report says so. The file gets its name when it is playable.
    """
    report = Report()
    start = time.perf_counter()
    remove_leftovers([target.parent])
    with _open(source) as container, _told(source, target), whole(target, target.suffix) as unfinished:
        decoding = _decoding(container, detector, options, streams, report)
        with decoding as decoder, _Writer(unfinished, container, report) as writer:
            _write_all(decoder, writer, options, temporal, progress, container.streams.video[0].frames or None)
        if report.stopped and not report.frames:
            raise KeyboardInterrupt
        if not report.frames:
            raise UserError(f"{source} has no frame that can be decoded; it is damaged")
    report.seen = seen_size(report.size, detector.size if options.size is None else options.size)
    report.seconds = time.perf_counter() - start
    return report


@contextlib.contextmanager
def _told(source: Path, target: Path) -> Iterator[None]:
    """What goes wrong with a clip, as one line: the other clips still get their edges."""
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
def _decoding(
    container: Any, detector: EdgeDetector, options: Options, streams: int, report: Report
) -> Iterator[_Decoder]:
    """The thread that reads the clip, and `streams` workers for the network."""
    with ThreadPoolExecutor(streams) as workers:
        decoder = _Decoder(
            container,
            lambda picture: workers.submit(detector, picture, scales=options.scales, size=options.size),
            queue.Queue(_AHEAD * streams),
            report,
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
    options: Options,
    temporal: float,
    progress: Callable[[int, int | None], None],
    total: int | None,
) -> None:
    before: FloatMap | None = None
    try:
        while (item := decoder.items.get()) is not None:
            if not isinstance(item, _Shot):
                writer.copy(item)
                continue
            edges = item.edges.result()
            if temporal and before is not None and before.shape == edges.shape:
                edges = temporal * before + (1 - temporal) * edges
            before = edges
            writer.add(options.finish(nms(edges) if options.thin else edges), item.pts, item.duration)
            progress(writer.report.frames, total)
        if decoder.error is not None:
            raise decoder.error
    except KeyboardInterrupt:
        writer.report.stopped = True


class _Writer:
    """The new file. It is begun with the first frame, when the size is known; audio that comes before waits."""

    def __init__(self, path: Path, source: Any, report: Report) -> None:
        import av

        self.report = report
        self._source = source
        self._container = av.open(str(path.absolute()), "w")  # relative, 12:30.mp4 would have a protocol
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
        if shape := video.sample_aspect_ratio:  # of a pixel; frames on their side have been turned upright
            turned = (width, height) != (video.width, video.height)
            self._video.codec_context.sample_aspect_ratio = 1 / shape if turned else shape
        # Half-resolution colour planes need even sides; every player takes them.
        self._video.pix_fmt = "yuv420p" if height % 2 == width % 2 == 0 else "yuv444p"
        self._video.codec_context.time_base = video.time_base
        self._video.time_base = video.time_base
        self.report.size = (height, width)
        for stream in self._source.streams.audio[:1]:
            if stream.codec_context.name in self._container.supported_codecs:
                self._audio = self._container.add_stream_from_template(stream)
            self.report.audio = "left out" if self._audio is None else "copied"
        for packet in self._early:
            self.copy(packet)

    def add(self, edges: FloatMap, pts: int, duration: int) -> None:
        import av

        if self._video is None:
            self._begin(*edges.shape)
        if edges.shape != self.report.size:  # some streams change their size midway
            self.report.damaged += 1
            return
        frame = av.VideoFrame.from_ndarray(to_8_bit(edges), format="gray")
        frame = frame.reformat(format=self._video.pix_fmt)
        frame.pts, frame.time_base = pts, self._video.codec_context.time_base
        self._durations[pts] = duration
        self._encode(frame)
        self.report.frames += 1

    def _encode(self, frame: Any) -> None:
        for packet in self._video.encode(frame):
            # Encoders guess a duration from the mean frame rate; the last frame's decides how long the clip is.
            packet.duration = self._durations.pop(packet.pts, packet.duration)
            self._container.mux(packet)

    def copy(self, packet: Any) -> None:
        if self._video is None:
            self._early.append(packet)
        elif self._audio is not None:
            packet.stream = self._audio
            self._container.mux(packet)


def result_name(source: Path, folder: Path | None) -> Path:
    """clip.edges.mp4 for clip.mp4, beside it or in a folder; MP4 for kinds that are not written."""
    suffix = source.suffix.lower()
    return (folder or source.parent) / f"{source.stem}.edges{suffix if suffix in WRITTEN else '.mp4'}"


def _open(path: Path) -> Any:
    try:
        import av
    except ImportError as error:
        raise UserError("videos need PyAV; install it with: pip install 'pixeldiff[video]'") from error
    av.logging.set_level(None)  # damage is counted, not printed
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
