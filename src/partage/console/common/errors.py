"""Errors that end a command, and their exit codes."""

from __future__ import annotations

EXIT_FAILED = 1
"""Exit code: the command was valid but failed."""

EXIT_USAGE = 2
"""Exit code: the options are invalid."""


class CommandError(Exception):
    """Raised to end a command with ``error: MESSAGE`` on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def usage_error(message: str) -> CommandError:
    """Return the error for invalid options, with exit code 2."""
    return CommandError(message, EXIT_USAGE)
