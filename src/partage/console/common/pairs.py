"""Parsing of NAME=VALUE arguments."""

from __future__ import annotations

from partage.console.common.errors import usage_error


def parse_pairs(given: list[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dictionary. If a name is repeated, the last value wins.

    Args:
        given: Texts from the command line.
        option: Name of the option, for the error message.

    Raises:
        CommandError: A text has no ``=`` or no name.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise usage_error(f"{option} requires NAME=VALUE, not {text!r}")
        found[name.strip()] = value
    return found
