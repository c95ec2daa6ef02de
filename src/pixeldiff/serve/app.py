"""The application: POST /api/edges, GET /api/models, GET /healthz, the page at /, OpenAPI at /openapi.json.

Work is bounded: `streams` images are in the network at once and `queue` complete uploads may wait; more get 503 with
Retry-After. A slow upload ends with 408, an image that takes too long with 503. Nothing is written to disk, and no name
from a client becomes a path: models are chosen from a list.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pixeldiff import __version__, weights
from pixeldiff.errors import InputError, UserError
from pixeldiff.image import reduce
from pixeldiff.inference.edges import DEFAULT, TASK, EdgeNetwork, Look, detect_edges
from pixeldiff.inference.sizes import ModelInput, input_size
from pixeldiff.options import Choice, Flag, Number, Numbers, Option, build, options_of
from pixeldiff.render.drawing import Drawing, check_size, render, resolve
from pixeldiff.render.formats import FORMATS
from pixeldiff.serve.uploads import MAX_PIXELS, RequestError, UploadBudget, decode, image_bytes, read_body

PAGE = Path(__file__).parent / "page"
PAGE_FILES = {path.name: path for path in sorted(PAGE.iterdir())}
MAX_HEADER_BYTES = 2**14
UPLOAD_SECONDS = 30.0
WORK_SECONDS = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; "
        "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
INPUT_SIZE = "X-Pixeldiff-Input-Size"


class Problem(BaseModel):
    """Why there is no result."""

    error: str


class Model(BaseModel):
    name: str
    default: bool
    license: str | None = None


class Health(BaseModel):
    status: str
    pending: int


PROBLEMS: dict[int | str, dict[str, Any]] = {
    408: {"model": Problem, "description": "The upload took too long."},
    413: {"model": Problem, "description": "More bytes or pixels than allowed."},
    415: {"model": Problem, "description": "Not an image."},
    422: {"model": Problem, "description": "A corrupt image or an invalid option."},
    503: {"model": Problem, "description": "Busy; try again after Retry-After seconds."},
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FORM = {"schema": {"type": "object", "properties": {"image": _BINARY["schema"]}, "required": ["image"]}}
SCHEMAS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Flag: lambda kind: {"type": "boolean"},
    Choice: lambda kind: {"type": "string", "enum": list(kind.choices)},
    Number: lambda kind: {"type": "string", "description": kind.expected},
    Numbers: lambda kind: {"type": "string", "description": kind.expected},
}
REQUEST_BODY = {
    "required": True,
    "content": {"multipart/form-data": _FORM, "application/octet-stream": _BINARY, "image/*": _BINARY},
}


def shipped() -> dict[str, Path]:
    """Return the files of the pretrained models by name, the default first."""
    files = weights.shipped(TASK)
    return {name: files[name] for name in sorted(files, key=lambda name: (name != DEFAULT, name))}


class JobQueue:
    """Run images on the workers, up to a bound; models are opened on first use."""

    def __init__(self, models: Mapping[str, Path], streams: int, threads: int, queue: int) -> None:
        self.models = dict(models)
        self.default = next(iter(self.models))
        self.pending = 0
        self.limit = streams + queue
        self._streams, self._threads = streams, threads
        self._workers = ThreadPoolExecutor(streams, thread_name_prefix="edges")
        self._open: dict[str, EdgeNetwork] = {}
        self._lock = Lock()
        self.uploads = UploadBudget()

    def network(self, name: str) -> EdgeNetwork:
        with self._lock:
            if name not in self._open:
                self._open[name] = EdgeNetwork(self.models[name], self._threads, streams=self._streams)
            return self._open[name]

    def work(self, content: bytes, model: str, look: Look, drawing: Drawing) -> tuple[bytes, str]:
        """Return the file of an image's edges, and the size at which the network ran, as WIDTHxHEIGHT."""
        image = decode(content)
        size = (image.shape[0], image.shape[1])
        height, width = input_size(size, look.max_size)
        try:
            check_size(size, look, drawing)  # WebP has a largest side
            if height * width * _passes(look) > MAX_PIXELS:
                raise InputError(
                    f"the network would process more than {MAX_PIXELS // 10**6} megapixels; give a smaller max_size, "
                    "smaller scales or no flip"
                )
            result = detect_edges(self.network(model), ModelInput(reduce(image, (height, width)), size), look)
            return render(result, drawing, image), f"{width}x{height}"
        except UserError as error:
            raise RequestError(422, str(error)) from error

    def submit(self, content: bytes, model: str, look: Look, drawing: Drawing) -> Future[tuple[bytes, str]]:
        """Queue an image. It counts until it is done, even if its client is gone."""
        if self.pending >= self.limit:
            raise RequestError(503, f"{self.pending} images are waiting; try again in a second")
        job = self._workers.submit(self.work, content, model, look, drawing)
        self.pending += 1
        loop = asyncio.get_running_loop()
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(self._count_down))
        return job

    def _count_down(self) -> None:
        self.pending -= 1

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)


def _passes(look: Look) -> float:
    """Return how many times the network processes the pixels of an image."""
    return sum(scale**2 for scale in look.scales) * (2 if look.flip else 1)


