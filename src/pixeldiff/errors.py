"""The errors that a user can mend: what was given, what is accepted, what to do."""

from __future__ import annotations


class UserError(ValueError):
    """Shown by the command line as one line on stderr with exit code 2; a ValueError in Python."""


class InputError(UserError):
    """Something that was given to be read cannot be used."""


class OutputError(UserError):
    """A result cannot be written where it should go."""


def needs(extra: str, what: str, error: ImportError) -> UserError:
    """The one sentence about what to install: `raise needs("train", "training", error) from error`."""
    return UserError(f"{what} needs {error.name}; install it with: pip install 'pixeldiff[{extra}]'")
