"""The interface through which an observer follows a world."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from partage.model.topic_partition import TopicPartition
from partage.proposals.machine import Action
from partage.wire.types import Message

#: The name of the coordinator as a sender or receiver.
COORDINATOR: Final = "coordinator"


class WorldObserver:
    """An observer that ignores everything. A subclass overrides what it needs.

    The calls come in the order of the events in the coordinator: a request counts when it arrives
    there, and a message of the coordinator when it is sent.
    """

    def on_message(self, sender: str, receiver: str, message: Message) -> None:
        """A message passed the coordinator; one of the two names is `COORDINATOR`."""

    def on_close(self, sender: str, receiver: str) -> None:
        """A process closed a connection; one of the two names is `COORDINATOR`."""

    def on_records(self, records: Sequence[Any]) -> None:
        """The coordinator stores records."""

    def on_actions(
        self, member: str, actions: Sequence[Action], reading: AbstractSet[TopicPartition]
    ) -> None:
        """A member performed actions; ``reading`` are the partitions that it reads after them.

        ``reading`` changes later.
        """
