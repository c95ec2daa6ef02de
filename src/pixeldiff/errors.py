"""The one exception for mistakes a user can mend: what was given, what is accepted, what to do."""

from __future__ import annotations


class UserError(ValueError):
    """Shown by the command line as one line on stderr with exit code 2; a ValueError in Python."""


def needs(extra: str, what: str, error: ImportError) -> UserError:
    """The one sentence about what to install: `raise needs("train", "training", error) from error`."""
    return UserError(f"{what} needs {error.name}; install it with: pip install 'pixeldiff[{extra}]'")
