"""Errors that a user can fix: what was given, what is accepted, what to do."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """Shown by the command line as one line on stderr with exit code 2; a ValueError in Python."""


class InputError(UserError):
    """An input is missing or cannot be used."""


class OutputError(UserError):
    """A result cannot be written."""


class DiskFullError(OutputError):
    """A result cannot be written, and neither can the next one."""


class MissingExtra(UserError, ImportError):
    """A library is missing that an extra of pixeldiff installs."""

    def __init__(self, extra: str, what: str, library: str | None) -> None:
        message = f"{what} needs {library}; install it with: pip install 'pixeldiff[{extra}]'"
        ImportError.__init__(self, message, name=library)
        self._arguments = (extra, what, library)

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str | None]]:
        """Pickle the arguments: workers send their errors."""
        return type(self), self._arguments


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known one, or all of them."""
    import difflib

    known = list(known)
    if close := difflib.get_close_matches(name, known, 1):
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(known) or 'none'}"
