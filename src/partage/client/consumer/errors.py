"""Exceptions of consumers, in addition to those of all clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from partage.client.errors import ClientError
from partage.model.arguments import InvalidArgumentError, shorten
from partage.model.topic_partition import TopicPartition

if TYPE_CHECKING:
    from partage.client.consumer.records import Record


class ConsumerError(ClientError):
    """The base class of exceptions that only consumers raise."""


class UnknownOptionError(ConsumerError, InvalidArgumentError):
    """Raised for an unknown option.

    ``suggestion`` is a known option with a similar name, or None.
    """

    def __init__(self, name: str, suggestion: str | None) -> None:
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        super().__init__(f"a consumer has no option {name!r}{hint}")
        self.name = name
        self.suggestion = suggestion


class InvalidOptionError(ConsumerError, InvalidArgumentError):
    """Raised for an option with an invalid value."""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        super().__init__(f"{name}={shorten(value)}: expected {wanted}")
        self.name = name


class NotAssignedError(ConsumerError):
    """Raised for a partition that is not assigned to this consumer."""

    def __init__(self, partitions: Iterable[TopicPartition], assigned: int) -> None:
        self.partitions = tuple(partitions)
        named = ", ".join(map(str, self.partitions))
        super().__init__(
            f"{named} is not assigned to this consumer, which has {assigned} partitions: "
            "check assignment(), or call assign() first"
        )


class NothingAssignedError(ConsumerError):
    """Raised if records are requested and no partition is assigned."""

    def __init__(self) -> None:
        super().__init__(
            "the consumer has no partitions to read: call subscribe() or assign() first"
        )


class ConsumerClosedError(ConsumerError):
    """Raised by all methods after the consumer was closed."""

    def __init__(self) -> None:
        super().__init__("the consumer is closed: create a new one")


class NoOffsetForPartitionError(ConsumerError):
    """Raised if a partition has no committed offset and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            f"no offset is committed for {partition}, and auto_offset_reset is 'none': "
            "seek() to a start offset, or set auto_offset_reset to 'earliest' or 'latest'"
        )
        self.partition = partition


class OffsetOutOfRangeError(ConsumerError):
    """Raised if a position is out of range and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"offset {offset} of {partition} is out of range: it was deleted by retention or by "
            "DeleteRecords, or the partition ends before it. auto_offset_reset is 'none', so "
            "seek() to an offset between beginning_offsets() and end_offsets()"
        )
        self.partition = partition
        self.offset = offset


class TopicRecreatedError(ConsumerError):
    """Raised if a topic was deleted and created again and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"topic {partition.topic!r} was deleted and created again: offset {offset} of "
            f"{partition} is no longer the same record. auto_offset_reset is 'none', so seek() to "
            "a start offset, for example with seek_to_beginning()"
        )
        self.partition = partition
        self.offset = offset


class ReadTimeoutError(ConsumerError, TimeoutError):
    """Raised if the end offsets were not reached in time; the positions are unchanged."""

    def __init__(self, timeout_ms: float, left: Iterable[TopicPartition]) -> None:
        named = ", ".join(map(str, left))
        super().__init__(
            f"the end of {named} was not reached within {timeout_ms:g} ms; the positions are "
            "unchanged: allow more time, or read in smaller steps with poll()"
        )


class ApiTimeoutError(ConsumerError, TimeoutError):
    """Raised if a call got no response in time."""

    is_retriable = True

    def __init__(self, what: str, timeout_ms: int, last: Exception | None) -> None:
        why = "" if last is None else f"; the last error: {last}"
        super().__init__(
            f"{what} took longer than default_api_timeout_ms ({timeout_ms}){why}. Check that the "
            "brokers are reachable, or allow more time"
        )


class PositionTimeoutError(ConsumerError, TimeoutError):
    """Raised if a position could not be looked up in time; the consumer keeps trying."""

    is_retriable = True

    def __init__(self, partition: TopicPartition, timeout_ms: int, last: Exception | None) -> None:
        why = "" if last is None else f": {last}"
        super().__init__(
            f"the position of {partition} was not found within default_api_timeout_ms "
            f"({timeout_ms}){why}; the consumer keeps trying: call position() again, or check that "
            "the leader of the partition and the coordinator of the group are reachable"
        )
        self.partition = partition


class DeserializationError(ConsumerError):
    """Raised by polls and loops if a deserializer raised an exception, which is the cause.

    The position is the offset of the record. To retry it, poll again; to skip it, seek.

    Attributes:
        partition: The partition of the record.
        offset: The offset of the record.
        part: "key" or "value".
        record: The record with its key and value as bytes.
    """

    def __init__(self, record: Record, part: str, cause: Exception) -> None:
        self.partition = TopicPartition(record.topic, record.partition)
        self.offset = record.offset
        self.part = part
        self.record = record
        reason = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        super().__init__(
            f"the {part} of {self.partition} at offset {self.offset} was not deserialized: "
            f"{reason}. To skip the record, seek({tuple(self.partition)!r}, {self.offset + 1}); to "
            "retry it, poll again"
        )


class AlreadySubscribedError(ConsumerError):
    """Raised by ``assign`` and ``unassign`` while the consumer is subscribed."""

    def __init__(self) -> None:
        super().__init__(
            "the group assigns this consumer's partitions: unsubscribe() before assign()"
        )


class AlreadyAssignedError(ConsumerError):
    """Raised by ``subscribe`` if the consumer has partitions from ``assign``."""

    def __init__(self) -> None:
        super().__init__(
            "this consumer has partitions from assign(): unassign() before subscribe()"
        )
