"""Suggestions for misspelled names, at the end of error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

_SUGGESTIONS_MAX: Final = 3


def did_you_mean(given: str | Iterable[str], known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` with similar known words, or an empty text.

    Args:
        given: One word, or several.
        known: Words to suggest, at most three of them.
    """
    words = [given] if isinstance(given, str) else list(given)
    known = [each for each in known if each not in words]
    similar = list(dict.fromkeys(each for word in words for each in _similar(word, known)))
    return f"; did you mean {' or '.join(similar[:_SUGGESTIONS_MAX])}?" if similar else ""


def missing_names(what: str, missing: Collection[str], existing: Iterable[str]) -> str:
    """Return the error message for names that do not exist, with similar names that do.

    Args:
        what: The kind of the names, such as ``topic`` or ``group``.
        missing: The names that do not exist; at least one.
        existing: All existing names of this kind.
    """
    return f"no such {what}: {', '.join(missing)}{did_you_mean(missing, existing)}"


def _similar(word: str, known: list[str]) -> list[str]:
    """Return the known words that begin with a word, or else those that resemble it."""
    extended = [each for each in known if word and each.startswith(word)]
    return extended or difflib.get_close_matches(word, known, _SUGGESTIONS_MAX)
