"""The command line: one command is one function in one file. A mistake is one line on stderr and exit code 2.

The command `detect` is the function `detect` in `cli/detect.py`, and so on for each name in COMMANDS. A module is
imported only when its command runs, so `pixeldiff detect` does not need what training imports.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import shlex
import sys
import warnings

import click
from click.shell_completion import CompletionItem

from pixeldiff.errors import UserError

# command -> its one-line help
COMMANDS: dict[str, str] = {
    "detect": "Detect edges in images, folders, globs or videos.",
    "serve": "Serve a web page that detects edges, and an API for programs.",
    "objects": "Find objects in images, folders or videos.",
    "classify": "Classify images.",
    "faces": "Align faces, compare two, search a folder.",
    "models": "List the pretrained models.",
    "bench": "Measure latency, throughput and memory on this machine.",
    "eval": "Score models or edge maps on data sets, clean or corrupted.",
    "train": "Train a model from a recipe.",
    "recipes": "List the recipes and the numbers they are for.",
    "data": "Write pseudo-labels and corrupted images.",
    "info": "Show model card, license, parameters, operations and memory.",
    "analyze": "Plot what a binary network has learned.",
    "export": "Export weights to a file that runs without torch.",
}


class _Commands(click.Group):
    """Commands by name; the module behind one is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"pixeldiff.cli.{name}"), name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UserError(f"options follow the command; hint: pixeldiff detect ... {error.option_name}") from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UserError(_suggest(args))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # From COMMANDS, as below.
        return [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From COMMANDS, not from the commands: help must not import torch.
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _suggest(arguments: list[str]) -> str:
    """Return the message for a word that is not a command, with the nearest command."""
    word, *rest = arguments
    more = shlex.join(rest[:3]) + (" ..." if len(rest) > 3 else "")
    if close := difflib.get_close_matches(word, COMMANDS, 1):
        return f"no such command {word!r}; hint: pixeldiff {close[0]} {more}".rstrip()
    from pixeldiff.image import SUFFIXES
    from pixeldiff.jobs.video import SUFFIXES as VIDEO_SUFFIXES

    if os.path.exists(word) or os.path.splitext(word)[1].lower() in (*SUFFIXES, *VIDEO_SUFFIXES):
        return f"missing command; hint: pixeldiff detect {shlex.quote(word)} {more}".rstrip()
    return f"no such command {word!r}; expected {', '.join(COMMANDS)}"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pixeldiff", prog_name="pixeldiff")  # asked for only when shown
def app() -> None:
    """Edges from images, their benchmark, and pixel difference networks."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line, not a traceback. A command may return its exit code."""
    if getattr(sys.stdout, "errors", None) == "strict":  # names of files may be no text
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    warnings.filterwarnings("ignore", module="PIL")  # about odd files; what matters comes as an error
    try:
        _check_empty(sys.argv[1:] if arguments is None else arguments)
        result = app.main(arguments, prog_name="pixeldiff", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        code = 0
    except click.NoSuchOption as error:
        close = difflib.get_close_matches(error.option_name, error.possibilities or (), 1, 0.7)
        code = _say(f"no such option {error.option_name}" + "".join(f"; hint: {name}" for name in close))
    except click.ClickException as error:
        code = _say(error.format_message())
    except UserError as error:
        code = _say(str(error))
    except BrokenPipeError:  # `pixeldiff models | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        if error.filename:
            code = _say(f"cannot use {error.filename}: {error.strerror}; check the name and the permissions")
        else:
            code = _say(f"cannot go on ({error.strerror or error}); is there room where the output goes?")
    except (KeyboardInterrupt, click.Abort):
        _say("stopped")
        code = 130
    sys.exit(code)


def _check_empty(arguments: list[str]) -> None:
    """Raise for an unset variable of a shell: as a path it would mean the current folder."""
    if empty := [one or "''" for one in arguments if not one or re.fullmatch("--[a-z-]+=", one)]:
        raise UserError(
            f"an empty argument was given ({empty[0]}); hint: is a variable not set? The current folder is ."
        )


def _say(message: str) -> int:
    line = re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: ascii(match[0])[1:-1], " ".join(message.split()))
    print("error: " + line, file=sys.stderr)  # control characters in names do not reach the terminal
    return 2
