"""Validation of the partitions, offsets and topics that users pass to consumers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from partage.client.group.offsets import OffsetAndMetadata, Offsets
from partage.model.arguments import (
    INT32_MAX,
    INT64_MAX,
    InvalidArgumentError,
    check_instance,
    check_int,
    check_text,
    check_texts,
    invalid_argument,
    shorten,
)
from partage.model.topic_partition import TopicPartition

#: A partition in the forms that users may pass: a plain pair is one of them.
PartitionLike = TopicPartition | tuple[str, int]
#: Offsets to commit in the forms that users may pass. Type checkers accept a dict with keys of one
#: type only where that type is named.
OffsetsLike = (
    Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[tuple[str, int], int | OffsetAndMetadata]
    | Mapping[PartitionLike, int | OffsetAndMetadata]
)
#: Timestamps in ms in the forms that users may pass.
TimesLike = (
    Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | Mapping[PartitionLike, int]
)


def to_topic_partition(partition: Any) -> TopicPartition:
    """Return a pair of topic and partition number as `TopicPartition`.

    Raises:
        InvalidArgumentError: It is something else, such as the name of a topic.
    """
    if isinstance(partition, str):
        raise InvalidArgumentError(
            f"{shorten(partition)} is not a partition: write ({shorten(partition)}, 0), or "
            f"partitions_of({shorten(partition)}) for all partitions of the topic"
        )
    if isinstance(partition, tuple | list) and len(partition) == 2:
        topic, number = partition
        if isinstance(topic, str):
            return TopicPartition(
                check_text("topic", topic), check_int("partition", number, most=INT32_MAX)
            )
    raise InvalidArgumentError(
        f"{shorten(partition)} is not a partition: write a topic and a number, ('flights', 0)"
    )


def to_topic_partitions(partitions: Any) -> list[TopicPartition]:
    """Return partitions as `TopicPartition`.

    Raises:
        InvalidArgumentError: One is not a partition, or ``partitions`` is not a list.
    """
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise invalid_argument("partitions", partitions, "a list of partitions, [('flights', 0)]")
    found = list(partitions)
    if isinstance(partitions, tuple) and _is_pair(found):
        raise invalid_argument("partitions", partitions, f"a list of partitions: [{partitions!r}]")
    return [to_topic_partition(partition) for partition in found]


def to_separate_partitions(method: str, partitions: Collection[Any]) -> list[TopicPartition]:
    """Return the partitions of a method that takes each one as a separate argument.

    Raises:
        InvalidArgumentError: One is not a partition; the message names the right call.
    """
    first = next(iter(partitions), None)
    if isinstance(first, list | set | frozenset) and not _is_pair(list(first)):
        raise InvalidArgumentError(f"{method}() takes partitions one by one: {method}(*partitions)")
    if _is_pair(list(partitions)):
        topic, number = partitions
        raise InvalidArgumentError(f"{method}() takes pairs: {method}(({topic!r}, {number!r}))")
    return [to_topic_partition(partition) for partition in partitions]


def _is_pair(values: list[Any]) -> bool:
    return len(values) == 2 and isinstance(values[0], str) and isinstance(values[1], int)


def to_offset(name: str, offset: object, least: int = 0) -> int:
    """Return an offset of a record; raise `InvalidArgumentError` if it is not one."""
    return check_int(name, offset, least=least, most=INT64_MAX)


def to_timestamp(name: str, timestamp_ms: object) -> int:
    """Return a timestamp in ms since the epoch; raise `InvalidArgumentError` for other types."""
    if hasattr(timestamp_ms, "timestamp"):
        raise invalid_argument(
            name,
            timestamp_ms,
            "an integer of ms since the epoch; of a datetime: round(moment.timestamp() * 1000)",
        )
    if isinstance(timestamp_ms, float):
        raise invalid_argument(name, timestamp_ms, "an integer of ms since the epoch")
    return check_int(name, timestamp_ms, most=INT64_MAX, unit="ms since the epoch")


def to_timestamps(times_ms: TimesLike) -> dict[TopicPartition, int]:
    """Return timestamps in ms, by partition; raise `InvalidArgumentError` for wrong values."""
    if not isinstance(times_ms, Mapping):
        raise invalid_argument("times_ms", times_ms, "a dict, {('flights', 0): 1700000000000}")
    return {
        to_topic_partition(partition): to_timestamp("times_ms", at)
        for partition, at in times_ms.items()
    }


def to_offsets(offsets: OffsetsLike) -> Offsets:
    """Return the offsets to commit in one form; raise `InvalidArgumentError` for wrong values."""
    if not isinstance(offsets, Mapping):
        raise invalid_argument("offsets", offsets, "a dict, {('flights', 0): 42}")
    return {
        to_topic_partition(partition): _to_offset_and_metadata(offset)
        for partition, offset in offsets.items()
    }


def _to_offset_and_metadata(given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if not isinstance(given, OffsetAndMetadata):
        return OffsetAndMetadata(to_offset("offset", given))
    metadata: str | None = given.metadata
    if metadata is None:  # Java's client also stores an empty string.
        metadata = ""
    check_instance("metadata", metadata, str)
    return OffsetAndMetadata(
        to_offset("offset", given.offset),
        metadata,
        check_int("leader_epoch", given.leader_epoch, least=-1, most=INT32_MAX),
    )


class SubscriptionPattern(msgspec.Struct, frozen=True):
    """A regular expression of topic names that the broker matches (KIP-848).

    ``pattern`` is in the syntax of RE2 and must match the whole name. Only consumers with
    ``group_protocol="consumer"`` can subscribe to it. A ``re.Pattern`` is matched by the client.
    """

    pattern: str


class TopicSelection(NamedTuple):
    """The topics of a subscription: names, or one of the two kinds of patterns."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    regex: str | None = None


def check_topics(topics: Any) -> TopicSelection:
    """Return the topics, or the pattern, of a subscription.

    Raises:
        InvalidArgumentError: A single string, which is ambiguous, no topics, or other types.
    """
    if isinstance(topics, re.Pattern):
        check_instance("topics.pattern", topics.pattern, str)
        return TopicSelection(pattern=topics)
    if isinstance(topics, SubscriptionPattern):
        return TopicSelection(regex=check_text("topics.pattern", topics.pattern))
    if isinstance(topics, str):
        raise InvalidArgumentError(
            f"subscribe() takes a list, [{topics!r}], or a pattern, re.compile({topics!r})"
        )
    found = check_texts("topics", topics, "flights", may_be_empty=True)
    if not found:
        raise InvalidArgumentError(
            "subscribe() needs at least one topic; unsubscribe() leaves the group"
        )
    return TopicSelection(names=frozenset(found))
