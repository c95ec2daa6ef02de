"""`pixeldiff serve`: serve the web page and its API from this machine."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack
from pathlib import Path

import click

from pixeldiff.cli._network import Open, open_network
from pixeldiff.errors import InputError, MissingExtra, OutputError
from pixeldiff.inference.edges import TASK
from pixeldiff.machine import cores


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 accepts other machines."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Number of threads, one per image. [default: all cores]",
)
@click.option(
    "--queue", type=click.IntRange(min=0), default=64, show_default=True, help="Number of requests that may wait."
)
@click.option("-m", "--model", "models", metavar="NAME|FILE", multiple=True, help="Model to offer first; repeatable.")
@click.option("--cors", metavar="ORIGIN", multiple=True, help="Site whose pages may use the API; repeatable.")
def serve(
    host: str, port: int, threads: int | None, queue: int, models: tuple[str, ...], cors: tuple[str, ...]
) -> None:
    """Serve a web page that detects edges, and POST /api/edges for programs. Stop it with Ctrl-C."""
    try:
        import uvicorn

        from pixeldiff.serve.app import LOOPBACK, create_app, shipped
        from pixeldiff.serve.connections import configured
    except ImportError as error:
        raise MissingExtra("serve", "serve", error.name) from error
    name = f"[{host}]" if ":" in host else host
    local = _is_local(host)
    with ExitStack() as exported:
        files = _open_models(models, exported)
        files |= {name: path for name, path in shipped().items() if name not in files}
        if not files:
            raise InputError("no models to serve; give one with --model")
        hosts = tuple(dict.fromkeys((*LOOPBACK, name))) if local else ()
        app = create_app(files, threads or cores(), 1, queue, cors, hosts)
        listener = _listen(host, port)
        if not local:
            click.echo(
                f"warning: {host}: everyone who reaches this machine can use the server; there is no password", err=True
            )
        click.echo(f"http://{name}:{listener.getsockname()[1]}")
        uvicorn.Server(configured(app)).run(sockets=[listener])


def _open_models(models: tuple[str, ...], exported: ExitStack) -> dict[str, Path]:
    """Return the files to run of these models, by name; each is opened once to report a corrupt file now."""
    named: dict[str, Open] = {}
    for model in models:
        opened = exported.enter_context(open_network(model, TASK))
        if opened.name in named:
            raise InputError(
                f"{named[opened.name].path} and {model} would both be called {opened.name}; rename one of them"
            )
        named[opened.name] = opened
    return {name: opened.runs for name, opened in named.items()}


def _is_local(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # before the address is printed, so that a client may connect at once
    except OSError as error:
        raise OutputError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    return listener
