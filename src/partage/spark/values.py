"""Values of options out of their text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from partage.spark.bounds import BadOption


def positive(name: str, text: str) -> int:
    """A whole number above zero that fits 31 bits. Raises `BadOption`."""
    try:
        value = int(text.strip())
    except ValueError:
        value = 0
    if not 0 < value < 2**31:
        raise BadOption(f"{name} takes a whole number above zero, not {text!r}")
    return value


def truth(name: str, text: str) -> bool:
    """``true`` or ``false``. Raises `BadOption`."""
    return one_of(name, text, ("true", "false")) == "true"


def one_of(name: str, text: str, choices: Sequence[str]) -> str:
    """One of the words. Raises `BadOption`."""
    word = text.strip().lower()
    if word not in choices:
        raise BadOption(f"{name} takes {' or '.join(choices)}, not {text!r}")
    return word


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` where there is a name like this one, otherwise nothing."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""
