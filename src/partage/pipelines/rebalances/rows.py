"""Rows of the tables of an analysis.

A field that ends in ``_at`` is a time in ms since the epoch; a field that ends in ``_ms`` is a
duration. A member's name is its group instance id, which survives restarts, or else its member id.
None means that a value is unknown or does not exist yet. A *stall* is a time in which no
member reads a partition.
"""

from __future__ import annotations

import msgspec


class AnalysisRow(msgspec.Struct, kw_only=True, gc=False):
    """A row about one group."""

    group_id: str


class GroupRow(AnalysisRow, kw_only=True, gc=False):
    """Totals of a group. The row of group "" has the records that belong to no group.

    ``is_complete`` is False if the first event is in the middle of a generation, or if events are
    missing. The numbers then cover the existing events only. A key whose records are all unreadable
    has a row with ``events`` 0.
    """

    events: int = 0
    first_at: int
    last_at: int
    rebalances: int = 0
    generation: int = 0  # last generation
    members: int = 0  # at the end
    members_max: int = 0
    loads: int = 0  # number of loads by a coordinator
    stalled_ms: int = 0  # sum over all partitions
    moved: int = 0
    refused_commits: int = 0
    type: str = "classic"  # last known protocol: "classic" or "consumer"
    is_complete: bool = True
    unreadable: int = 0  # records that are not events
    lost_events: int = 0  # events that the broker dropped; their groups are unknown


class CoordinatorRow(AnalysisRow, kw_only=True, gc=False):
    """A period in which one coordinator had the group, from its first event to its last.

    ``broker_id`` and ``epoch`` exist in a cluster; the epochs give the order of the coordinators.
    ``found`` is the state of the group when the coordinator loaded it, with its generation and its
    member count; None if there was no load.
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

    ``outcome`` is one of:

    - "assigned": the leader's assignment ended it.
    - "reconciled": in a group with the consumer protocol, all members reached the target.
    - "emptied": no members remained.
    - "abandoned": another rebalance began first.
    - "under way": it has not ended.

    A rebalance in which members only pass on partitions that the previous one revoked has the same
    ``episode`` as that one. ``stalled_ms`` is the sum of the stalls that it ended.

    In a group with the consumer protocol a rebalance begins with a new epoch, which is its
    ``generation``. At ``joined_at`` the target assignment was computed, by the assignor in
    ``protocol``. ``sync_ms`` is the time from then on until all members had reached it.
    ``revoke_ms`` is the longest time that a member needed to give up partitions.
    """

    episode: int
    generation: int | None = None
    started_at: int
    joined_at: int | None = None  # when all members had joined
    ended_at: int | None = None
    took_ms: int | None = None
    join_ms: int | None = None
    sync_ms: int | None = None
    cause: str
    is_follow_up: bool = False
    member: str | None = None  # the member that caused it
    reason: str = ""
    outcome: str = "under way"
    protocol: str | None = None
    leader: str | None = None
    last_to_join: str | None = None
    last_to_revoke: str | None = None
    revoke_ms: int | None = None
    members: int | None = None
    joined: int = 0
    left: int = 0
    expired: int = 0
    partitions: int | None = None
    moved: int = 0
    stalled_ms: int = 0


class CauseRow(AnalysisRow, kw_only=True, gc=False):
    """Totals of all rebalances with one cause. An episode is a rebalance with its follow-ups, which
    count for the cause of the first one.
    """

    cause: str
    episodes: int = 0
    rebalances: int = 0
    took_ms: int = 0
    moved: int = 0
    stalled_ms: int = 0


class MemberRow(AnalysisRow, kw_only=True, gc=False):
    """A member and its cost of rebalances.

    - ``waited_ms``: time between its JoinGroup requests and its assignments. With the consumer
      protocol: time after it joined, and time in which it waited for partitions of other members.
    - ``stalled_ms``: the part of ``waited_ms`` in which it read no partition, although it had
      some before.
    - ``partitions_stalled_ms``: sum of the stalls of partitions that it gave up.
    - ``held_up_ms``: time for which members that had already joined waited for it alone. With the
      consumer protocol: time for which it was the only member that had not given up its partitions.
    - ``revoking_ms``: time that it needed to give up partitions (consumer protocol only).
    """

    member: str
    member_id: str
    client_id: str = ""
    client_host: str = ""
    first_at: int
    gone_at: int | None = None
    gone_by: str | None = None  # left, expired, fenced, or forgotten (unknown to a new coordinator)
    generations: int = 0
    waited_ms: int = 0
    stalled_ms: int = 0
    partitions_stalled_ms: int = 0
    held_up_ms: int = 0
    revoking_ms: int = 0
    refused_commits: int = 0


class StallRow(AnalysisRow, kw_only=True, gc=False):
    """A stall: no member read the partition between two readers."""

    episode: int
    topic: str
    partition: int
    from_at: int
    to_at: int | None = None
    stalled_ms: int | None = None
    from_member: str
    to_member: str | None = None
    cause: str


class MoveRow(AnalysisRow, kw_only=True, gc=False):
    """A partition that moved to another member."""

    episode: int
    generation: int
    moved_at: int
    topic: str
    partition: int
    from_member: str
    to_member: str


class OwnershipRow(AnalysisRow, kw_only=True, gc=False):
    """A period in which a member read a partition."""

    topic: str
    partition: int
    member: str
    generation: int
    from_at: int
    to_at: int | None = None


class LagRow(AnalysisRow, kw_only=True, gc=False):
    """Lag of a partition in records; valid until the next row of the partition."""

    seen_at: int
    topic: str
    partition: int
    lag: int


class RefusedRow(AnalysisRow, kw_only=True, gc=False):
    """Rejected commits."""

    refused_at: int
    generation: int
    member_id: str
    error: str
    topics: str  # separated by commas
    commits: int
