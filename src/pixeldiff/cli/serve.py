"""`pixeldiff serve`: the web page and its API on this machine."""

from __future__ import annotations

import ipaddress
import logging
import socket
from pathlib import Path

import click

from pixeldiff.errors import UserError
from pixeldiff.machine import cores
from pixeldiff.runtime.edges import EdgeDetector


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines in.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Pictures at once. [default: one per core]")
@click.option("--queue", type=click.IntRange(min=0), default=64, show_default=True, help="Requests that may wait.")
@click.option("--weights", type=click.Path(path_type=Path), multiple=True, help="An .onnx file to offer first.")
@click.option("--cors", metavar="ORIGIN", multiple=True, help="Let pages of this origin use the API.")
def serve(
    host: str, port: int, workers: int | None, queue: int, weights: tuple[Path, ...], cors: tuple[str, ...]
) -> None:
    """Serve a page that finds edges, and POST /api/edges for programs. Stop it with Ctrl-C."""
    try:
        import uvicorn

        from pixeldiff.serve.app import LOOPBACK, create_app, shipped
        from pixeldiff.serve.connections import configured
    except ImportError as error:
        raise UserError(f"serve needs {error.name}; install it with: pip install 'pixeldiff[serve]'") from error
    models: dict[str, Path] = {}
    for path in weights:
        if not path.is_file() or path.suffix != ".onnx":
            raise UserError(f"no weights file {path}; give an .onnx file written by pixeldiff export")
        if path.stem in models:
            raise UserError(f"{models[path.stem]} and {path} would both be called {path.stem}; rename one of them")
        EdgeDetector(path)  # a damaged file is told now, not to each client
        models[path.stem] = path
    models |= {name: path for name, path in shipped().items() if name not in models}
    if not models:
        raise UserError("no networks to serve; give one with --weights")
    workers = workers or cores()
    name = f"[{host}]" if ":" in host else host
    local = _is_local(host)
    hosts = tuple(dict.fromkeys((*LOOPBACK, name))) if local else ()
    app = create_app(models, workers, max(1, cores() // workers), queue, cors, hosts)
    listener = _listen(host, port)
    if not local:
        click.echo(f"{host}: whoever reaches this machine can use the server; there is no password.", err=True)
    click.echo(f"http://{name}:{listener.getsockname()[1]}")
    # What clients send wrong is told to them; it is no matter for the log.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    uvicorn.Server(configured(app)).run(sockets=[listener])


def _is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # before the address is told: who connects at once is served
    except OSError as error:
        raise UserError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    return listener
