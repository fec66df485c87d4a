"""Where to begin reading."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import ELECTION_WAIT_S, Place, list_offsets


class StartOrigin(Enum):
    """What a start is counted from."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"


class StartPosition(NamedTuple):
    """The beginning, an offset, or so many records before the end."""

    origin: StartOrigin
    number: int = 0


BEGINNING: Final = StartPosition(StartOrigin.BEGINNING)
END: Final = StartPosition(StartOrigin.END)
_NAMED: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}


def parse_start_position(text: str) -> StartPosition:
    """The start in an option's words.

    Raises:
        Failure: it is none.
    """
    if text in _NAMED:
        return _NAMED[text]
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise usage_error(f"invalid --offset {text!r}; use N, -N, {', '.join(_NAMED)}")
    number = int(text)
    return (
        StartPosition(StartOrigin.END, -number)
        if text.startswith("-")
        else StartPosition(StartOrigin.OFFSET, number)
    )


class ReadRange(NamedTuple):
    """What to read of a partition: from an offset to where the partition ends by now."""

    start: int
    end: int


def resolve_ranges(
    cluster: ClusterClient, places: Iterable[Place], start: StartPosition
) -> dict[Place, ReadRange]:
    """Where to start in each partition, and where each ends.

    Raises:
        Failure: a partition without a leader; an offset that it does not have.
    """
    places = list(places)
    earliest = list_offsets(cluster, places, OffsetSpec.earliest(), patience_s=ELECTION_WAIT_S)
    # Who has no leader by now is not waited for a second time.
    latest = list_offsets(cluster, earliest, OffsetSpec.latest(), patience_s=ELECTION_WAIT_S)
    lost = [place for place in places if place not in latest]
    if lost:
        raise _leaderless(places, lost)
    found = {}
    for topic, partition in places:
        first, end = earliest[topic, partition], latest[topic, partition]
        if start.origin is StartOrigin.OFFSET and not first <= start.number <= end:
            raise CommandError(
                f"offset {start.number} is out of range for partition {partition} of {topic}, "
                f"which has {first} to {end}"
            )
        found[topic, partition] = ReadRange(_offset(start, first, end), end)
    return found


def _leaderless(places: list[Place], lost: list[Place]) -> CommandError:
    topic, partition = lost[0]
    others = {number for _, number in places} - {number for _, number in lost}
    aside = "; to read the others, name each of them with -p" if others else ""
    return CommandError(f"partition {partition} of {topic} has no leader{aside}")


def _offset(start: StartPosition, first: int, end: int) -> int:
    if start.origin is StartOrigin.BEGINNING:
        return first
    return start.number if start.origin is StartOrigin.OFFSET else max(first, end - start.number)
