"""The web server: its results are those of `detect_edges` and `render`; limits, errors, headers and the page."""

import asyncio
import contextlib
import io
import socket
import threading
import time

import httpx
import numpy as np
import pytest
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image

from pixeldiff import cli
from pixeldiff.inference.edges import EdgeNetwork, Look, detect_edges
from pixeldiff.render.drawing import Drawing, render, resolve
from pixeldiff.render.formats import FORMATS
from pixeldiff.serve import app as serving
from pixeldiff.serve import connections, uploads
from tests.conftest import BAD_IMAGES, _png_of_size


@pytest.fixture(scope="module")
def client(edge_weights):
    with TestClient(serving.create_app({"tiny": edge_weights})) as client:
        yield client


@pytest.fixture
def image(rng):
    return rng.integers(0, 256, (40, 57, 3), dtype=np.uint8)


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def test_raw_bytes_and_forms_give_the_file_of_the_command_line(client, image, edge_weights):
    expected = render(detect_edges(EdgeNetwork(edge_weights, threads=1), image), Drawing())
    for kind in ("image/png", "application/octet-stream", "application/x-www-form-urlencoded", None):
        answer = client.post("/api/edges", content=png(image), headers={"Content-Type": kind} if kind else {})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        assert answer.content == expected
    form = client.post("/api/edges", files={"image": ("../x.png", png(image), "image/png")}, data={"a": "b"})
    assert form.content == expected


@pytest.mark.parametrize("name", FORMATS)
def test_formats_and_options(name, client, image, edge_weights):
    options = {"threshold": 0.4, "nms": True, "background": "white", "max_size": 32, "scales": "0.5,1"}
    answer = client.post("/api/edges", content=png(image), params={"format": name, **options})
    look, drawing = resolve(Look(32, (0.5, 1), nms=True), Drawing(name, 0.4, "white"))
    assert answer.content == render(detect_edges(EdgeNetwork(edge_weights, threads=1), image, look), drawing)
    assert answer.headers["content-type"] == FORMATS[name].media_type
    assert answer.headers["x-pixeldiff-input-size"] == "32x22"


def test_the_photo_may_be_the_background(client, image):
    answer = client.post("/api/edges", content=png(image), params={"background": "photo", "threshold": 1})
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), image)


@pytest.mark.parametrize("params", [{"scales": "8,8,8,8"}, {"max_size": "none"}, {"flip": True, "scales": "1,1"}])
def test_more_work_than_for_the_largest_image_is_an_error(params, client, image, monkeypatch):
    monkeypatch.setattr(serving, "MAX_PIXELS", image.shape[0] * image.shape[1] - 1)
    answer = client.post("/api/edges", content=png(image), params=params)
    assert (answer.status_code, "max_size" in answer.json()["error"]) == (422, True)


def test_models_health_and_description(client):
    assert client.get("/api/models").json() == [{"name": "tiny", "default": True, "license": None}]
    assert client.get("/healthz").json() == {"status": "ok", "pending": 0}
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/api/edges", "/api/models", "/healthz"}
    assert {"200", "413", "415", "422", "503"} <= set(described["paths"]["/api/edges"]["post"]["responses"])


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_images_get_an_error_with_a_reason(name, client, bad_images):
    answer = client.post("/api/edges", content=(bad_images / name).read_bytes())
    expected = {"text.jpg": 415, "empty.png": 422, "bomb.png": 413}.get(name, 422)
    assert answer.status_code == expected
    assert answer.json()["error"]
    assert client.get("/healthz").json()["pending"] == 0


def test_valid_images_of_unsupported_kinds_are_not_called_corrupt(client):
    for pixels, says in (
        (np.full((9, 9), 70000, np.int32), "8 or 16 bits"),
        (np.full((9, 9), 2.0, "f4"), "full scale"),
    ):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "TIFF")
        answer = client.post("/api/edges", content=file.getvalue())
        assert answer.status_code == 422
        assert says in answer.json()["error"]


def test_models_may_have_any_name(edge_weights):
    offered = TestClient(serving.create_app({"mro": edge_weights, "_v1_": edge_weights})).get("/api/models").json()
    assert [one["name"] for one in offered] == ["mro", "_v1_"]


