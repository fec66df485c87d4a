"""What a command ends with when it cannot do what it was asked for."""

from __future__ import annotations

FAILED = 1
"""Exit code: the command was understood and could not be done."""

MISUSED = 2
"""Exit code: the options make no sense."""


class Failure(Exception):  # noqa: N818 - it ends a command, it is no error in the program
    """Ends the command with ``error: message`` on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def misused(message: str) -> Failure:
    """The failure for options that make no sense."""
    return Failure(message, MISUSED)
