"""Who read which partition of a group when, and the rebalances between: what a picture shows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class TimelineMember(msgspec.Struct, frozen=True, kw_only=True):
    """Who a member is; ``name`` is its instance id, or else its member id."""

    name: str
    client_id: str = ""
    host: str = ""


class OwnershipSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a member had a partition; ``to_ms`` is None where it has it still."""

    topic: str
    partition: int
    member: str
    from_ms: int
    to_ms: int | None = None
    generation: int | None = None


class TimelineRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance; what is not known is None. ``stood_still_ms`` is of all partitions together."""

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
    stood_still_ms: int | None = None

    @property
    def took_ms(self) -> int | None:
        """How long it took."""
        return None if self.ended_ms is None else self.ended_ms - self.started_ms


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The spans and marks of a group, by their beginnings, from ``since_ms`` on.

    ``is_told`` says whether the coordinator told them (``__group_events``); what this page has
    seen itself is no more exact than the interval in which it looks.
    """

    spans: list[OwnershipSpan]
    rebalances: list[TimelineRebalance]
    members: Mapping[str, TimelineMember]
    since_ms: int
    is_from_events: bool
    is_complete: bool = True