def test_other_invalid_requests(client, image):
    def post(**request):
        answer = client.post("/api/edges", **request)
        return answer.status_code, answer.json()["error"]

    status, reason = post(content=_png_of_size(9000, 9000))
    assert (status, "50 megapixels" in reason) == (413, True)
    status, reason = post(content=b"{}", headers={"Content-Type": "application/json"})
    assert (status, "not application/json" in reason) == (415, True)
    assert post(content=png(image), headers={"X-Long": "x" * 20000})[0] == 431
    assert post(content=png(image), params={"threshold": 2})[0] == 422
    assert post(content=png(image), params={"threshold": "nan"})[0] == 422
    assert post(content=png(image), params={"format": "exe"})[0] == 422
    status, reason = post(content=png(image), params={"treshold": 0.3})
    assert (status, "treshold" in reason) == (422, True)
    assert post(content=png(image), params={"format": "jpg", "background": "transparent"})[0] == 422
    assert post(content=png(image), params={"model": "../../etc/passwd"})[0] == 422
    assert post(content=b"x", headers={"Content-Type": "multipart/form-data"})[0] == 422
    assert post(content=b"x", headers={"Content-Type": "multipart/form-data; boundary=y"})[0] == 422
    assert post(files={"image": (None, "no file")})[0] == 422
    form = b'--y\r\nContent-Disposition: form-data; name="i"; filename="p.png"\r\n\r\n' + png(image)
    assert post(content=form, headers={"Content-Type": "multipart/form-data; boundary=y"})[0] == 422
    status, reason = post(content=b"x" * (uploads.MAX_BYTES + 1))
    assert (status, "32 MB" in reason) == (413, True)


FORM = {"Content-Type": 'multipart/form-data; charset=utf-8; Boundary="a b"'}


def part(disposition, content):
    return b"--a b\r\n%s\r\n\r\n%s\r\n" % (disposition, content)


FIELD = part(b'Content-Disposition: form-data; name="x; filename=y"', b"no file")


@pytest.mark.parametrize(
    "disposition",
    [
        b'Content-Disposition: form-data; name="i"; filename="p \xc3\xa9;.png"\r\nContent-Type: image/png',
        b"Content-Type: image/png\r\ncontent-disposition:form-data;filename*=UTF-8''p.png; name=i",
    ],
)
def test_the_first_file_of_a_form_counts(disposition, client, image):
    form = b"preamble\r\n" + 3 * FIELD + part(disposition, png(image)) + part(disposition, b"another") + b"--a b--\r\n"
    assert (
        client.post("/api/edges", content=form, headers=FORM).content
        == client.post("/api/edges", content=png(image)).content
    )


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (300_000 * FIELD, "among its first 100 fields"),
        (2_000_000 * b"--a b\r\n", "not a form"),
        (b"--a b\r\n" + 5_000_000 * b"\r\n--a", "not a form"),
        (b"--a b\r\nX: " + bytes(30_000_000), "not a form"),
        (part(b'Content-Disposition: form-data; filename="p.png"', b"")[:-2], "truncated"),
        (part(b'Content-Disposition: form-data; filename="p.png"', b"") + b"--a b--", "empty"),
        (FIELD + b"--a b--\r\n", "holds no file"),
    ],
)
def test_slow_forms_are_rejected_at_once(form, says):
    start = time.process_time()
    with pytest.raises(uploads.RequestError, match=says):
        uploads.image_bytes(form, FORM["Content-Type"])
    assert time.process_time() - start < 1  # the event loop waits meanwhile


def test_a_body_without_length_is_cut_off_at_the_limit(monkeypatch):
    monkeypatch.setattr(uploads, "MAX_BYTES", 100_000)
    sent = []

    async def endless():
        while True:
            sent.append(1)
            yield bytes(1000)

    with pytest.raises(uploads.RequestError, match="larger than"):
        asyncio.run(uploads.read_body(endless(), None, uploads.UploadBudget()))
    assert 100 < len(sent) < 200


@pytest.mark.parametrize("method", ["get", "put", "delete", "options"])
def test_wrong_methods_and_pages(method, client):
    assert getattr(client, method)("/api/edges").status_code in (404, 405)
    assert getattr(client, method)("/no-such-page").status_code in (404, 405)


def test_the_page_and_its_headers(client):
    for path, kind in {
        "/": "text/html",
        "/app.js": "javascript",
        "/engine.js": "javascript",
        "/style.css": "css",
    }.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    for path in ("/..%2fapp.py", "/%2e%2e/app.py", "/__init__.py"):
        assert client.get(path).status_code == 404
    # Nothing on the page comes from elsewhere or sits inline.
    page = client.get("/").text
    assert "http" not in page.replace("https or", "")
    assert "<style" not in page
    assert "onclick" not in page


def test_cors_only_when_asked(edge_weights):
    with TestClient(serving.create_app({"tiny": edge_weights}, origins=("https://a.example",))) as client:
        own = client.get("/healthz", headers={"Origin": "https://a.example"})
        assert own.headers["access-control-allow-origin"] == "https://a.example"
        assert (
            "access-control-allow-origin" not in client.get("/healthz", headers={"Origin": "https://b.example"}).headers
        )


