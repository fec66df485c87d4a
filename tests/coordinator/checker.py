"""Checks a coordinator from outside, by its requests, replies and stored records.

It does not use the coordinator's state, so it holds for any implementation. It takes the entries of
a `Harness`'s trace in order, and raises `AssertionError` at the first violation.

1. A group's stored generation only grows, until the group is removed.
2. A stored generation contains its leader, has no instance id twice, and does not exceed the size
   limit.
3. A generation is stored before a member receives it. The leader, and no other member, receives the
   list of members.
4. The assignment of a member in a generation never changes, and it is the one that the leader sent.
5. A member that was replaced under its instance id is never accepted again.
6. A heartbeat or commit is accepted only from a member of the stored generation.
7. A request that is rejected because of the client's state stores nothing.
8. An acknowledged commit is stored, and every later fetch returns it or a later one.
9. A transaction's offsets are returned only after its commit, unless a later offset was committed
   before. A fetch of stable offsets returns none for a partition with pending offsets.
10. No member that joined a generation states a higher version of its protocol than the leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from partage.coordinator.events import (
    Commit,
    FetchOffsets,
    Heartbeat,
    Join,
    OffsetToCommit,
    Sync,
    Ticket,
)
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.replies import (
    CommitReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinedMember,
    JoinReply,
    LeaveReply,
    SyncReply,
)
from partage.model.errors import ErrorCode

from .trace import (
    AppendFailed,
    CoordinatorCrashed,
    EventReceived,
    RecordAppended,
    RecordsDurable,
    ReplySent,
    Request,
    RequestReceived,
    ShardLoaded,
    TimerExpired,
    TraceEntry,
)

Partition = tuple[str, str, int]

#: Errors that report to a client that its view of the group is outdated.
FENCING = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


class Hearing:
    """The state when a request arrived."""

    def __init__(self, position: int, stored: GroupRecord | None, is_loaded: bool) -> None:
        self.position = position
        self.stored = stored
        self.is_loaded = is_loaded
        self.written = 0
        self.floors: dict[Partition, int] = {}
        self.pending: set[Partition] = set()


class Checker:
    """The state that can be observed from outside."""

    def __init__(self, members_max: int) -> None:
        self.members_max = members_max
        self._position = 0
        self._cause: Request | None = None
        self._hearings: dict[Ticket, Hearing] = {}
        self._doubted: list[Record] = []
        self._saved: dict[str, list[GroupRecord]] = defaultdict(list)  # durable, in any run
        self._current: dict[str, GroupRecord] = {}  # durable, in this run
        self._offsets: dict[Partition, list[OffsetRecord | None]] = defaultdict(list)
        self._acknowledged: dict[Partition, int] = {}
        # the log positions of the offsets, and the pending offsets of each producer
        self._stored_count = 0
        self._positions: dict[Partition, int] = {}
        self._pending: dict[int, dict[Partition, tuple[OffsetRecord, int]]] = defaultdict(dict)
        self._assigned: dict[tuple[str, int, str], bytes] = {}
        self._holders: dict[tuple[str, str], str] = {}
        self._versions: dict[str, dict[str, int]] = defaultdict(dict)  # of the last generation
        self._fenced: dict[tuple[str, str], int] = {}  # (group, member) -> time

    def feed(self, entries: Iterable[TraceEntry]) -> None:
        """Process trace entries and check them."""
        for entry in entries:
            self._position += 1
            match entry:
                case RequestReceived():
                    self._hear(entry.asked, entry.is_loaded)
                case RecordAppended():
                    self._doubted.append(entry.record)
                    self._judge_cause(entry.record)
                case RecordsDurable(count=count) | CoordinatorCrashed(kept=count):
                    for record in self._doubted[:count]:
                        self._store(record)
                    del self._doubted[:count]
                    if isinstance(entry, CoordinatorCrashed):
                        self._doubted.clear()
                        self._cause = None
                case AppendFailed():
                    self._doubted.clear()
                    self._cause = None
                case ReplySent():
                    self._judge(entry)
                case EventReceived() | ShardLoaded() | TimerExpired():
                    self._cause = None

    # Requests and records.

    def _hear(self, asked: Request, is_loaded: bool) -> None:
        self._cause = asked
        group_id = getattr(asked, "group_id", "")
        hearing = Hearing(self._position, self._latest(group_id), is_loaded)
        if isinstance(asked, FetchOffsets):
            hearing.floors = dict(self._acknowledged)
            hearing.pending = self._pending_partitions()
        self._hearings[asked.reply_to] = hearing

    def _pending_partitions(self) -> set[Partition]:
        """Return the partitions with pending offsets, durable or not."""
        pending = {producer_id: set(of) for producer_id, of in self._pending.items()}
        for record in self._doubted:
            match record:
                case TransactionalOffsetRecord(producer_id=producer_id, offset=offset):
                    key = offset.group_id, offset.topic, offset.partition
                    pending.setdefault(producer_id, set()).add(key)
                case TransactionMarker():
                    pending.pop(record.producer_id, None)
                case OffsetTombstone():
                    for of in pending.values():
                        of.discard((record.group_id, record.topic, record.partition))
        return {key for of in pending.values() for key in of}

    def _latest(self, group_id: str) -> GroupRecord | None:
        """Return the group as stored, durable or not."""
        latest = self._current.get(group_id)
        for record in self._doubted:
            if isinstance(record, GroupRecord) and record.group_id == group_id:
                latest = record
            elif isinstance(record, GroupTombstone) and record.group_id == group_id:
                latest = None
        return latest

    def _judge_cause(self, record: Record) -> None:
        if self._cause is None:
            return
        self._hearings[self._cause.reply_to].written += 1
        if isinstance(record, GroupRecord) and isinstance(self._cause, Sync):
            if record.awaiting_sync or not record.members:
                return
            sent = self._cause.assignments
            for member in record.members:
                assert member.assignment == sent.get(member.member_id, b""), "not what was sent"

    def _store(self, record: Record) -> None:
        self._stored_count += 1
        match record:
            case GroupRecord():
                self._store_group(record)
            case GroupTombstone():
                self._current.pop(record.group_id, None)
            case OffsetRecord():
                self._store_offset(record, self._stored_count)
            case OffsetTombstone():
                key = record.group_id, record.topic, record.partition
                self._offsets[key].append(None)
                for pending in self._pending.values():
                    pending.pop(key, None)
            case TransactionalOffsetRecord(producer_id=producer_id, offset=offset):
                key = offset.group_id, offset.topic, offset.partition
                self._pending[producer_id][key] = offset, self._stored_count
            case TransactionMarker():
                for offset, position in self._pending.pop(record.producer_id, {}).values():
                    if record.is_commit:
                        self._store_offset(offset, position)

    def _store_offset(self, record: OffsetRecord, position: int) -> None:
        """Store a committed offset whose record is at ``position`` of the log, unless a later one
        is stored.
        """
        key = record.group_id, record.topic, record.partition
        if position >= self._positions.get(key, 0):
            self._positions[key] = position
            self._offsets[key].append(record)

    def _store_group(self, saved: GroupRecord) -> None:
        before = self._current.get(saved.group_id)
        generation = 0 if before is None else before.generation
        starts = saved.awaiting_sync or not saved.members
        expected = generation + 1 if starts else generation
        assert saved.generation == expected, f"{saved} follows generation {generation}"
        members = [m.member_id for m in saved.members]
        instances = [m.instance_id for m in saved.members if m.instance_id is not None]
        assert len(set(members)) == len(members), f"a member twice in {saved}"
        assert len(set(instances)) == len(instances), f"an instance id twice in {saved}"
        assert len(members) <= self.members_max, f"too many members in {saved}"
        if members:
            assert saved.leader in members, f"led by a stranger: {saved}"
            assert saved.protocol is not None
        else:
            assert saved.leader is None
            assert saved.protocol is None
        if before is not None and not starts and not before.awaiting_sync:
            self._judge_succession(before, saved)
        if starts:
            self._versions.pop(saved.group_id, None)
        self._current[saved.group_id] = saved
        self._saved[saved.group_id].append(saved)

    def _judge_succession(self, before: GroupRecord, saved: GroupRecord) -> None:
        """Check that within a generation only ids of static members change, and each keeps its
        partitions.
        """

        def shares(group: GroupRecord) -> dict[str, bytes]:
            return {m.instance_id or m.member_id: m.assignment for m in group.members}

        assert shares(saved) == shares(before), f"{saved} gives other shares than {before}"

    # Replies.

    def _judge(self, entry: ReplySent) -> None:
        hearing = self._hearings.pop(entry.asked.reply_to)
        asked, reply = entry.asked, entry.reply
        self._judge_refusal(asked, reply, hearing)
        match asked, reply:
            case Join(), JoinReply(error=ErrorCode.NONE):
                self._judge_join(asked, reply, hearing)
            case Sync(), SyncReply(error=ErrorCode.NONE):
                self._judge_sync(asked, reply, hearing)
            case Heartbeat(), HeartbeatReply(error=ErrorCode.NONE) if hearing.is_loaded:
                self._judge_membership(asked, hearing)
            case Commit(), CommitReply():
                self._judge_commit(asked, reply, hearing)
            case FetchOffsets(), FetchOffsetsReply(error=ErrorCode.NONE):
                self._judge_fetch(asked, reply, hearing)

    def _judge_refusal(self, asked: Request, reply: object, hearing: Hearing) -> None:
        errors: tuple[ErrorCode, ...] = ()
        match reply:
            case HeartbeatReply(error=error):
                errors = (error,)
            case SyncReply(error=error):
                errors = (error,)
            case LeaveReply(errors=errors) | CommitReply(errors=errors):
                pass
        if errors and set(errors) <= FENCING:
            assert not hearing.written, f"{asked} was refused and stored something: {reply}"

    def _find(self, group_id: str, fits: Callable[[GroupRecord], bool]) -> GroupRecord | None:
        return next((s for s in reversed(self._saved[group_id]) if fits(s)), None)

    def _judge_join(self, asked: Join, reply: JoinReply, hearing: Hearing) -> None:
        member_id = reply.member_id
        # an old client of a returning static leader gets its predecessor as the leader
        is_misled = (
            asked.instance_id is not None
            and not asked.member_id
            and not asked.may_skip_assignment
            and reply.leader != member_id
        )

        def fits(saved: GroupRecord) -> bool:
            return (
                saved.generation == reply.generation
                and (saved.protocol_type, saved.protocol) == (reply.protocol_type, reply.protocol)
                and any(m.member_id == member_id for m in saved.members)
                and (saved.leader == reply.leader or is_misled)
            )

        saved = self._find(asked.group_id, fits)
        assert saved is not None, f"{reply} tells of a generation that is not stored"
        leads = reply.leader == member_id
        told = (
            tuple(JoinedMember(m.member_id, m.instance_id, m.subscription) for m in saved.members)
            if leads
            else ()
        )
        assert reply.members == told, f"{reply.members} is not who is in {saved}"
        self._judge_versions(asked, reply, saved)
        if asked.instance_id is not None:
            self._accept(asked.group_id, asked.instance_id, member_id)
        self._judge_fenced(asked.group_id, member_id, hearing)

    def _judge_versions(self, asked: Join, reply: JoinReply, saved: GroupRecord) -> None:
        if asked.instance_id is not None and not asked.member_id:
            return  # a static member may return to a generation with other protocols
        versions = self._versions[asked.group_id]
        versions[reply.member_id] = next(
            p.version for p in asked.protocols if p.name == saved.protocol
        )
        leads = versions.get(saved.leader or "", max(versions.values()))
        assert leads == max(versions.values()), f"{saved} is led by an older version: {versions}"

    def _accept(self, group_id: str, instance_id: str, member_id: str) -> None:
        before = self._holders.get((group_id, instance_id))
        self._holders[group_id, instance_id] = member_id
        if before is not None and before != member_id:
            self._fenced[group_id, before] = self._position

    def _judge_fenced(self, group_id: str, member_id: str, hearing: Hearing) -> None:
        since = self._fenced.get((group_id, member_id))
        assert since is None or hearing.position < since, f"{member_id} is fenced, and accepted"

    def _judge_sync(self, asked: Sync, reply: SyncReply, hearing: Hearing) -> None:
        key = (asked.group_id, asked.generation, asked.member_id)
        assigned = self._assigned.setdefault(key, reply.assignment)
        assert assigned == reply.assignment, f"{key} got {assigned!r}, and {reply.assignment!r}"

        def fits(saved: GroupRecord) -> bool:
            return (
                saved.generation == asked.generation
                and not saved.awaiting_sync
                and any(
                    (m.member_id, m.assignment) == (asked.member_id, assigned)
                    for m in saved.members
                )
            )

        assert self._find(asked.group_id, fits), f"{reply} is not stored"
        self._judge_fenced(asked.group_id, asked.member_id, hearing)

    def _judge_membership(self, asked: Heartbeat | Commit, hearing: Hearing) -> None:
        stored = hearing.stored
        assert stored is not None, f"{asked} was accepted into a group that is not stored"
        assert stored.generation == asked.generation, f"{asked} was accepted into {stored}"
        members = [m.member_id for m in stored.members]
        assert asked.member_id in members, f"{asked} was accepted into {stored}"
        self._judge_fenced(asked.group_id, asked.member_id, hearing)

    def _judge_commit(self, asked: Commit, reply: CommitReply, hearing: Hearing) -> None:
        accepted = [
            offset
            for offset, error in zip(asked.offsets, reply.errors, strict=True)
            if error is ErrorCode.NONE
        ]
        for offset in accepted:
            self._acknowledge(asked, offset)
        if accepted and asked.generation >= 0:
            self._judge_membership(asked, hearing)
        elif accepted:
            stored = hearing.stored
            assert stored is None or not stored.members, f"{asked} was accepted into {stored}"

    def _acknowledge(self, asked: Commit, offset: OffsetToCommit) -> None:
        key = (asked.group_id, offset.topic, offset.partition)
        history = self._offsets[key]
        for index in reversed(range(len(history))):
            kept = history[index]
            if (
                kept is not None
                and (kept.offset, kept.metadata) == (offset.offset, offset.metadata)
                and kept.commit_ms == asked.at_ms
            ):
                self._acknowledged[key] = max(index, self._acknowledged.get(key, 0))
                return
        raise AssertionError(f"{asked} is acknowledged and not stored")

    def _judge_fetch(self, asked: FetchOffsets, reply: FetchOffsetsReply, hearing: Hearing) -> None:
        if asked.partitions is None:
            shown = {(o.group_id, o.topic, o.partition): o for o in reply.offsets if o is not None}
            keys = [key for key in self._offsets if key[0] == asked.group_id]
            found = [(key, shown.get(key)) for key in keys]
            assert shown.keys() <= set(keys), f"{reply} shows what was never stored"
        else:
            found = [
                ((asked.group_id, *partition), offset)
                for partition, offset in zip(asked.partitions, reply.offsets, strict=True)
            ]
        if asked.requires_stable and hearing.is_loaded:
            pending = {key[1:] for key in hearing.pending if key[0] == asked.group_id}
            assert pending == reply.unstable, f"{reply} calls {pending} stable"
        for key, offset in found:
            floor = hearing.floors.get(key)
            allowed = self._offsets[key][floor or 0 :]
            never = offset is None and floor is None
            assert never or offset in allowed, f"{key} shows {offset}, not one of {allowed}"
