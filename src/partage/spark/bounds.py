"""Parsers for the start and end of a read: ``earliest``, ``latest``, and JSON offsets or
timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from partage.model.topic_partition import TopicPartition

#: Special values instead of an offset, as in Spark's Kafka connector.
LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2


class SparkOptionError(ValueError):
    """An option is unknown, missing, invalid, or contradicts another option."""


class Earliest(msgspec.Struct, frozen=True, tag=True):
    """The first available record of each partition."""


class Latest(msgspec.Struct, frozen=True, tag=True):
    """The end of each partition at the time of planning."""


class AtOffsets(msgspec.Struct, frozen=True, tag=True):
    """An offset for each partition; `LATEST_OFFSET` and `EARLIEST_OFFSET` are allowed."""

    offsets: Mapping[TopicPartition, int]


class AtTimestamp(msgspec.Struct, frozen=True, tag=True):
    """The first record of each partition at or after one timestamp, in ms since the epoch."""

    timestamp_ms: int


class AtTimestamps(msgspec.Struct, frozen=True, tag=True):
    """The first record of each partition at or after its own timestamp."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetBound: TypeAlias = Earliest | Latest | AtOffsets | AtTimestamp | AtTimestamps


def parse_partitions(name: str, text: str) -> list[TopicPartition]:
    """Parse the value of ``assign``: ``{"topic": [0, 1], ...}``.

    Raises:
        SparkOptionError: if the text is not such JSON, or names a partition twice.
    """
    form = f'{name} takes JSON such as {{"topic": [0, 1]}}'
    found = []
    for topic, indexes in _object(text, form).items():
        if not isinstance(indexes, list) or not indexes:
            raise SparkOptionError(f"{form}; {topic!r} has {_abbreviate(indexes)}")
        for index in indexes:
            if not _is_number(index, 0):
                raise SparkOptionError(f"{form}; {topic!r} has {_abbreviate(index)}")
            found.append(TopicPartition(topic, index))
    if not found:
        raise SparkOptionError(f"{form}; it names no partition")
    if len(set(found)) < len(found):
        raise SparkOptionError(f"{name} names a partition twice: {text}")
    return found


def parse_offsets(name: str, text: str) -> OffsetBound:
    """Parse ``earliest``, ``latest``, or ``{"topic": {"0": 23, "1": -2}}``.

    Raises:
        SparkOptionError: if the text has none of these forms.
    """
    word = text.strip().lower()
    if word == "earliest":
        return Earliest()
    if word == "latest":
        return Latest()
    form = (
        f'{name} takes earliest, latest, or JSON such as {{"topic": {{"0": 23, "1": -2}}}} '
        "(-2 is earliest, -1 latest)"
    )
    return AtOffsets(_per_partition(text, form, EARLIEST_OFFSET))


def parse_timestamp(name: str, text: str) -> AtTimestamp:
    """Parse a timestamp in milliseconds since the epoch.

    Raises:
        SparkOptionError: if the text is not such a number.
    """
    try:
        timestamp_ms = int(text.strip())
    except ValueError:
        timestamp_ms = -1
    if timestamp_ms < 0:
        raise SparkOptionError(
            f"{name} takes milliseconds since 1970, such as 1609459200000, not {text!r}"
        )
    return AtTimestamp(timestamp_ms)


def parse_timestamps(name: str, text: str) -> AtTimestamps:
    """Parse a timestamp for each partition: ``{"topic": {"0": 1609459200000}}``.

    Raises:
        SparkOptionError: if the text is not such JSON.
    """
    form = f'{name} takes JSON such as {{"topic": {{"0": 1609459200000}}}}'
    return AtTimestamps(_per_partition(text, form, 0))


def _per_partition(text: str, form: str, least: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, values in _object(text, form).items():
        if not isinstance(values, dict) or not values:
            raise SparkOptionError(f"{form}; {topic!r} has {_abbreviate(values)}")
        for index, value in values.items():
            if not (index.isascii() and index.isdigit()) or not _is_number(value, least):
                raise SparkOptionError(f"{form}; {topic!r} has {_abbreviate({index: value})}")
            found[TopicPartition(topic, int(index))] = value
    if not found:
        raise SparkOptionError(f"{form}; it names no partition")
    return found


def _object(text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise SparkOptionError(f"{form}; {_abbreviate(text)} is not valid ({error})") from None
    if not isinstance(found, dict):
        raise SparkOptionError(f"{form}; not {_abbreviate(found)}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _is_number(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**63


def _abbreviate(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
