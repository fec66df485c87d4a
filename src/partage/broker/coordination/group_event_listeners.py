"""Receivers of group events."""

from __future__ import annotations

from typing import Protocol

from partage.coordinator.outcome import GroupEvent
from partage.store.group_events import LagSample


class GroupEventListener(Protocol):
    """Called with each group event at once."""

    def __call__(self, notice: GroupEvent, /) -> None: ...


class GroupEventPublisher(Protocol):
    """Receives group events once they are durable."""

    def publish(self, event: GroupEvent | LagSample, epoch: int | None, /) -> None:
        """Publish an event of the given epoch of the shard."""

    def count_dropped(self, count: int, /) -> None:
        """Count events that were dropped because too many were pending."""
