"""Text from other processes, for log lines and tables."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with its control characters escaped, so that it is one line.

    A group id with a newline must not forge a line of a log.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
