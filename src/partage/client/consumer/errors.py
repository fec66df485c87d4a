"""What a consumer raises beside what every client does, each with a way out in its message."""

from __future__ import annotations

from collections.abc import Iterable

from partage.client.errors import ClientError
from partage.client.metadata import TopicPartition


class ConsumerError(ClientError):
    """The root of what only a consumer raises."""


class UnknownOption(ConsumerError, TypeError):
    """An option that a consumer does not have; ``nearest`` is one of a like name, if there is."""

    def __init__(self, name: str, nearest: str | None) -> None:
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"a consumer has no option {name!r}{hint}")
        self.name = name
        self.nearest = nearest


class BadOption(ConsumerError, ValueError):
    """An option's value that it cannot have; the message says which it can."""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        super().__init__(f"{name}={value!r}: expected {wanted}")
        self.name = name


class NotAssigned(ConsumerError):
    """A partition that this consumer does not own, or no longer."""

    def __init__(self, partitions: Iterable[TopicPartition], assigned: int) -> None:
        self.partitions = tuple(partitions)
        named = ", ".join(map(str, self.partitions))
        super().__init__(
            f"{named} is not assigned to this consumer, which has {assigned} partitions: "
            "check assignment(), or call assign() first"
        )


class NothingAssigned(ConsumerError):
    """A consumer without any partition was asked for records."""

    def __init__(self) -> None:
        super().__init__(
            "the consumer has no partitions to read: call subscribe() or assign() first"
        )


class ConsumerClosed(ConsumerError):
    """The consumer was closed; a new one is needed."""

    def __init__(self) -> None:
        super().__init__("the consumer is closed: create a new one")


class NoOffset(ConsumerError):
    """Nothing says where a partition is to be read from, and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(
            f"no offset is committed for {partition}, and auto_offset_reset is 'none': "
            "seek() to a start offset, or set auto_offset_reset to 'earliest' or 'latest'"
        )
        self.partition = partition


class OffsetOutOfRange(ConsumerError):
    """A position outside what its partition holds, and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"offset {offset} of {partition} is out of range: it was deleted by retention or by "
            "DeleteRecords, or the partition ends before it. auto_offset_reset is 'none', so "
            "seek() to an offset between beginning_offsets() and end_offsets()"
        )
        self.partition = partition
        self.offset = offset


class TopicRecreated(ConsumerError):
    """A topic was deleted and made anew, and ``auto_offset_reset`` is "none"."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"topic {partition.topic!r} was deleted and created again: offset {offset} of "
            f"{partition} is no longer the same record. auto_offset_reset is 'none', so seek() to "
            "a start offset, for example with seek_to_beginning()"
        )
        self.partition = partition
        self.offset = offset


class ReadTimedOut(ConsumerError, TimeoutError):
    """The end was not reached in time; positions are as they were before."""

    def __init__(self, timeout_ms: float, left: Iterable[TopicPartition]) -> None:
        named = ", ".join(map(str, left))
        super().__init__(
            f"the end of {named} was not reached within {timeout_ms:g} ms; the positions are "
            "unchanged: allow more time, or read in smaller steps with poll()"
        )


class AlreadySubscribed(ConsumerError):
    """A consumer whose group says what it reads was told what to read."""

    def __init__(self) -> None:
        super().__init__(
            "the group assigns this consumer's partitions: unsubscribe() before assign()"
        )


class AlreadyAssigned(ConsumerError):
    """A consumer that was told what to read was to share topics in a group."""

    def __init__(self) -> None:
        super().__init__(
            "this consumer has partitions from assign(): unassign() before subscribe()"
        )
