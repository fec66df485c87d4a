"""Timeline of a group: owners of partitions over time, and rebalances."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class TimelineMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member; ``name`` is its instance id, or else its member id."""

    name: str
    client_id: str = ""
    host: str = ""


class OwnershipSpan(msgspec.Struct, frozen=True, kw_only=True):
    """An interval in which a member owned a partition; ``to_ms`` is None while it owns it."""

    topic: str
    partition: int
    member: str
    from_ms: int
    to_ms: int | None = None
    generation: int | None = None


class TimelineRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance; unknown values are None. ``stalled_ms`` is the sum over all partitions."""

    started_ms: int
    ended_ms: int | None = None
    cause: str
    member: str | None = None
    reason: str = ""
    outcome: str = "under way"
    generation: int | None = None
    joined: int = 0
    left: int = 0
    expired: int = 0
    moved: int = 0
    stalled_ms: int | None = None

    @property
    def took_ms(self) -> int | None:
        """Duration; None while the rebalance is in progress."""
        return None if self.ended_ms is None else self.ended_ms - self.started_ms


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Owners and rebalances of a group since ``since_ms``, sorted by start.

    ``is_from_events`` is True if the coordinator reported them in ``__group_events``. Otherwise
    they come from polling, and times are accurate only to a polling interval.
    """

    spans: list[OwnershipSpan]
    rebalances: list[TimelineRebalance]
    members: Mapping[str, TimelineMember]
    since_ms: int
    is_from_events: bool
    is_complete: bool = True
