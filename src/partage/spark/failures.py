"""The reason of a failed query or job in one line."""

from __future__ import annotations

import re
from typing import Final

#: Spark's message of a failed query: an error of Java, or nothing if that error has no message.
_STREAM_FAILED: Final = re.compile(
    r"\[STREAM_FAILED\].* terminated with exception: (.*?) ?SQLSTATE"
)
#: The second line of Spark's message of a failed query, if the first one is an error of Java.
_QUERY: Final = "=== Streaming Query ==="
#: Errors of Java when a process that it talks to has ended.
_CONNECTION_ENDED: Final = ("", "null", "Broken pipe", "Connection reset")

_JVM_ENDED: Final = (
    "the JVM of Spark has ended: it was killed, or its memory was exhausted; see the log above and "
    "the log of the system. Start the program again: queries continue from their checkpoints"
)
_SOURCE_ENDED: Final = (
    "a Python process of the query has ended without an error. It was probably killed, for example "
    "because the memory was exhausted; see the log of the system. Start the query again: it "
    "continues from its checkpoint"
)
#: Spark's message if a Python process has not connected to the JVM within its fixed limit of 10 s.
_CONNECT_BACK: Final = "Python worker failed to connect back"
_WORKER_LATE: Final = (
    "a Python process of Spark did not start within 10 s, which is a fixed limit of Spark. The "
    "machine may be too busy. Start the query again: it continues from its checkpoint"
)


def failure_reason(error: BaseException) -> str:
    """Return the reason of an error that Spark has raised, in one line.

    Spark's message contains the traceback of Python and the stack of Java. If it contains an error
    of this package, that error is returned.

    Args:
        error: the exception of a query (``query.exception()``) or of an action.
    """
    if is_jvm_connection_error(error):
        return _JVM_ENDED
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _is_partage_error(line)]
    if raised:
        return raised[-1]
    if _reason_of_java(lines) in _CONNECTION_ENDED:
        return _SOURCE_ENDED
    if lines and _CONNECT_BACK in lines[0]:
        return _WORKER_LATE
    return lines[0] if lines else repr(error)


def _reason_of_java(lines: list[str]) -> str | None:
    """Return Java's error of a failed query; None if it is another error."""
    failed = _STREAM_FAILED.match(lines[0]) if lines else None
    if failed is not None:
        return failed[1].strip()
    return lines[0] if _QUERY in lines[1:2] else None


def is_jvm_connection_error(error: BaseException) -> bool:
    """True if Python has no connection to the JVM of Spark."""
    try:
        from py4j.protocol import Py4JNetworkError
    except ModuleNotFoundError:  # a client of Spark Connect, which has no JVM
        return False
    return isinstance(error, ConnectionError | Py4JNetworkError)


def _is_partage_error(line: str) -> bool:
    """True if a line ends a traceback with an error of this package, ``partage.x.Name: text``."""
    name, colon, _ = line.partition(": ")
    return bool(colon) and name.startswith("partage.") and " " not in name
