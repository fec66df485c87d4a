"""Patterns of topic names: a consumer sends its pattern to the coordinator, which matches it with
every topic.
"""

from __future__ import annotations

from typing import Final

from partage.statemachine.linear_pattern import LinearPattern

_CACHE_MAX: Final = 4_096


class TopicPattern(LinearPattern):
    """A pattern that matches whole topic names, with a cache of results.

    Args:
        text: The pattern.

    Raises:
        ValueError: The pattern is invalid, too large, or needs more than an automaton.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._results: dict[str, bool] = {}

    def matches(self, text: str) -> bool:
        """True if the pattern matches the whole name."""
        result = self._results.get(text)
        if result is None:
            if len(self._results) >= _CACHE_MAX:
                self._results.clear()
            result = self._results[text] = super().matches(text)
        return result
