"""Regular expressions that select topics in the broker (KIP-848), with the syntax of RE2.

RE2 matches in linear time and compiles to bounded memory. But the time for a name also grows with
the size of the compiled expression. So a broker matches on its event loop only if `is_quick_match`
is True. Without the package ``google-re2`` (the extra ``re2``), a subset of the syntax works:
`LinearPattern`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from partage.statemachine.linear_pattern import LinearPattern

#: The maximum memory of a compiled expression and its automaton, in bytes. It allows for about
#: 10,000 characters. The worst expressions then take 0.1 s for each name of 249 characters.
_MEMORY_MAX: Final = 1 << 18

#: The maximum length of an expression. A Unicode class takes 0.1 ms to compile, so it counts as
#: many characters.
_LENGTH_MAX: Final = 8_192
_UNICODE_CLASS_LENGTH: Final = 100

#: The texts of RE2 for errors, with those of RE2/J, which Kafka's brokers send.
_KAFKA_TEXTS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


#: Limits of a quick match: expressions, their weight, and steps. A step is one character of a name
#: for one instruction of a compiled expression; it takes up to 10 ns on an idle core. An expression
#: is compiled in up to 5 ms, with the subset in up to 10 ms.
_QUICK_REGEXES_MAX: Final = 5
_QUICK_WEIGHT_MAX: Final = 500
_QUICK_STEPS_MAX: Final = 500_000

#: For the subset, a character takes as many steps besides those of the expression.
_SUBSET_STEPS: Final = 22

#: Names that are matched before the next check for the end of the time.
_NAMES_PER_CHECK: Final = 10


class TopicRegexError(ValueError):
    """Raised if a regular expression is invalid; the message is the reason."""


def check_regex(regex: str) -> str | None:
    """Return the reason why a regular expression is invalid; None if it is valid."""
    try:
        _compile(regex)
    except TopicRegexError as error:
        return str(error)
    return None


def is_quick_match(regexes: Sequence[str], topics: Sequence[str]) -> bool:
    """True if `matching_topics` takes about 10 ms at most, whatever the expressions are."""
    if len(regexes) > _QUICK_REGEXES_MAX or sum(map(_weight, regexes)) > _QUICK_WEIGHT_MAX:
        return False
    characters = sum(map(len, topics))
    if len(regexes) * characters > _QUICK_STEPS_MAX:
        return False
    size = 0
    for regex in regexes:
        with contextlib.suppress(TopicRegexError):
            size += _compile(regex).size
    return size * characters <= _QUICK_STEPS_MAX


def matching_topics(
    regexes: Iterable[str], topics: Iterable[str], is_over: Callable[[], bool] = lambda: False
) -> dict[str, frozenset[str]]:
    """Match regular expressions against topics.

    Args:
        regexes: The regular expressions. An invalid one, such as one that an earlier version of
            RE2 accepted, matches no topic.
        topics: The names of all topics. Kafka includes internal ones.
        is_over: Returns True when the result is no longer needed.

    Returns:
        For each expression, the topics whose whole name it matches.

    Raises:
        TimeoutError: ``is_over`` returned True.
    """
    names = list(topics)
    found = {}
    for regex in regexes:
        try:
            matches = _compile(regex).matches
        except TopicRegexError:
            found[regex] = frozenset[str]()
            continue
        matching: list[str] = []
        for start in range(0, len(names), _NAMES_PER_CHECK):
            if is_over():
                raise TimeoutError("the time for regular expressions is over")
            matching += filter(matches, names[start : start + _NAMES_PER_CHECK])
        found[regex] = frozenset(matching)
    return found


def _weight(regex: str) -> int:
    """Return the length of an expression, in which a Unicode class counts as many characters."""
    unicode_classes = regex.count("\\p") + regex.count("\\P")
    return len(regex) + _UNICODE_CLASS_LENGTH * unicode_classes


class _Compiled(NamedTuple):
    """A compiled expression: the function that matches whole names, and its size."""

    matches: Callable[[str], Any]
    size: int


def _compile(regex: str) -> _Compiled:
    """Compile an expression.

    Raises:
        TopicRegexError: The expression is invalid or too large.
    """
    re2 = _re2()
    if re2 is None:
        return _compile_subset(regex)
    if _weight(regex) > _LENGTH_MAX:
        raise TopicRegexError("the expression is too large")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    options.never_capture = True  # takes a tenth of the time where the automaton does not fit
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        raise TopicRegexError(_reason(error)) from None
    return _Compiled(compiled.fullmatch, compiled.programsize)


@cache
def _re2() -> Any:
    """Return the package, or None. The import at first use keeps 2 ms out of a broker's start."""
    try:
        import re2
    except ImportError:  # there is no wheel for musllinux
        return None
    return re2


def _compile_subset(regex: str) -> _Compiled:
    try:
        pattern = LinearPattern(regex)
    except ValueError as error:
        raise TopicRegexError(
            f"{error} (all of RE2's syntax needs partage[re2] on the broker)"
        ) from None
    return _Compiled(pattern.matches, _SUBSET_STEPS + pattern.size)


def _reason(error: Exception) -> str:
    """Return Kafka's text for an error, which does not repeat the expression."""
    text: bytes = error.args[0]
    kind = text.decode(errors="replace").partition(": ")[0]
    return _KAFKA_TEXTS.get(kind, kind)
