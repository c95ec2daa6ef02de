"""`pixeldiff serve`: the web page and its API on this machine."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import ExitStack
from pathlib import Path

import click

from pixeldiff.cli._network import Open, open_network
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.inference.edges import TASK
from pixeldiff.machine import cores


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 lets other machines in.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use, one for each image. [default: all]"
)
@click.option("--queue", type=click.IntRange(min=0), default=64, show_default=True, help="Requests that may wait.")
@click.option("--weights", type=click.Path(path_type=Path), multiple=True, help="A weights file to offer first.")
@click.option("--cors", metavar="ORIGIN", multiple=True, help="Let pages of this origin use the API.")
def serve(
    host: str, port: int, threads: int | None, queue: int, weights: tuple[Path, ...], cors: tuple[str, ...]
) -> None:
    """Serve a page that finds edges, and POST /api/edges for programs. Stop it with Ctrl-C."""
    try:
        import uvicorn

        from pixeldiff.serve.app import LOOPBACK, create_app, shipped
        from pixeldiff.serve.connections import configured
    except ImportError as error:
        raise MissingExtra("serve", "serve", error.name) from error
    name = f"[{host}]" if ":" in host else host
    local = _is_local(host)
    with ExitStack() as exported:
        models = _offered(weights, exported)
        models |= {name: path for name, path in shipped().items() if name not in models}
        if not models:
            raise UserError("no networks to serve; give one with --weights")
        hosts = tuple(dict.fromkeys((*LOOPBACK, name))) if local else ()
        app = create_app(models, threads or cores(), 1, queue, cors, hosts)
        listener = _listen(host, port)
        if not local:
            click.echo(f"{host}: whoever reaches this machine can use the server; there is no password.", err=True)
        click.echo(f"http://{name}:{listener.getsockname()[1]}")
        uvicorn.Server(configured(app)).run(sockets=[listener])


def _offered(files: tuple[Path, ...], exported: ExitStack) -> dict[str, Path]:
    """The files that run of the networks that were given, by name; each is opened once."""
    named: dict[str, Open] = {}
    for path in files:
        opened = exported.enter_context(open_network(path, TASK))  # a damaged file is told now, not to each client
        if opened.name in named:
            raise UserError(
                f"{named[opened.name].path} and {path} would both be called {opened.name}; rename one of them"
            )
        named[opened.name] = opened
    return {name: opened.runs for name, opened in named.items()}


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
