"""Where to begin reading."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from confluent_kafka.admin import OffsetSpec

from partage.console.cluster import Cluster
from partage.console.failure import Failure, misused
from partage.console.offsets import ELECTION_S, Place, offsets


class From(Enum):
    """What a start is counted from."""

    BEGINNING = "beginning"
    END = "end"
    ZERO = "offset"


class Start(NamedTuple):
    """The beginning, an offset, or so many records before the end."""

    counted_from: From
    number: int = 0


BEGINNING: Final = Start(From.BEGINNING)
END: Final = Start(From.END)
_NAMED: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}


def parse_start(text: str) -> Start:
    """The start in an option's words.

    Raises:
        Failure: it is none.
    """
    if text in _NAMED:
        return _NAMED[text]
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise misused(f"--offset is {text!r}; it wants N, -N, {', '.join(_NAMED)}")
    number = int(text)
    return Start(From.END, -number) if text.startswith("-") else Start(From.ZERO, number)


class Span(NamedTuple):
    """What to read of a partition: from an offset to where the partition ends by now."""

    start: int
    end: int


def spans(cluster: Cluster, places: Iterable[Place], start: Start) -> dict[Place, Span]:
    """Where to start in each partition, and where each ends.

    Raises:
        Failure: a partition without a leader; an offset that it does not have.
    """
    places = list(places)
    earliest = offsets(cluster, places, OffsetSpec.earliest(), patience_s=ELECTION_S)
    # Who has no leader by now is not waited for a second time.
    latest = offsets(cluster, earliest, OffsetSpec.latest(), patience_s=ELECTION_S)
    lost = [place for place in places if place not in latest]
    if lost:
        raise _leaderless(places, lost)
    found = {}
    for topic, partition in places:
        first, end = earliest[topic, partition], latest[topic, partition]
        if start.counted_from is From.ZERO and not first <= start.number <= end:
            raise Failure(
                f"offset {start.number} is not in partition {partition} of {topic}, "
                f"which has {first} up to {end}"
            )
        found[topic, partition] = Span(_offset(start, first, end), end)
    return found


def _leaderless(places: list[Place], lost: list[Place]) -> Failure:
    topic, partition = lost[0]
    others = {number for _, number in places} - {number for _, number in lost}
    aside = "; to read the others, name each with -p" if others else ""
    return Failure(f"partition {partition} of {topic} has no leader now{aside}")


def _offset(start: Start, first: int, end: int) -> int:
    if start.counted_from is From.BEGINNING:
        return first
    return start.number if start.counted_from is From.ZERO else max(first, end - start.number)