def create_app(
    models: Mapping[str, Path] | None = None,
    streams: int = 1,
    threads: int = 1,
    queue: int = 64,
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
) -> FastAPI:
    """Make the application.

    Args:
        models: weights files by name; the pretrained models by default.
        streams: images in the network at once.
        threads: cores per image.
        queue: complete uploads that may wait.
        origins: sites whose pages may use the API (CORS).
        hosts: names that the server answers to, any if empty. A page whose own name was made to resolve to this machine
            (DNS rebinding) sends that name.
    """
    jobs = JobQueue(models or shipped(), streams, threads, queue)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()

    # FastAPI's own documentation pages load scripts from elsewhere; the description alone stays.
    app = FastAPI(title="pixeldiff", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"])
    _add_errors(app)
    _add_checks(app, hosts)
    _add_api(app, jobs)
    _add_pages(app)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> Response:
        headers = {408: {"Connection": "close"}, 503: {"Retry-After": "1"}}
        return _problem(error.status, error.reason, headers.get(error.status))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        reasons = [f"{'.'.join(map(str, part['loc'][1:]))}: {part['msg']}" for part in error.errors()]
        return _problem(422, "; ".join(reasons))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return _problem(error.status_code, str(error.detail), dict(error.headers or {}))


def _add_checks(app: FastAPI, hosts: tuple[str, ...]) -> None:
    @app.middleware("http")
    async def check(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        host = re.sub(r":\d*$", "", request.headers.get("host", "")).lower()
        if sum(len(name) + len(value) for name, value in request.headers.raw) > MAX_HEADER_BYTES:
            response: Response = _problem(431, "the request's headers are too long")
        elif hosts and host not in hosts:
            response = _problem(421, f"unknown host {host!r}; this server answers to {', '.join(hosts)}")
        else:
            response = await answer(request)
        response.headers.update(HEADERS)
        return response


def _problem(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": reason}, status, headers)


def _add_pages(app: FastAPI) -> None:
    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(PAGE_FILES["index.html"])

    @app.head("/{name}", include_in_schema=False)
    @app.get("/{name}", include_in_schema=False)
    async def page(name: str) -> Response:
        if name not in PAGE_FILES:
            raise HTTPException(404, "page not found")
        return FileResponse(PAGE_FILES[name])


def parameters(models: Sequence[str]) -> type[BaseModel]:
    """Make the class of a request's query parameters: the model, and the options of Look and Drawing."""
    choices = {"enum": list(models), "type": "string"}
    model = Option("model", Choice(tuple(models)), models[0], "A name from /api/models.")
    fields: dict[str, Any] = {}
    for option in (model, *options_of(Look, Drawing, front="server")):
        schema = choices if option is model else SCHEMAS[type(option.kind)](option.kind)
        kind = Annotated[Any, BeforeValidator(option.parse), WithJsonSchema(schema)]
        fields[option.name] = (kind, Field(option.default, description=option.help))
    return create_model("Parameters", __config__=ConfigDict(extra="forbid"), **fields)


def _add_api(app: FastAPI, queue: JobQueue) -> None:
    Parameters = parameters(list(queue.models))

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz")
    async def healthz() -> Health:
        """State of the server: `pending` images are queued or in work."""
        return Health(status="ok", pending=queue.pending)

    @app.head("/api/models", include_in_schema=False)
    @app.get("/api/models")
    async def models() -> list[Model]:
        """Models to choose from."""
        # A model card is about the pretrained file, not about another file of that name.
        licenses = {path: weights.cards()[name].get("license") for name, path in weights.shipped(TASK).items()}
        return [
            Model(name=name, default=name == queue.default, license=licenses.get(path))
            for name, path in queue.models.items()
        ]

    @app.post(
        "/api/edges",
        response_class=Response,
        responses={200: {"content": {kind.media_type: _BINARY for kind in FORMATS.values()}}, **PROBLEMS},
        openapi_extra={"requestBody": REQUEST_BODY},
    )
    async def edges(request: Request, parameters: Annotated[Parameters, Query()]) -> Response:  # type: ignore[valid-type]
        """Detect the edges of an image, sent as the body or as a file in a form; the result has the image's size."""
        values = parameters.model_dump()  # type: ignore[attr-defined]
        model = values.pop("model")
        try:
            look, drawing = resolve(*build(values, Look, Drawing))
        except UserError as error:
            raise RequestError(422, str(error)) from error
        content = await _received(request, queue.uploads)
        job = queue.submit(content, model, look, drawing)
        try:
            result, size = await asyncio.wait_for(asyncio.wrap_future(job), WORK_SECONDS)
        except (TimeoutError, asyncio.TimeoutError) as error:  # two classes before Python 3.11
            raise RequestError(503, "the image takes too long; scale it down or try again later") from error
        return Response(result, media_type=FORMATS[drawing.format].media_type, headers={INPUT_SIZE: size})


async def _received(request: Request, budget: UploadBudget) -> bytes:
    """Read the image file in a request."""
    try:
        body = await asyncio.wait_for(
            read_body(request.stream(), request.headers.get("content-length"), budget), UPLOAD_SECONDS
        )
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise RequestError(408, f"the upload took more than {UPLOAD_SECONDS:.0f} seconds; try again") from error
    except ClientDisconnect as error:
        raise RequestError(422, "the upload was cut off; send it again") from error
    return image_bytes(body, request.headers.get("content-type", ""))