def test_a_full_queue_says_when_to_try_again(edge_weights, image, monkeypatch):
    gate = threading.Event()
    work = serving.JobQueue.work

    def slow(self, *arguments):
        assert gate.wait(30)
        return work(self, *arguments)

    monkeypatch.setattr(serving.JobQueue, "work", slow)
    app = serving.create_app({"tiny": edge_weights}, streams=1, queue=2)

    async def crowd():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            first = [asyncio.create_task(client.post("/api/edges", content=png(image))) for _ in range(3)]
            while (await client.get("/healthz")).json()["pending"] < 3:
                await asyncio.sleep(0.01)
            late = await client.post("/api/edges", content=png(image))
            gate.set()
            return await asyncio.gather(*first), late, await client.post("/api/edges", content=png(image))

    served, late, after = asyncio.run(crowd())
    assert [one.status_code for one in served] == [200, 200, 200]
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    assert after.status_code == 200


def test_time_limits(edge_weights, image, monkeypatch):
    monkeypatch.setattr(serving, "WORK_SECONDS", 0.05)
    gate = threading.Event()
    monkeypatch.setattr(serving.JobQueue, "work", lambda *_: gate.wait(30) and b"")
    app = serving.create_app({"tiny": edge_weights})

    async def slow_upload():
        yield b"x"
        await asyncio.sleep(30)

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            slow_work = await client.post("/api/edges", content=png(image))
            # The image is still being worked on, so it still counts.
            pending = (await client.get("/healthz")).json()["pending"]
            gate.set()
            monkeypatch.setattr(serving, "UPLOAD_SECONDS", 0.05)
            return slow_work, pending, await client.post("/api/edges", content=slow_upload())

    slow_work, pending, slow = asyncio.run(ask())
    assert (slow_work.status_code, pending) == (503, 1)
    assert slow.status_code == 408


