"""Errors that end a command, their exit codes, and one line on stderr for each."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Final, NoReturn

EXIT_FAILED = 1
"""Exit code: the command was valid but failed."""

EXIT_USAGE = 2
"""Exit code: the options are invalid."""

EXIT_STOPPED = 130
"""Exit code: the user stopped the command with Ctrl-C."""

#: The extra that installs a package, for packages that only some commands need.
EXTRAS: Final = {
    "greenlet": "world",
    "kazoo": "zookeeper",
    "markdown_it": "plot",
    "matplotlib": "plot",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "scramp": "sasl",
    "starlette": "web",
    "uvicorn": "web",
}


#: Errors of a write to a disk that is full, or that fails.
_FULL: Final = frozenset({errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})


class CommandError(Exception):
    """Raised to end a command with ``error: MESSAGE`` on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


def usage_error(message: str) -> CommandError:
    """Return the error for invalid options, with exit code 2."""
    return CommandError(message, EXIT_USAGE)


def require_packages(*packages: str) -> None:
    """Raise `ModuleNotFoundError` if a package is missing; `errors_on_stderr` explains it."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def install_hint(*packages: str) -> str:
    """Return the command that installs optional packages."""
    extras = sorted({EXTRAS[each] for each in packages})
    return f"pip install 'partage[{','.join(extras)}]'"


@contextmanager
def errors_on_stderr() -> Iterator[None]:
    """End the process with one line on stderr for an error of a command in this context."""
    try:
        yield
        return
    except CommandError as error:
        failure = error
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        failure = CommandError(f"this command needs {package}: {install_hint(package)}")
    except OSError as error:
        if error.errno not in _FULL:
            raise
        discard_stdout()
        failure = CommandError(f"cannot write the output: {error.strerror}")
    except ImportError as error:
        if sys.platform != "win32":
            raise
        _end(str(error), EXIT_FAILED)
    _end(failure.message, failure.exit_code)


def discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that the flush at exit reports no error."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(message: str, exit_code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
