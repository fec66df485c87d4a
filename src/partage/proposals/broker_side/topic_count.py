"""The topics and threads of a consumer, in the format of Kafka 0.7.

A JSON object has the threads of each topic: ``{"clicks": 2}``. ``*2*pattern`` reads all topics
whose whole name matches the pattern with two threads each, ``!2!pattern`` all others. The patterns
are those of `TopicPattern`, so that no consumer can stall the coordinator with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from partage.proposals.topic_pattern import TopicPattern

THREADS_MAX: Final = 1_000
_WILDCARD: Final = re.compile(r"([*!])([0-9]{1,4})\1(.+)", re.DOTALL)
_STATIC: Final = msgspec.json.Decoder(dict[str, int])


class TopicCount(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed topic count: either threads by topic, or a pattern."""

    threads: dict[str, int] = {}
    pattern: TopicPattern | None = None
    is_excluding: bool = False
    pattern_threads: int = 0

    @property
    def is_wildcard(self) -> bool:
        """True if the topics are given by a pattern."""
        return self.pattern is not None

    def threads_of(self, topic: str) -> int:
        """Return the number of threads for a topic; 0 if the consumer does not read it."""
        if self.pattern is None:
            return self.threads.get(topic, 0)
        is_match = self.pattern.matches(topic)
        return self.pattern_threads if is_match is not self.is_excluding else 0


def parse_topic_count(text: str) -> TopicCount:
    """Parse the ``topic_count`` of a registration.

    Raises:
        ValueError: The text has neither form, a pattern is invalid, or a number of threads is not
            between 1 and `THREADS_MAX`.
    """
    wildcard = _WILDCARD.fullmatch(text)
    if wildcard is None:
        try:
            threads = _STATIC.decode(text)
        except msgspec.MsgspecError as error:
            raise ValueError(f"topic_count {text!r} is invalid: {error}") from error
        _check_threads(threads.values())
        return TopicCount(threads=threads)
    sign, count, pattern = wildcard.groups()
    _check_threads([int(count)])
    return TopicCount(
        pattern=TopicPattern(pattern), is_excluding=sign == "!", pattern_threads=int(count)
    )


def _check_threads(counts: Iterable[int]) -> None:
    for count in counts:
        if not 1 <= count <= THREADS_MAX:
            raise ValueError(f"{count} threads are not between 1 and {THREADS_MAX}")


def static_topic_count(topics: Iterable[str], threads: int = 1) -> str:
    """Return the topic count for these topics, with the same number of threads for each."""
    return msgspec.json.encode(dict.fromkeys(sorted(topics), threads)).decode()


def pattern_topic_count(pattern: str, threads: int = 1) -> str:
    """Return the topic count for all topics whose whole name matches a pattern."""
    return f"*{threads}*{pattern}"
