"""The errors that a user can mend: what was given, what is accepted, what to do."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(ValueError):
    """Shown by the command line as one line on stderr with exit code 2; a ValueError in Python."""


class InputError(UserError):
    """Something that was given to be read cannot be used."""


class OutputError(UserError):
    """A result cannot be written where it should go."""


class DiskFullError(OutputError):
    """Nothing can be written any more, this file nor the next."""


class MissingExtra(UserError, ImportError):
    """Something needs a library that an extra of pixeldiff installs."""

    def __init__(self, extra: str, what: str, library: str | None) -> None:
        said = f"{what} needs {library}; install it with: pip install 'pixeldiff[{extra}]'"
        ImportError.__init__(self, said, name=library)
        self._given = (extra, what, library)

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str | None]]:
        """Pickle what it was made from: workers send their errors."""
        return type(self), self._given


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known one, or all of them."""
    import difflib

    known = list(known)
    if close := difflib.get_close_matches(name, known, 1):
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(known) or 'none'}"
