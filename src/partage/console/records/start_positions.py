"""Start positions: from an option to an offset in each partition."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from confluent_kafka.admin import OffsetSpec

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.offsets import ELECTION_WAIT_S, list_offsets
from partage.model.topic_partition import TopicPartition


class StartOrigin(Enum):
    """Reference point of a start position."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"


class StartPosition(NamedTuple):
    """A start position: the beginning, the end, an offset, or N records before the end."""

    origin: StartOrigin
    number: int = 0


BEGINNING: Final = StartPosition(StartOrigin.BEGINNING)
END: Final = StartPosition(StartOrigin.END)
_NAMED: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}


def parse_start_position(text: str) -> StartPosition:
    """Return the start position of an ``--offset`` value.

    Raises:
        CommandError: The value is invalid.
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
    """Offsets to read in a partition: from ``start`` to the end offset at this time."""

    start: int
    end: int


def resolve_ranges(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], start: StartPosition
) -> dict[TopicPartition, ReadRange]:
    """Return the range to read in each partition.

    Raises:
        CommandError: A partition has no leader, or the offset is out of range.
    """
    partitions = list(partitions)
    earliest = list_offsets(cluster, partitions, OffsetSpec.earliest(), patience_s=ELECTION_WAIT_S)
    # Partitions that have no leader after the first wait are not waited for again.
    latest = list_offsets(cluster, earliest, OffsetSpec.latest(), patience_s=ELECTION_WAIT_S)
    lost = [partition for partition in partitions if partition not in latest]
    if lost:
        raise _leaderless(partitions, lost)
    found = {}
    for partition in partitions:
        first, end = earliest[partition], latest[partition]
        if start.origin is StartOrigin.OFFSET and not first <= start.number <= end:
            raise CommandError(
                f"offset {start.number} is out of range for partition {partition.partition} of "
                f"{partition.topic}, which has {first} to {end}"
            )
        found[partition] = ReadRange(_offset(start, first, end), end)
    return found


def _leaderless(partitions: list[TopicPartition], lost: list[TopicPartition]) -> CommandError:
    topic, partition = lost[0]
    others = {number for _, number in partitions} - {number for _, number in lost}
    aside = "; to read the others, name each of them with -p" if others else ""
    return CommandError(f"partition {partition} of {topic} has no leader{aside}")


def _offset(start: StartPosition, first: int, end: int) -> int:
    if start.origin is StartOrigin.BEGINNING:
        return first
    return start.number if start.origin is StartOrigin.OFFSET else max(first, end - start.number)
