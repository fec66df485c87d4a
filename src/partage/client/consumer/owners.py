"""The seam between reading partitions and knowing which to read.

An `Owner` says which partitions a consumer has: the user by `assign` (`Manual`), or a group. The
engine gives it `Holdings` to say it with, and asks it three things: where to begin, whether
records of a partition may be handed out, and what has to be done when the user polls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from partage.client.consumer.errors import NothingAssigned
from partage.client.metadata import TopicPartition


class Holdings(Protocol):
    """What an owner may do to the engine, from any thread."""

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to read these; each begins where `Owner.committed` says."""

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these: when this returns, nothing of them is handed out any more."""

    def assignment(self) -> list[TopicPartition]:
        """What is owned now."""

    def is_idle(self) -> bool:
        """Whether nothing is owned."""

    def positions(self) -> Mapping[TopicPartition, int]:
        """What there is to commit: the offset after the last record handed out, by partition.

        Those whose first position is still looked for are left out.
        """

    def wake(self) -> None:
        """Have polls look again: there is an error to raise, or something may be handed out."""


class Owner(ABC):
    """Who knows which partitions are this consumer's.

    `committed` and `close` run on the engine's loop, `polled` and `returned` in the user's thread,
    in turns; a loop over records polls each time that it needs more. `may_deliver` is called in
    any thread and under the engine's lock: it neither waits nor uses `Holdings`.
    """

    holdings: Holdings

    def attach(self, holdings: Holdings) -> None:
        """The engine is made; called once, before anything else."""
        self.holdings = holdings

    @abstractmethod
    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets to begin at; ``auto_offset_reset`` holds for what is left out.

        Raises:
            ClientError: they cannot be had. A retriable one is tried again, others are raised
                to the user by the next poll and then tried again.
        """

    @abstractmethod
    def may_deliver(self, partition: TopicPartition) -> bool:
        """Whether records of a partition that is owned may be handed out at this moment.

        Asked before every hand-out, and by loops over records before every record. A member whose
        session may have ended must say no by its own clock, whether or not anything told it so:
        the process may have been stopped meanwhile.
        """

    @abstractmethod
    def polled(self) -> None:
        """The user has asked for records: a sign of life, and the place to raise from.

        Raises:
            Exception: what the poll is to raise, before it hands out anything.
        """

    def returned(self) -> None:  # noqa: B027
        """A poll hands back to the user, with or without records: what follows is their time."""

    def touched(self) -> None:  # noqa: B027
        """A loop over records hands the next one to the user."""

    async def close(self, timeout_ms: float) -> None:  # noqa: B027
        """The consumer closes: commit, leave. Nothing is handed out any more."""


class Manual(Owner):
    """The user's own choice by ``assign``: everything may be handed out, nothing is committed."""

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """None at all."""
        return {}

    def may_deliver(self, partition: TopicPartition) -> bool:
        """Always."""
        return True

    def polled(self) -> None:
        """Raises NothingAssigned rather than wait for what cannot come."""
        if self.holdings.is_idle():
            raise NothingAssigned
