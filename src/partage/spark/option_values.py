"""Parsers of option values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from partage.spark.bounds import SparkOptionError

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION: Final = re.compile(rf"(\d+)\s*({'|'.join(_UNITS_MS)})?")


def parse_positive(name: str, text: str) -> int:
    """Parse a whole number from 1 to 2³¹ - 1.

    Raises:
        SparkOptionError: if the text is not such a number.
    """
    try:
        value = int(text.strip())
    except ValueError:
        value = 0
    if not 0 < value < 2**31:
        raise SparkOptionError(f"{name} takes a whole number above zero, not {text!r}")
    return value


def parse_boolean(name: str, text: str) -> bool:
    """Parse ``true`` or ``false``.

    Raises:
        SparkOptionError: if the text is neither.
    """
    return parse_choice(name, text, ("true", "false")) == "true"


def parse_choice(name: str, text: str, choices: Sequence[str]) -> str:
    """Return the choice that the text names, in lower case.

    Raises:
        SparkOptionError: if the text is not one of ``choices``.
    """
    word = text.strip().lower()
    if word not in choices:
        raise SparkOptionError(f"{name} takes {' or '.join(choices)}, not {text!r}")
    return word


def parse_name(name: str, text: str) -> str:
    """Return a name without the spaces around it.

    Raises:
        SparkOptionError: if it is empty.
    """
    stripped = text.strip()
    if not stripped:
        raise SparkOptionError(f"{name} is empty")
    return stripped


def parse_duration_ms(name: str, text: str) -> int:
    """Parse a duration such as ``15m`` or ``10s``; a number without a unit is in ms.

    Raises:
        SparkOptionError: if the text is not a duration.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise SparkOptionError(f"{name} takes a time such as 15m, 10s or 500ms, not {text!r}")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def suggest_name(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return ``; did you mean X?`` if a known name is similar, or else an empty string.

    ``prefix`` is put before the suggested name.
    """
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {prefix}{by_lower[found[0]]}?" if found else ""
