"""The interface between fetching partitions and deciding which partitions to fetch.

An `AssignmentSource` decides which partitions a consumer has: the user by ``assign``
(`ManualAssignment`), or a group. It changes them through an `AssignmentTarget`, the engine. The
engine asks it for start offsets and whether records may be delivered, and notifies it of polls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from partage.client.consumer.errors import NothingAssignedError
from partage.model.topic_partition import TopicPartition


class AssignmentTarget(Protocol):
    """The methods of the engine that an assignment source may call, from any thread."""

    def add_partitions(
        self,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> None:
        """Start to read these partitions at the offsets of `AssignmentSource.committed`.

        Args:
            partitions: The partitions.
            topic_ids: The ids of their topics, if the coordinator assigned ids.
        """

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; no record of them is delivered after this returns."""

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""

    def is_empty(self) -> bool:
        """True if no partitions are assigned."""

    def positions(self) -> Mapping[TopicPartition, int]:
        """Return the offsets to commit: the offset after the last delivered record, by partition.

        Partitions whose start offset is still looked up are left out.
        """

    def is_topic_replaced(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """True if an assigned partition belongs to another topic than the one of this id."""

    def wake(self) -> None:
        """Make polls check again for errors to raise and records to deliver."""


class AssignmentSource(ABC):
    """The source of a consumer's assigned partitions.

    `committed` and `close` run on the engine's event loop. `on_poll` and `on_poll_return` run in
    the user's thread, alternately; a record loop polls each time it needs more records.
    `may_deliver` is called in any thread and under the engine's lock: it must not block or use the
    `AssignmentTarget`.
    """

    target: AssignmentTarget

    def attach(self, target: AssignmentTarget) -> None:
        """Set the engine; called once, before all other methods."""
        self.target = target

    @abstractmethod
    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return start offsets; ``auto_offset_reset`` applies to partitions that are left out.

        Raises:
            ClientError: The offsets could not be read. After a retriable error the read is
                repeated; the next poll raises other errors, and then the read is repeated.
        """

    @abstractmethod
    def may_deliver(self, partition: TopicPartition) -> bool:
        """True if records of an assigned partition may be delivered at this moment.

        It is called before every delivery, in record loops before every record. A member whose
        session may have ended must return False by its own clock, even if it received no event: the
        process may have been suspended.
        """

    @abstractmethod
    def on_poll(self) -> None:
        """Note that the user asks for records.

        Raises:
            Exception: An error that the poll must raise before it delivers anything.
        """

    def on_poll_return(self) -> None:  # noqa: B027
        """Note that a poll returns to the user, with or without records."""

    def on_next_record(self) -> None:  # noqa: B027
        """Note that a record loop delivers its next record to the user."""

    async def close(self, timeout_ms: float) -> None:  # noqa: B027
        """Commit and leave; the consumer delivers no more records."""


class ManualAssignment(AssignmentSource):
    """An assignment by the user: everything is deliverable, and there are no committed offsets."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return no offsets."""
        return {}

    def may_deliver(self, partition: TopicPartition) -> bool:
        """True always."""
        return True

    def on_poll(self) -> None:
        """Raise NothingAssignedError if there are no partitions: waiting would never end."""
        if self.target.is_empty():
            raise NothingAssignedError
