"""The server under load, on loopback: many clients at once, malformed uploads, slow clients, a large photo.

    python benchmarks/serve.py --weights tiny.onnx                  # 500 requests, 32 clients, 481 x 321
    python benchmarks/serve.py --weights tiny.onnx --malformed 1000
    python benchmarks/serve.py --weights tiny.onnx --slow 300       # seconds of a good client among them
    python benchmarks/serve.py --weights tiny.onnx --photo          # memory a minute after 12 megapixels

Prints JSON: answers by status, results that differ from the detector's own, requests per second, the server's memory.
"""

import argparse
import asyncio
import collections
import contextlib
import functools
import io
import json
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

PHOTO = Path(__file__).parents[1] / "docs/images/coffee.jpg"
SIZE = (481, 321)
IMAGES = 8


def images() -> list[bytes]:
    """Some different images of one size, as PNG files."""
    photo = np.asarray(Image.open(PHOTO).convert("RGB").resize(SIZE))
    return [png(np.roll(photo, 40 * k, axis=1)) for k in range(IMAGES)]


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def levels(file: bytes) -> bytes:
    """The pixels in a file; the command also notes in it how it was made."""
    return np.asarray(Image.open(io.BytesIO(file))).tobytes()


@functools.cache
def bomb(width: int, height: int, rows: int) -> bytes:
    """A PNG of a few bytes that says it is this large, with `rows` rows of zeros in it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows * (3 * width + 1)), 9)), (b"IEND", b""))
    body = b"".join(struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def malformed(good: bytes, rng: np.random.Generator) -> tuple[bytes, dict[str, str]]:
    """A body and headers that no server can turn into edges."""
    kind = int(rng.integers(10))
    octets = {"Content-Type": "application/octet-stream"}
    if kind == 0:  # truncated
        return good[: int(rng.integers(1, len(good) - 60))], octets
    if kind == 1:  # wrong type
        return good, {"Content-Type": "text/plain"}
    if kind == 2:  # bombs
        return bomb(60000, 60000, 10), octets
    if kind == 3:
        return bomb(9000, 9000, 500), octets
    if kind == 4:
        return b"", octets
    if kind == 5:  # huge headers
        return good, {**octets, "X-Huge": "x" * 200_000}
    if kind == 6:
        return rng.bytes(int(rng.integers(1, 5000))), octets
    if kind == 7:  # a form cut short
        form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="../../x"\r\n\r\n' + good[:500]
        return form, {"Content-Type": "multipart/form-data; boundary=b"}
    if kind == 8:  # a damaged file of another kind
        buffer = io.BytesIO()
        Image.open(io.BytesIO(good)).save(buffer, ("GIF", "TIFF", "WEBP")[int(rng.integers(3))])
        return buffer.getvalue()[: int(rng.integers(8, 200))], octets
    return good, {"Content-Type": "multipart/form-data; boundary=b"}


def memory_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


async def many(
    address: str, process: int, model: str, total: int, clients: int, expected: list[bytes]
) -> dict[str, object]:
    files = images()
    statuses: collections.Counter[str] = collections.Counter()
    wrong = 0
    memory: list[float] = []
    jobs = iter(range(total))

    async def client() -> None:
        nonlocal wrong
        async with httpx.AsyncClient(base_url=address, timeout=600) as http:
            for job in jobs:
                answer = await http.post("/api/edges", params={"model": model}, content=files[job % IMAGES])
                statuses[str(answer.status_code)] += 1
                wrong += answer.status_code == 200 and levels(answer.content) != expected[job % IMAGES]
                if job % max(1, total // 10) == 0:
                    memory.append(memory_mb(process))

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - start
    return {
        "requests": total,
        "clients": clients,
        "answers": dict(statuses),
        "wrong": wrong,
        "requests_per_second": round(total / seconds, 2),
        "memory_mb": memory,
    }


async def bad(address: str, process: int, total: int, clients: int) -> dict[str, object]:
    good = images()[0]
    rng = np.random.default_rng(0)
    statuses: collections.Counter[str] = collections.Counter()
    jobs = iter([malformed(good, rng) for _ in range(total)])
    memory = [memory_mb(process)]

    async def client() -> None:
        async with httpx.AsyncClient(base_url=address, timeout=600) as http:
            for content, headers in jobs:
                try:
                    answer = await http.post("/api/edges", content=content, headers=headers)
                    statuses[str(answer.status_code)] += 1
                except httpx.TransportError as error:  # no answer at all
                    statuses[type(error).__name__] += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    memory.append(memory_mb(process))
    async with httpx.AsyncClient(base_url=address, timeout=600) as http:
        after = (await http.post("/api/edges", content=good)).status_code
    return {"uploads": total, "answers": dict(statuses), "status_of_a_good_one_after": after, "memory_mb": memory}


async def slow(address: str, total: int) -> dict[str, object]:
    """Clients that send a byte now and then, half of them in the headers, half in the body; and a good one."""
    host, port = address.removeprefix("http://").split(":")
    head = b"POST /api/edges HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
    ended = 0

    async def client(begin: bytes) -> None:
        nonlocal ended
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(begin)
        try:
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(1000), 1)
        except ConnectionError:
            pass
        ended += 1

    crowd = [asyncio.create_task(client(head + b"\r\n" if k % 2 else head)) for k in range(total)]
    await asyncio.sleep(3)
    good, seconds, among = images()[0], [], total - ended
    async with httpx.AsyncClient(base_url=address, timeout=600) as http:
        for _ in range(10):
            start = time.perf_counter()
            (await http.post("/api/edges", content=good)).raise_for_status()
            seconds.append(round(time.perf_counter() - start, 3))
    await asyncio.wait(crowd, timeout=60)
    return {"slow": total, "there_at_first": among, "good_seconds": seconds, "ended_after_a_minute": ended}


async def photo(address: str, process: int) -> dict[str, object]:
    buffer = io.BytesIO()
    Image.open(PHOTO).convert("RGB").resize((4000, 3000)).save(buffer, "JPEG")
    result: dict[str, object] = {"memory_mb_before": memory_mb(process)}
    async with httpx.AsyncClient(base_url=address, timeout=600) as http:
        for size in ("", "full"):
            start = time.perf_counter()
            params = {"size": size} if size else {}
            (await http.post("/api/edges", params=params, content=buffer.getvalue())).raise_for_status()
            result[f"seconds{size and '_' + size}"] = round(time.perf_counter() - start, 2)
            await asyncio.sleep(60)
            result[f"memory_mb_a_minute_after{size and '_' + size}"] = memory_mb(process)
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert peak is not None
    return result | {"memory_mb_highest": round(int(peak[1]) * 1024 / 1e6, 1)}


def command_line_results(weights: str) -> list[bytes]:
    """The gray levels that `pixeldiff detect` writes for the images."""
    with tempfile.TemporaryDirectory() as folder:
        for k, content in enumerate(images()):
            (Path(folder) / f"{k}.png").write_bytes(content)
        subprocess.run([sys.executable, "-m", "pixeldiff", "detect", folder, "--model", weights], check=True, stdout=2)
        return [levels((Path(folder) / f"{k}.edges.png").read_bytes()) for k in range(IMAGES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--malformed", type=int, help="send so many of these instead")
    parser.add_argument("--slow", type=int, help="so many slow clients instead")
    parser.add_argument("--photo", action="store_true", help="a photo of 12 megapixels instead")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "pixeldiff", "serve", "--port", "0", "--model", arguments.weights]
    plain = not (arguments.malformed or arguments.slow or arguments.photo)
    expected = command_line_results(arguments.weights) if plain else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            wait_for(address)
            if arguments.malformed:
                result = asyncio.run(bad(address, server.pid, arguments.malformed, 8))
            elif arguments.slow:
                result = asyncio.run(slow(address, arguments.slow))
            elif arguments.photo:
                result = asyncio.run(photo(address, server.pid))
            else:
                model, total = Path(arguments.weights).stem, arguments.requests
                result = asyncio.run(many(address, server.pid, model, total, arguments.clients, expected))
        finally:
            server.terminate()
    print(json.dumps(result, indent=2))


def wait_for(address: str) -> None:
    for _ in range(200):
        try:
            if httpx.get(address + "/healthz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not come up")


if __name__ == "__main__":
    main()
