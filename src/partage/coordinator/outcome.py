"""What comes of an event, and the contract with whoever drives the core."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from partage.coordinator.events import Ticket
from partage.coordinator.records import Record
from partage.coordinator.replies import Reply
from partage.coordinator.timers import TimerKey


class Happening(StrEnum):
    """The kinds of things worth telling an operator."""

    JOINED = "joined"
    LEFT = "left"
    EXPIRED = "expired"
    FENCED = "fenced"
    REBALANCE_STARTED = "rebalance started"
    GENERATION_STARTED = "generation started"
    ASSIGNED = "assigned"
    EMPTIED = "emptied"
    REMOVED = "removed"
    COMMIT_REFUSED = "commit refused"
    OFFSETS_EXPIRED = "offsets expired"


class Notice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something an operator may want to know; nothing depends on it."""

    at_ms: int
    group_id: str
    happening: Happening
    generation: int
    member_id: str | None = None
    reason: str = ""


class Outcome:
    """What is to be done after one event, in this order:

    1. ``records`` are already applied to the core. Append them to the shard's log, in order.
    2. ``timers`` are armed, or cancelled where the deadline is None, in order. A key has one
       deadline: arming replaces.
    3. ``replies`` go out only once every record that was applied up to now, by this event or any
       before it, is durable: **answers to reads too**, for a read must not show what a crash can
       still take back. Replies leave in the order in which they were given.

    If an append fails, what was applied since is wrong: the driver drops the core with all that it
    still owes, answers those tickets that the coordinator is not available, and loads the shard
    again from its log.
    """

    __slots__ = ("notices", "records", "replies", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.timers: list[tuple[TimerKey, int | None]] = []
        self.replies: list[tuple[Ticket, Reply]] = []
        self.notices: list[Notice] = []
