"""Suggestions for misspelled names, at the end of error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

_SUGGESTIONS_MAX: Final = 3
#: Number of names whose distance is computed, which takes longer than the first comparison.
_CANDIDATES_MAX: Final = 10


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
    """Return the known words that begin with a word, or else those that differ by a few letters."""
    extended = [each for each in known if word and each.startswith(word)]
    if extended:
        return extended
    # Common letters are not enough: for difflib, "proposal" resembles "grops".
    candidates = difflib.get_close_matches(word, known, _CANDIDATES_MAX)
    distances = {each: _distance(word, each) for each in candidates}
    least = min(distances.values(), default=0)
    return [
        each
        for each, distance in distances.items()
        if distance <= min(least + 1, max(1, max(len(word), len(each)) // 3))
    ]


def _distance(one: str, other: str) -> int:
    """Return the number of inserted, deleted, replaced and swapped letters between two words."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        row = [i + 1]
        for j, its in enumerate(other):
            least = min(last[j] + (letter != its), last[j + 1] + 1, row[j] + 1)
            if i and j and letter == other[j - 1] and one[i - 1] == its:
                least = min(least, before[j - 1] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
