"""Analysis of one group's events; no I/O.

`GroupAnalysis` applies the events of ``__group_events`` in order and collects the `rows`. A
*stall* is a time in which no member reads a partition. The coordinator does not see the reads,
so these rules determine the stalls:

- A member that rejoins continues to read the partitions that its JoinGroup lists as owned, and no
  others: an eager consumer has revoked all partitions by then. The stall of the others starts
  at the JoinGroup.
- If an assignment revokes a partition that its owner still reads (cooperative rebalancing), the
  stall starts at that assignment.
- If a member leaves, the stall of its partitions starts then. A member whose session expired
  counts as dead since its last sign of life, one session timeout earlier.
- A stall ends when the new owner receives its assignment.
- While a group has no members, its partitions are in a stall with the cause "no members". It
  ends the stall of a last member that died, and counts only if a new member reads later.
- With the consumer protocol (KIP-848), the coordinator reports each step of a member. A member
  reads what is assigned to it, and what it must give up until it has confirmed that it has. Members
  that left, died or left for a while read nothing. A rebalance ends when all present members have
  reached the target.
- A coordinator that loads the group reports its stored state. A known member that is not part of it
  had joined a generation that was never stored; the coordinator has forgotten it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from partage.coordinator.consumer_group.group import FIRST_EPOCH
from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.pipelines.rebalances.commit_tracker import CommitTracker
from partage.pipelines.rebalances.coordinator_tracker import CoordinatorTracker
from partage.pipelines.rebalances.member_tracker import MemberTracker
from partage.pipelines.rebalances.partition_tracker import (
    CAUSES_WITHOUT_REBALANCE,
    NO_MEMBERS_CAUSE,
    PartitionTracker,
    StalledPartition,
)
from partage.pipelines.rebalances.reconciliation_tracker import (
    ReconciliationTracker,
    is_absent,
    partitions_read,
)
from partage.pipelines.rebalances.rows import (
    CauseRow,
    CoordinatorRow,
    GroupRow,
    LagRow,
    MemberRow,
    MoveRow,
    OwnershipRow,
    RebalanceRow,
    RefusedRow,
    StallRow,
)
from partage.store.group_events import CONSUMER, LAG, EventMember, GroupEventRecord

#: Cause of a rebalance whose start is not in the events.
UNKNOWN_CAUSE: Final = "unknown"


class GroupAnalysis:
    """Analysis of one group. Call `apply` for each event in order, then read the lists of rows."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.rebalances: list[RebalanceRow] = []
        self.members: list[MemberRow] = []
        self._group = GroupRow(group_id=group_id, first_at=0, last_at=0)
        self._partitions = PartitionTracker(group_id)
        self._coordinators = CoordinatorTracker()
        self._reconciliation = ReconciliationTracker()
        self._members: dict[str, MemberTracker] = {}  # current members by name
        self._names: dict[str, str] = {}  # member names by member id
        self._rows: dict[str, MemberRow] = {}  # all members ever, by name
        self._open: RebalanceRow | None = None
        self._changes: Counter[str] = Counter()  # joined, left and expired since the last rebalance
        self._not_rejoined: list[MemberRow] = []
        self._parts: list[EventMember] = []
        self._commits = CommitTracker(group_id)
        self._began_empty = True

    @property
    def group(self) -> GroupRow:
        """Totals of the group so far."""
        return self._group

    @property
    def lag(self) -> list[LagRow]:
        """Lag of each partition over time."""
        return self._commits.lags

    @property
    def refused(self) -> list[RefusedRow]:
        """Rejected commits."""
        return self._commits.refusals

    @property
    def coordinators(self) -> list[CoordinatorRow]:
        """Coordinators of the group, in order."""
        return self._coordinators.rows

    @property
    def stalls(self) -> list[StallRow]:
        """Stalls, including those that have not ended."""
        return self._partitions.stalls

    @property
    def moves(self) -> list[MoveRow]:
        """Partitions that moved to another member."""
        return self._partitions.moves

    @property
    def ownership(self) -> list[OwnershipRow]:
        """Periods in which a member read a partition."""
        return self._partitions.ownership

    def apply(self, event: GroupEventRecord) -> None:
        """Apply the next event of the group; ignore unknown event types."""
        group = self._group
        if not group.events:
            group.first_at = event.at_ms
            group.is_complete = _is_first(event)
        group.events += 1
        group.last_at = max(group.last_at, event.at_ms)
        group.generation = max(group.generation, event.generation)
        if event.group_type == CONSUMER and event.event != GroupEventType.LOADED:
            group.type = CONSUMER
            self._reconciliation.group_epoch = event.generation
        if self._coordinators.apply(event) and self._members:
            group.is_complete = False  # their departure is missing from the events
            self._forget(list(self._members), event.at_ms)
            self._emptied(event)
            self._partitions.clear(event.at_ms)
        match event.event:
            case GroupEventType.JOINED:
                self._joined(event)
            case GroupEventType.LEFT | GroupEventType.EXPIRED:
                self._member_gone(event)
            case GroupEventType.FENCED:
                self._fenced(event)
            case GroupEventType.REBALANCE_STARTED:
                self._rebalance(event)
            case (
                GroupEventType.GENERATION_STARTED
                | GroupEventType.ASSIGNED
                | GroupEventType.LOADED
                | GroupEventType.RECONCILING
                | GroupEventType.RECONCILED
                | GroupEventType.UPGRADED
            ):
                self._collect_parts(event)
            case GroupEventType.SYNCED:
                self._synced(event)
            case GroupEventType.EPOCH_RAISED:
                self._epoch_raised(event)
            case GroupEventType.TARGET_ASSIGNED:
                self._target_assigned(event)
            case GroupEventType.LEFT_FOR_A_WHILE:
                self._left_for_a_while(event)
            case GroupEventType.DOWNGRADED:
                self._downgraded(event)
            case GroupEventType.EMPTIED:
                self._emptied(event)
            case GroupEventType.REMOVED:
                self._emptied(event)
                self._partitions.clear(event.at_ms)
            case GroupEventType.COMMIT_REFUSED:
                self._commit_refused(event)
            case kind if kind == LAG:
                self._commits.record_lag(event)

    # Members.

    def _member(self, of: EventMember | GroupEventRecord, member_id: str, at: int) -> MemberTracker:
        """Return the tracker of a member; add the member if it is unknown."""
        name = of.instance_id or member_id
        self._names[member_id] = name
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = MemberRow(
                group_id=self.group_id,
                member=name,
                member_id=member_id,
                client_id=of.client_id,
                client_host=of.client_host,
                first_at=at,
            )
            self.members.append(row)
        tracker = self._members.get(name)
        if tracker is None:
            tracker = self._members[name] = MemberTracker(row)
            self._group.members_max = max(self._group.members_max, len(self._members))
        row.member_id = member_id
        row.gone_at = row.gone_by = None
        self._group.members = len(self._members)
        return tracker

    def _joined(self, event: GroupEventRecord) -> None:
        self._began_empty = self._began_empty or not self._members
        tracker = self._member(event, event.member_id or "", event.at_ms)
        if event.group_type == CONSUMER:
            tracker.waiting_since = event.at_ms
            self._reconciliation.join(tracker.row.member)
        self._count("joined", event)

    def _member_gone(self, event: GroupEventRecord) -> None:
        name = self._name(event)
        tracker = self._members.pop(name, None)
        self._group.members = len(self._members)
        self._count("expired" if event.event == GroupEventType.EXPIRED else "left", event)
        at = event.at_ms
        if event.cause == RebalanceCause.SESSION_EXPIRED and event.session_timeout_ms is not None:
            at -= event.session_timeout_ms
        if tracker is not None:
            tracker.remove(event.at_ms, event.event)
            if event.cause == RebalanceCause.NOT_REJOINED:
                self._not_rejoined.append(tracker.row)
            self._reconciliation.remove(tracker.row, event.at_ms)
        # With the consumer protocol, each departure starts a rebalance, which explains the stalls.
        row = None if event.group_type == CONSUMER else self._open
        self._partitions.remove_member(name, at, row)

    def _forget(self, names: list[str], at: int) -> None:
        for name in names:
            tracker = self._members.pop(name)
            tracker.remove(at, "forgotten")
            self._reconciliation.remove(tracker.row, at)
            self._partitions.remove_member(name, at, self._open)
        self._group.members = len(self._members)

    def _fenced(self, event: GroupEventRecord) -> None:
        """Ignore a static member that was replaced by another member id: it is the same member."""
        if event.instance_id is None:
            self._member_gone(event)
        else:
            self._reconciliation.join(event.instance_id)

    def _name(self, event: GroupEventRecord) -> str:
        member_id = event.member_id or ""
        return event.instance_id or self._names.get(member_id, member_id)

    def _left_for_a_while(self, event: GroupEventRecord) -> None:
        """Apply that a static member left, and keeps its partitions until its session ends."""
        name = self._name(event)
        tracker = self._members.get(name)
        if tracker is not None:
            tracker.stop_waiting(event.at_ms)
            self._reconciliation.suspend(tracker.row, event.at_ms)
        self._partitions.suspend_member(name, event.at_ms)
        self._end_if_reconciled(event.at_ms)

    def _count(self, change: str, event: GroupEventRecord) -> None:
        # With the consumer protocol, the rebalance that a change causes begins after the change.
        if self._open is None or event.group_type == CONSUMER:
            self._changes[change] += 1
        else:
            setattr(self._open, change, getattr(self._open, change) + 1)

    # Rebalances.

    def _rebalance(self, event: GroupEventRecord) -> None:
        self._end(event.at_ms, "abandoned")
        name = None if event.member_id is None else self._name(event)
        followed = None
        if event.cause == RebalanceCause.MEMBER_REJOINED and name is not None:
            followed = self._partitions.revoked_from(name)
        self._begin(event.at_ms, event.cause or UNKNOWN_CAUSE, followed)
        assert self._open is not None
        self._open.member, self._open.reason = name, event.reason

    def _begin(self, at: int, cause: str, followed: StalledPartition | None = None) -> RebalanceRow:
        episode = len(self.rebalances) + 1
        row = RebalanceRow(
            group_id=self.group_id,
            episode=episode if followed is None else followed.row.episode,
            started_at=at,
            cause=cause,
            is_follow_up=followed is not None,
            joined=self._changes["joined"],
            left=self._changes["left"],
            expired=self._changes["expired"],
        )
        self._changes.clear()
        self.rebalances.append(row)
        self._group.rebalances += 1
        self._partitions.set_cause(row)
        self._open = row
        return row

    def _end(self, at: int, outcome: str) -> None:
        row, self._open = self._open, None
        if row is not None:
            self._reconciliation.end(row)
            row.ended_at, row.outcome = max(at, row.started_at), outcome
            row.took_ms = row.ended_at - row.started_at
        self._not_rejoined.clear()

    def _collect_parts(self, event: GroupEventRecord) -> None:
        """Collect the parts of a generation, and apply it when all parts have arrived."""
        if event.part == 1:
            self._group.is_complete &= not self._parts  # parts of the previous one were missing
            self._parts = []
        self._parts += event.members or []
        if event.part < event.parts:
            return
        members, self._parts = self._parts, []
        if any(member.partition_count is not None for member in members):
            self._group.is_complete = False
        if event.event == GroupEventType.GENERATION_STARTED:
            self._generation(event, members)
        elif event.event == GroupEventType.ASSIGNED:
            self._assigned(event, members)
        elif event.event == GroupEventType.UPGRADED:
            self._upgraded(event, members)
        elif event.event != GroupEventType.LOADED:
            self._step(event, members)
        elif event.group_type == CONSUMER:
            self._loaded_consumers(event, members)
        else:
            self._loaded(event, members)

    def _generation(self, event: GroupEventRecord, members: list[EventMember]) -> None:
        row = self._open
        if row is None:
            self._group.is_complete = False
            row = self._begin(event.at_ms, UNKNOWN_CAUSE)
        row.generation, row.joined_at = event.generation, event.at_ms
        row.join_ms = max(event.at_ms - row.started_at, 0)
        row.protocol, row.members = event.protocol, len(members)
        arrived: list[tuple[int, str]] = []
        for member in members:
            tracker = self._member(member, member.member_id, event.at_ms)
            name = tracker.row.member
            tracker.row.generations += 1
            if member.member_id == event.leader:
                row.leader = name
            if member.joined_ms is None:
                continue
            arrived.append((member.joined_ms, name))
            if member.owned is not None:
                self._partitions.keep_only(name, member.owned, member.joined_ms, row)
            if tracker.waiting_since is None:
                tracker.waiting_since = member.joined_ms
            is_still = tracker.has_partitions and not self._partitions.is_reading(name)
            if is_still and tracker.stopped_since is None:
                tracker.stopped_since = member.joined_ms
        if not self._began_empty:
            self._add_held_up(row, sorted(arrived))

    def _add_held_up(self, row: RebalanceRow, arrived: list[tuple[int, str]]) -> None:
        """Add the time for which other members waited for the last one to join."""
        if len(arrived) > 1:
            last, name = arrived[-1]
            row.last_to_join = name
            self._rows[name].held_up_ms += last - arrived[-2][0]
        if arrived and row.joined_at is not None:
            for absent in self._not_rejoined:
                absent.held_up_ms += row.joined_at - arrived[-1][0]

    def _assigned(self, event: GroupEventRecord, members: list[EventMember]) -> None:
        row = self._open
        if row is None:
            self._group.is_complete = False
            row = self._begin(event.at_ms, UNKNOWN_CAUSE)
        row.generation, row.protocol = event.generation, event.protocol
        row.members = len(members)
        if row.joined_at is not None:
            row.sync_ms = max(event.at_ms - row.joined_at, 0)
        self._end(event.at_ms, "assigned")
        self._began_empty = False
        self._apply_assignment(event, members, row)

    def _apply_assignment(
        self, event: GroupEventRecord, members: list[EventMember], row: RebalanceRow | None
    ) -> None:
        assignments: dict[str, tuple[dict[str, list[int]], int | None]] = {}
        for member in members:
            tracker = self._member(member, member.member_id, event.at_ms)
            at = event.at_ms if row is None else member.assigned_ms
            assigned = member.assigned or {}
            tracker.has_partitions = bool(assigned)
            assignments[tracker.row.member] = (assigned, at)
            if at is not None:
                tracker.stop_waiting(at)
        self._partitions.assign(assignments, event.at_ms, event.generation, row)

    def _synced(self, event: GroupEventRecord) -> None:
        name = self._name(event)
        if name in self._members:
            self._members[name].stop_waiting(event.at_ms)
        self._partitions.on_synced(name, event.at_ms)

    def _loaded(self, event: GroupEventRecord, members: list[EventMember]) -> None:
        """Apply the state that a new coordinator has loaded; usually nothing has changed."""
        self._group.loads += 1
        known = {member.instance_id or member.member_id for member in members}
        self._forget([name for name in self._members if name not in known], event.at_ms)
        if event.reason != "Stable":
            return
        is_known = self._partitions.generation == event.generation
        self._end(event.at_ms, "abandoned")
        if is_known:
            return
        self._group.is_complete = False
        self._members.clear()
        self._partitions.clear(event.at_ms)
        self._began_empty = False
        self._apply_assignment(event, members, None)

    # Groups with the consumer protocol.

    def _epoch_raised(self, event: GroupEventRecord) -> None:
        self._rebalance(event)
        assert self._open is not None
        self._open.generation = event.generation

    def _target_assigned(self, event: GroupEventRecord) -> None:
        row = self._open
        if row is None:
            self._group.is_complete = False
            row = self._begin(event.at_ms, UNKNOWN_CAUSE)
            row.generation = event.target_epoch
        if event.target_epoch != row.generation:
            return  # a newer epoch has begun meanwhile
        row.joined_at, row.protocol = event.at_ms, event.protocol
        row.join_ms = max(event.at_ms - row.started_at, 0)
        row.members = len(self._members)
        self._reconciliation.start(self._members)
        self._end_if_reconciled(event.at_ms)

    def _step(self, event: GroupEventRecord, members: list[EventMember]) -> bool:
        """Apply the partitions of members. Return True if a member reads other ones now."""
        row = self._open
        has_changed = False
        for member in members:
            tracker = self._member(member, member.member_id, event.at_ms)
            name = tracker.row.member
            epoch = member.member_epoch or 0
            if is_absent(member):
                self._partitions.suspend_member(name, event.at_ms)
                self._reconciliation.suspend(tracker.row, event.at_ms)
                continue
            if member.partition_count is None:
                reads = partitions_read(member)
                has_changed |= self._partitions.set_member(name, reads, event.at_ms, epoch, row)
            is_reconciled = self._reconciliation.step(
                tracker.row, member, event.target_epoch, event.at_ms
            )
            if is_reconciled:
                tracker.row.generations += event.event == GroupEventType.RECONCILED
                if event.target_epoch == event.generation:
                    tracker.stop_waiting(event.at_ms)
            elif not member.revoking:
                self._wait(tracker, event.at_ms)
            tracker.has_partitions = self._partitions.is_reading(name)
        self._end_if_reconciled(event.at_ms)
        return has_changed

    def _wait(self, tracker: MemberTracker, at: int) -> None:
        """Start the wait of a member for partitions that other members must give up."""
        if tracker.waiting_since is None:
            tracker.waiting_since = at
        is_still = tracker.has_partitions and not self._partitions.is_reading(tracker.row.member)
        if is_still and tracker.stopped_since is None:
            tracker.stopped_since = at

    def _end_if_reconciled(self, at: int) -> None:
        row = self._open
        if row is None or row.joined_at is None or not self._reconciliation.is_complete:
            return
        row.sync_ms = max(at - row.joined_at, 0)
        row.partitions = self._partitions.read_count
        self._end(at, "reconciled")

    def _loaded_consumers(self, event: GroupEventRecord, members: list[EventMember]) -> None:
        """Apply the state that a new coordinator has loaded; usually nothing has changed."""
        self._group.loads += 1
        self._group.type = CONSUMER
        known = {member.instance_id or member.member_id for member in members}
        self._forget([name for name in self._members if name not in known], event.at_ms)
        if event.generation != self._reconciliation.group_epoch:
            self._group.is_complete = False
            self._end(event.at_ms, "abandoned")
            self._reconciliation.group_epoch = event.generation
            if event.reason != "Stable":
                self._begin(event.at_ms, UNKNOWN_CAUSE).generation = event.generation
        for member in members:
            self._member(member, member.member_id, event.at_ms)
        row = self._open
        if row is not None and row.joined_at is None and event.target_epoch == row.generation:
            self._target_assigned(event)
        if self._step(event, members):
            self._group.is_complete = False  # the steps of some members are missing

    def _upgraded(self, event: GroupEventRecord, members: list[EventMember]) -> None:
        """Apply that the group uses the consumer protocol now, with the same members."""
        self._end(event.at_ms, "abandoned")
        self._reconciliation.clear()
        for tracker in self._members.values():
            tracker.stop_waiting(event.at_ms)
        self._step(event, members)

    def _downgraded(self, event: GroupEventRecord) -> None:
        """Apply that the group uses the classic protocol now; its rebalance follows."""
        self._end(event.at_ms, "abandoned")
        self._reconciliation.clear()
        self._group.type = "classic"
        for tracker in self._members.values():
            tracker.stop_waiting(event.at_ms)

    def _emptied(self, event: GroupEventRecord) -> None:
        self._reconciliation.clear()
        for tracker in self._members.values():
            tracker.stop_waiting(event.at_ms)
        self._members.clear()
        self._group.members = 0
        self._end(event.at_ms, "emptied")
        self._partitions.on_emptied(event.at_ms)
        self._began_empty = True

    # Commits.

    def _commit_refused(self, event: GroupEventRecord) -> None:
        self._group.refused_commits += event.count
        row = self._rows.get(self._name(event))
        if row is not None:
            row.refused_commits += event.count
        self._commits.record_refusal(event)

    # Sums.

    def finish(self) -> list[CauseRow]:
        """Compute the totals and return those by cause. Call it once, after the last event."""
        causes: dict[str, CauseRow] = {}
        cause_of = {row.episode: row.cause for row in self.rebalances if not row.is_follow_up}
        for row in self.rebalances:
            cause = cause_of.get(row.episode, UNKNOWN_CAUSE)
            total = causes.setdefault(cause, CauseRow(group_id=self.group_id, cause=cause))
            total.episodes += not row.is_follow_up
            total.rebalances += 1
            total.took_ms += row.took_ms or 0
            total.moved += row.moved
            self._group.moved += row.moved
        begun: dict[str, set[int]] = {}
        for stall in self.stalls:
            stalled_ms = stall.stalled_ms or 0
            self._group.stalled_ms += stalled_ms
            if stall.cause in CAUSES_WITHOUT_REBALANCE and stall.to_at is not None:
                begun.setdefault(stall.cause, set()).add(stall.from_at)
                causes.setdefault(stall.cause, CauseRow(group_id=self.group_id, cause=stall.cause))
            if stall.cause != NO_MEMBERS_CAUSE and stall.from_member in self._rows:
                self._rows[stall.from_member].partitions_stalled_ms += stalled_ms
            if stall.cause in causes:
                causes[stall.cause].stalled_ms += stalled_ms
        for cause, times in begun.items():
            causes[cause].episodes = len(times)
        return list(causes.values())


def _is_first(event: GroupEventRecord) -> bool:
    """True if the event can be the first one in the life of a group."""
    if event.group_type == CONSUMER and event.event == GroupEventType.JOINED:
        return event.generation <= FIRST_EPOCH
    return event.generation <= 0
