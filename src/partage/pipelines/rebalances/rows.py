"""The rows of the tables that an analysis makes.

A field that ends in ``_at`` is a time, in ms since the epoch; one in ``_ms`` a duration. Members
are called by their group instance id where they have one, for that outlives a restart, or else by
their member id. None is what is not known, or has not happened yet.
"""

from __future__ import annotations

import msgspec


class AnalysisRow(msgspec.Struct, kw_only=True, gc=False):
    """A row about one group."""

    group_id: str


class GroupRow(AnalysisRow, kw_only=True, gc=False):
    """A group's history as a whole. The row of group "" is of what belongs to none.

    A key with nothing but records that are no events has a row without events.

    ``is_complete`` is False where the history begins in the middle of a generation, or events are
    missing: figures are then what can be seen, and no more.
    """

    events: int = 0
    first_at: int
    last_at: int
    rebalances: int = 0
    generation: int = 0  # the last one
    members: int = 0  # now
    members_max: int = 0
    loads: int = 0  # how often a coordinator loaded it
    stood_still_ms: int = 0  # of all partitions together
    moved: int = 0
    refused_commits: int = 0
    is_complete: bool = True
    unreadable: int = 0  # records that are no events
    lost_events: int = 0  # those that the broker had to drop; it knows no more whose they were


class CoordinatorRow(AnalysisRow, kw_only=True, gc=False):
    """A time in which one coordinator had the group: from when it loaded it, or first told of it,
    to the last that it told.

    Broker and epoch are of one of several brokers, whose epochs say in which order they had the
    group. ``found`` is the group's state when it was loaded, with its generation and how many
    members it had; None where it had none.
    """

    broker_id: int | None = None
    epoch: int | None = None
    from_at: int
    last_at: int
    events: int = 0
    found: str | None = None
    found_generation: int | None = None
    found_members: int | None = None


class RebalanceRow(AnalysisRow, kw_only=True, gc=False):
    """A rebalance, from its cause to the assignment that ended it.

    ``outcome`` is "assigned"; "emptied" when nobody was left; "abandoned" when another began before
    there was an assignment; "under way" at the end of the history. A rebalance in which members
    only give on what the one before took from them has that one's ``episode``.
    ``stood_still_ms`` is of the partitions that it set going again, all together.
    """

    episode: int
    generation: int | None = None
    started_at: int
    joined_at: int | None = None  # when all had joined
    ended_at: int | None = None
    took_ms: int | None = None
    join_ms: int | None = None
    sync_ms: int | None = None
    cause: str
    is_follow_up: bool = False
    member: str | None = None  # who gave the cause
    reason: str = ""
    outcome: str = "under way"
    protocol: str | None = None
    leader: str | None = None
    last_to_join: str | None = None
    members: int | None = None
    joined: int = 0
    left: int = 0
    expired: int = 0
    partitions: int | None = None
    moved: int = 0
    stood_still_ms: int = 0


class CauseRow(AnalysisRow, kw_only=True, gc=False):
    """All rebalances of one cause; one in which members give on what the one before took from
    them counts for that one's. An episode is a rebalance with all that follow from it.
    """

    cause: str
    episodes: int = 0
    rebalances: int = 0
    took_ms: int = 0
    moved: int = 0
    stood_still_ms: int = 0


class MemberRow(AnalysisRow, kw_only=True, gc=False):
    """A member, and what rebalances cost it.

    ``waited_ms`` is its time between its JoinGroups and its assignments. ``stood_still_ms`` is the
    part of it in which it had partitions before and now read none at all.
    ``partitions_still_ms`` is how long partitions that it gave up stood still, all together.
    ``held_up_ms`` is how long others had joined already, and waited for this one.
    """

    member: str
    member_id: str
    client_id: str = ""
    client_host: str = ""
    first_at: int
    gone_at: int | None = None
    gone_by: str | None = None  # left, expired, fenced; forgotten, by who took the group over
    generations: int = 0
    waited_ms: int = 0
    stood_still_ms: int = 0
    partitions_still_ms: int = 0
    held_up_ms: int = 0
    refused_commits: int = 0


class StandstillRow(AnalysisRow, kw_only=True, gc=False):
    """A partition that nobody read for a while, between one member and the next."""

    episode: int
    topic: str
    partition: int
    from_at: int
    to_at: int | None = None
    still_ms: int | None = None
    from_member: str
    to_member: str | None = None
    cause: str


class MoveRow(AnalysisRow, kw_only=True, gc=False):
    """A partition that another member has got."""

    episode: int
    generation: int
    moved_at: int
    topic: str
    partition: int
    from_member: str
    to_member: str


class OwnershipRow(AnalysisRow, kw_only=True, gc=False):
    """A time in which a member read a partition."""

    topic: str
    partition: int
    member: str
    generation: int
    from_at: int
    to_at: int | None = None


class LagRow(AnalysisRow, kw_only=True, gc=False):
    """How many records of a partition a group had not committed, until the next row says."""

    seen_at: int
    topic: str
    partition: int
    lag: int


class RefusedRow(AnalysisRow, kw_only=True, gc=False):
    """Commits that were refused."""

    refused_at: int
    generation: int
    member_id: str
    error: str
    topics: str  # with commas between
    commits: int
