"""What comes of an event, and the contract with whoever drives the core."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from partage.coordinator.events import Ticket
from partage.coordinator.records import GroupSaved, Record, SavedMember
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
    SYNCED = "synced"
    EMPTIED = "emptied"
    REMOVED = "removed"
    COMMIT_REFUSED = "commit refused"
    OFFSETS_EXPIRED = "offsets expired"
    LOADED = "loaded"


class Cause(StrEnum):
    """Why a rebalance began, or a member was taken for gone."""

    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member joined again"
    STATIC_MEMBER_RETURNED = "static member came back"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    NOT_REJOINED = "did not rejoin in time"
    NOT_SYNCED = "never asked for its assignment"
    ASSIGNMENT_FAILED = "leader could not assign"
    GROUP_TOO_LARGE = "more members than allowed"


class Notice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something an operator may want to know; nothing depends on it.

    ``member`` is who it is about, ``saved`` the generation, with its members in the order of
    ``times_ms``: when a generation starts, the times of their Joins; when it is assigned, the times
    at which they got their assignments. None is for those who did not, or not yet. All times are
    those of events, in ms since the epoch.
    """

    at_ms: int
    group_id: str
    happening: Happening
    generation: int
    member_id: str | None = None
    reason: str = ""
    cause: Cause | None = None
    member: SavedMember | None = None
    saved: GroupSaved | None = None
    times_ms: tuple[int | None, ...] = ()
    topics: tuple[str, ...] = ()  # of a commit that was refused


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
