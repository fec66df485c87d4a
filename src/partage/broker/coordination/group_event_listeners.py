"""Who hears from a shard's host what happens in groups."""

from __future__ import annotations

from typing import Protocol

from partage.coordinator.outcome import GroupEvent
from partage.store.group_events import LagSample


class GroupEventListener(Protocol):
    """Who wants to hear what happens in groups."""

    def __call__(self, notice: GroupEvent, /) -> None: ...


class GroupEventPublisher(Protocol):
    """Who wants to hear of what can no longer be taken back."""

    def publish(self, told: GroupEvent | LagSample, epoch: int | None, /) -> None:
        """It happened in this epoch of the shard's."""

    def count_dropped(self, count: int, /) -> None:
        """So much happened that nobody can be told of: there was no room."""