def test_errors_of_the_command(edge_weights, tmp_path, capsys, monkeypatch):
    def failed(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(["serve", *map(str, arguments)])
        assert stop.value.code == 2
        return capsys.readouterr().err

    assert "no weights file" in failed("--model", tmp_path / "x.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(edge_weights.read_bytes()[:1000])
    assert "cut.safetensors" in failed("--model", tmp_path / "cut.safetensors")
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / edge_weights.name
    twin.write_bytes(edge_weights.read_bytes())
    assert "would both be called" in failed("--model", edge_weights, "--model", twin)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "cannot listen" in failed("--model", edge_weights, "--port", taken.getsockname()[1])
    monkeypatch.setattr(serving, "shipped", dict)
    assert "no models to serve" in failed()


def test_unfinished_uploads_take_no_place_in_the_queue(edge_weights, image):
    app = serving.create_app({"tiny": edge_weights}, streams=1, queue=0)

    async def crowd():
        gate = asyncio.Event()
        begun = asyncio.Semaphore(0)

        async def unfinished():
            yield b"x"
            begun.release()
            await gate.wait()

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            slow = [asyncio.create_task(client.post("/api/edges", content=unfinished())) for _ in range(5)]
            for _ in slow:
                await begun.acquire()
            good = await client.post("/api/edges", content=png(image))
            gate.set()
            return good, await asyncio.gather(*slow)

    good, slow = asyncio.run(crowd())
    assert good.status_code == 200
    assert {one.status_code for one in slow} <= {415, 503}


def test_unfinished_uploads_share_a_budget(monkeypatch):
    monkeypatch.setattr(uploads, "BUDGET_BYTES", 5000)
    monkeypatch.setattr(uploads, "SMALL_BYTES", 100)
    budget = uploads.UploadBudget()

    async def body(*chunks):
        for chunk in chunks:
            yield chunk

    async def first():
        yield bytes(4500)
        with pytest.raises(uploads.RequestError, match="too many large uploads"):
            await uploads.read_body(body(bytes(400), bytes(400)), None, budget)
        assert await uploads.read_body(body(bytes(90)), None, budget) == bytes(90)
        assert budget.held == 4500

    assert asyncio.run(uploads.read_body(first(), None, budget)) == bytes(4500)
    assert budget.held == 0


@contextlib.contextmanager
def served(app):
    """Run a server on loopback; yield a function that opens a connection to it."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(connections.configured(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield lambda: socket.create_connection(listener.getsockname(), timeout=30)
    finally:
        server.should_exit = True
        thread.join(30)


def all_of(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_client_that_is_still_sending_gets_the_error(edge_weights):
    size = uploads.MAX_BYTES + 2**20
    with served(serving.create_app({"tiny": edge_weights})) as connect, connect() as connection:
        connection.sendall(b"POST /api/edges HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size)
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        connection.sendall(bytes(size))
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 200" in all_of(connection)


def test_data_after_the_response_is_read_up_to_a_limit(edge_weights, monkeypatch):
    monkeypatch.setattr(connections, "REST_BYTES", 10**6)
    with served(serving.create_app({"tiny": edge_weights})) as connect, connect() as connection:
        connection.sendall(b"POST /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 405")
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(10**8))


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b"HTTP/1.1 408"),
        (b"GET /healthz HTTP/1.1\r\nHost: h", b"HTTP/1.1 408"),
        (b"POST /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nx", b"HTTP/1.1 405"),
    ],
)
def test_late_requests_are_closed(sent, answer, edge_weights, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.1)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.1)
    with served(serving.create_app({"tiny": edge_weights})) as connect, connect() as connection:
        connection.sendall(sent)
        assert all_of(connection).startswith(answer)
    with served(serving.create_app({"tiny": edge_weights})) as connect, connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")  # a connection that was good before
        answered = b""
        while not answered.endswith(b"}"):
            answered += connection.recv(65536)
        connection.sendall(sent or b"G")
        assert all_of(connection).startswith(answer)


def test_a_response_that_no_client_takes_is_dropped(edge_weights, monkeypatch):
    monkeypatch.setattr(connections, "RESPONSE_SECONDS", 0.2)
    monkeypatch.setattr(serving.JobQueue, "work", lambda *_: (bytes(10**8), "1x1"))
    with served(serving.create_app({"tiny": edge_weights})) as connect, connect() as connection:
        connection.sendall(b"POST /api/edges HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\nx")
        time.sleep(1)
        with contextlib.suppress(ConnectionResetError):
            assert len(all_of(connection)) < 10**8


def test_a_response_that_a_client_takes_is_complete(edge_weights, monkeypatch):
    monkeypatch.setattr(connections, "RESPONSE_SECONDS", 20)
    monkeypatch.setattr(serving.JobQueue, "work", lambda *_: (bytes(10**8), "1x1"))
    with served(serving.create_app({"tiny": edge_weights})) as connect, connect() as connection:
        connection.sendall(b"POST /api/edges HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
        assert all_of(connection).endswith(bytes(10**8))


@pytest.mark.parametrize(("side", "options"), [(16400, {"format": "webp"}), (66000, {"nms": "1"})])
def test_images_too_large_for_the_format_are_errors_before_the_network_runs(side, options, client, monkeypatch):
    monkeypatch.setattr(serving.JobQueue, "network", lambda *_: pytest.fail("the network was asked"))
    answer = client.post("/api/edges", content=png(np.zeros((2, side, 3), np.uint8)), params=options)
    assert (answer.status_code, "scale it down" in answer.json()["error"]) == (422, True)


def test_other_host_names_are_rejected(edge_weights):
    with TestClient(serving.create_app({"tiny": edge_weights}, hosts=serving.LOOPBACK)) as client:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
            assert client.get("/healthz", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", ""):
            answer = client.get("/healthz", headers={"Host": host})
            assert (answer.status_code, "localhost" in answer.json()["error"]) == (421, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0"])
def test_the_command_warns_of_other_machines_and_knows_its_names(host, edge_weights, monkeypatch, capsys):
    apps = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: [apps.append(self.config.app), sockets[0].close()])
    with pytest.raises(SystemExit) as stop:
        cli.main(["serve", "--host", host, "--port", "0", "--model", str(edge_weights)])
    assert stop.value.code == 0
    assert ("no password" in capsys.readouterr().err) == (host == "0.0.0.0")
    status = TestClient(apps[0]).get("/healthz", headers={"Host": "evil.example"}).status_code
    assert status == (200 if host == "0.0.0.0" else 421)


def test_head(client):
    for path in ("/", "/app.js", "/style.css", "/healthz", "/api/models", "/openapi.json"):
        answer = client.head(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == client.get(path).headers["content-type"]
    assert client.head("/no-such-page").status_code == 404


@pytest.mark.parametrize(("size", "input_size"), [("none", "57x40"), ("32", "32x22"), ("500", "57x40")])
def test_max_size(size, input_size, client, image, edge_weights):
    answer = client.post("/api/edges", content=png(image), params={"max_size": size})
    assert answer.headers["x-pixeldiff-input-size"] == input_size
    look = Look(max_size=None if size == "none" else int(size))
    assert answer.content == render(detect_edges(EdgeNetwork(edge_weights, threads=1), image, look), Drawing())


@pytest.mark.parametrize("size", ["", "0", "-5", "15", "huge", "1e3", "9" * 5000])
def test_invalid_max_size(size, client, image):
    answer = client.post("/api/edges", content=png(image), params={"max_size": size})
    assert (answer.status_code, "max_size" in answer.json()["error"]) == (422, True)
