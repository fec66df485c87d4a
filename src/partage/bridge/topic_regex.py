"""Regular expressions that select topics in the broker (KIP-848), with the syntax of RE2.

RE2 matches in linear time and compiles to bounded memory, so a client's expression cannot block the
coordinator. Without the package ``google-re2`` (the extra ``re2``), a subset of the syntax works:
`LinearPattern`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

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


class TopicRegexError(ValueError):
    """Raised if a regular expression is invalid; the message is the reason."""


def check_regex(regex: str) -> str | None:
    """Return the reason why a regular expression is invalid; None if it is valid."""
    try:
        _compile(regex)
    except TopicRegexError as error:
        return str(error)
    return None


def matching_topics(regexes: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """Match regular expressions against topics.

    Args:
        regexes: The regular expressions. An invalid one, such as one that an earlier version of
            RE2 accepted, matches no topic.
        topics: The names of all topics. Kafka includes internal ones.

    Returns:
        For each expression, the topics whose whole name it matches.
    """
    names = list(topics)
    found = {}
    for regex in regexes:
        try:
            is_match = _compile(regex)
        except TopicRegexError:
            found[regex] = frozenset[str]()
        else:
            found[regex] = frozenset(filter(is_match, names))
    return found


def _compile(regex: str) -> Callable[[str], Any]:
    """Return the function that matches whole names.

    Raises:
        TopicRegexError: The expression is invalid or too large.
    """
    re2 = _re2()
    if re2 is None:
        return _compile_subset(regex)
    unicode_classes = regex.count("\\p") + regex.count("\\P")
    if len(regex) + _UNICODE_CLASS_LENGTH * unicode_classes > _LENGTH_MAX:
        raise TopicRegexError("the expression is too large")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    options.never_capture = True  # takes a tenth of the time where the automaton does not fit
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        raise TopicRegexError(_reason(error)) from None
    match: Callable[[str], Any] = compiled.fullmatch
    return match


@cache
def _re2() -> Any:
    """Return the package, or None. The import at first use keeps 2 ms out of a broker's start."""
    try:
        import re2
    except ImportError:  # there is no wheel for musllinux
        return None
    return re2


def _compile_subset(regex: str) -> Callable[[str], Any]:
    try:
        return LinearPattern(regex).matches
    except ValueError as error:
        raise TopicRegexError(
            f"{error} (all of RE2's syntax needs partage[re2] on the broker)"
        ) from None


def _reason(error: Exception) -> str:
    """Return Kafka's text for an error, which does not repeat the expression."""
    text: bytes = error.args[0]
    kind = text.decode(errors="replace").partition(": ")[0]
    return _KAFKA_TEXTS.get(kind, kind)
