"""The one exception for mistakes a user can mend: what was given, what is accepted, what to do."""


class UserError(ValueError):
    """Shown by the command line as one line on stderr with exit code 2; a ValueError in Python."""
