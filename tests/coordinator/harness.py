"""A shard behind its driver, with a clock and a log that the test controls.

After each event `Harness` checks that the invariants hold, that a replay of the log restores the
same state, and that every ticket has one reply. It records all entries in ``trace``, in order;
`checker` checks them from outside.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from partage.coordinator import invariants
from partage.coordinator.events import Event, Ticket, TimerFired
from partage.coordinator.outcome import GroupEventType
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.replies import Reply
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver

from .trace import (
    AppendFailed,
    CoordinatorCrashed,
    EventReceived,
    GroupEventEmitted,
    RecordAppended,
    RecordsDurable,
    ReplyLost,
    ReplySent,
    Request,
    RequestReceived,
    ShardLoaded,
    TimerExpired,
    TraceEntry,
)

Edge = tuple[GroupState, GroupState]

START_MS = 1_000_000

#: The state of a group after each of these events.
BECOMES = {
    GroupEventType.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
    GroupEventType.GENERATION_STARTED: GroupState.COMPLETING_REBALANCE,
    GroupEventType.ASSIGNED: GroupState.STABLE,
    GroupEventType.EMPTIED: GroupState.EMPTY,
    GroupEventType.REMOVED: GroupState.DEAD,
}
IN_GENERATION = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class MemoryLog:
    """A log that distinguishes durable records from those in doubt; a crash may lose the latter."""

    def __init__(self) -> None:
        self.durable: list[Record] = []
        self.in_doubt: list[tuple[list[Record], int]] = []  # with the driver's mark
        self.holds = False
        self.fails = False

    @property
    def doubted(self) -> list[Record]:
        """The records in doubt, in order."""
        return [record for batch, _ in self.in_doubt for record in batch]


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in test metadata such as ``t,u``; ``?`` stands for unknown topics."""
    text = metadata.decode()
    return None if text in ("", "?") else frozenset(text.split(","))


def compacted(records: list[Record]) -> list[Record]:
    """Return the last record of each key, in place: the result of a compaction.

    A compaction ends before the first open transaction.
    """
    last: dict[tuple[object, ...], Record] = {}
    stable_count = count_stable(records)
    for record in records[:stable_count]:
        match record:
            case OffsetRecord() | OffsetTombstone():
                key: tuple[object, ...] = (record.group_id, record.topic, record.partition)
            case GroupRecord() | GroupTombstone():
                key = (record.group_id,)
            case TransactionalOffsetRecord() | TransactionMarker():
                key = ("transaction", len(last))  # their order decides, so all of them stay
        last.pop(key, None)
        last[key] = record
    return [*last.values(), *records[stable_count:]]


def count_stable(records: list[Record]) -> int:
    """Return the number of records before the first open transaction."""
    first: dict[int, int] = {}
    for position, record in enumerate(records):
        match record:
            case TransactionalOffsetRecord(producer_id=producer_id):
                first.setdefault(producer_id, position)
            case TransactionMarker(producer_id=producer_id):
                first.pop(producer_id, None)
    return min(first.values(), default=len(records))


class WatchedDriver(Driver):
    """A driver that calls functions before and after every event."""

    def __init__(self, before: Callable[[Event], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before = before
        self._after = after

    def handle(self, event: Event) -> None:
        self._before(event)
        super().handle(event)
        self._after()


class Harness:
    """A shard with its driver; ``now_ms`` is its time."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.now_ms = START_MS
        self.log = MemoryLog()
        self.trace: list[TraceEntry] = []
        self.owed: dict[Ticket, Request] = {}
        self.driver = WatchedDriver(self._before, self._after)
        self.edges: set[Edge] = set()
        self._states: dict[str, GroupState] = {}
        self._tickets = 0
        self._replayed_records: list[Record] | None = None
        self.load()

    # Requests.

    @property
    def shard(self) -> Shard:
        """The shard, while it is loaded."""
        assert self.driver.shard is not None, "the shard is not loaded"
        return self.driver.shard

    @property
    def is_loaded(self) -> bool:
        """True if the shard is loaded."""
        return self.driver.shard is not None

    def ticket(self) -> Ticket:
        """Return an unused ticket."""
        self._tickets += 1
        return Ticket(self._tickets)

    def handle(self, event: Event) -> None:
        """Hand in an event, and carry out its outcome."""
        if isinstance(event, Request):
            assert event.reply_to not in self.owed, "a ticket is used once"
            self.owed[event.reply_to] = event
            self.trace.append(RequestReceived(event, self.is_loaded))
        else:
            self.trace.append(EventReceived(event))
        self.driver.handle(event)
        self._settle()

    def answer_to(self, event: Request) -> Reply | None:
        """Hand in ``event`` and return its reply; None if there is none yet."""
        before = len(self.trace)
        self.handle(event)
        for entry in self.trace[before:]:
            if isinstance(entry, ReplySent) and entry.asked.reply_to == event.reply_to:
                return entry.reply
        return None

    # Time.

    def tick(self, ms: int) -> None:
        """Advance the time; every timer fires exactly at its deadline."""
        until_ms = self.now_ms + ms
        while True:
            wake_ms = self.driver.timers.wake_at_ms()
            if wake_ms is None or wake_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, wake_ms)
            self.driver.fire_due(self.now_ms)
            self._settle()
        self.now_ms = until_ms

    # The log.

    def hold(self) -> None:
        """Keep new records in doubt from now on."""
        self.log.holds = True

    def release(self, count: int | None = None) -> None:
        """Make the first ``count`` batches in doubt durable; without a count, all, and stop
        holding.
        """
        batches = self.log.in_doubt[:count]
        del self.log.in_doubt[: len(batches)]
        for records, mark in batches:
            self.log.durable += records
            self.trace.append(RecordsDurable(len(records), waited=True))
            self.driver.on_durable(mark)
        if count is None:
            self.log.holds = False
        self._settle()

    def fail(self) -> None:
        """Fail the next append, or that of the records in doubt."""
        if self.log.in_doubt:
            self._fail(len(self.log.doubted))
            self._settle()
        else:
            self.log.fails = True

    def _fail(self, count: int) -> None:
        self.log.in_doubt.clear()
        self.log.fails = self.log.holds = False
        self.trace.append(AppendFailed(count))
        self.driver.fail()

    def crash(self, keep: int = 0) -> None:
        """Crash the coordinator; the first ``keep`` of the records in doubt become durable."""
        doubted = self.log.doubted
        self.log.durable += doubted[:keep]
        self.trace.append(CoordinatorCrashed(min(keep, len(doubted)), max(len(doubted) - keep, 0)))
        self.log.in_doubt.clear()
        self.log.fails = self.log.holds = False
        self.driver = WatchedDriver(self._before, self._after)
        self.trace += [ReplyLost(asked) for asked in self.owed.values()]
        self.owed.clear()

    def load(self) -> None:
        """Load the shard from the durable records."""
        self.trace.append(ShardLoaded())
        shard = self.replayed(self.log.durable)
        self._states = self._resumed_states()
        self.driver.activate(shard, self.now_ms)
        self._settle()

    def _resumed_states(self) -> dict[str, GroupState]:
        """Return the states of the groups after loading, before any is found too large."""
        boundless = msgspec.structs.replace(self.settings, members_max=GroupSettings().members_max)
        shard = self.replayed(self.log.durable, boundless)
        shard.resume(self.now_ms)
        return {group.id: group.state for group in shard.groups.values()}

    def replayed(self, records: list[Record], settings: GroupSettings | None = None) -> Shard:
        """Return a shard that has applied ``records``, before it resumes."""
        shard = Shard(settings or self.settings, topics_of)
        for record in records:
            shard.apply(record)
        return shard

    # Checks after each event.

    def _before(self, event: Event) -> None:
        if isinstance(event, TimerFired):
            self.trace.append(TimerExpired(event.at_ms, event.key))

    def _after(self) -> None:
        self._note()
        if self.is_loaded:
            invariants.check(self.shard, self.driver.timers.armed)

    def _settle(self) -> None:
        self._after()
        while self.driver.unsent or self.driver.ready:
            self._append()
            self._deliver()
        if self.is_loaded:
            self._check_tickets()
            self._check_replay()

    def _append(self) -> None:
        if not self.driver.unsent:
            return
        records, mark, _ = self.driver.pop_unsent()
        if self.log.fails:
            self._fail(len(records))
            return
        self.trace += [RecordAppended(record) for record in records]
        self.log.in_doubt.append((records, mark))
        if not self.log.holds:
            self.log.durable += records
            self.log.in_doubt.clear()
            self.trace.append(RecordsDurable(len(records), waited=False))
            self.driver.on_durable(mark)

    def _deliver(self) -> None:
        for ticket, reply in self.driver.pop_ready(1000):
            assert ticket in self.owed, f"{reply} answers a ticket that is not open"
            self.trace.append(ReplySent(self.owed.pop(ticket), reply))

    def _note(self) -> None:
        """Track the states of the groups by the group events, which report every change."""
        for notice in self.driver.pop_group_events():
            after = BECOMES.get(notice.event_type)
            before = None
            if after is not None:
                before = self._states.get(notice.group_id, GroupState.EMPTY)
                self.edges.add((before, after))
                self._states[notice.group_id] = after
            self.trace.append(GroupEventEmitted(notice, before))
        if not self.is_loaded:
            return
        for group in self.shard.groups.values():
            known = self._states.setdefault(group.id, group.state)
            assert known is group.state, f"no group event reported that {group.id} is {group.state}"
        for group_id in self._states.keys() - self.shard.groups.keys():
            del self._states[group_id]

    def parked(self) -> set[Ticket]:
        """Return the tickets of parked members."""
        return {
            ticket
            for group in self.shard.groups.values()
            for member in group.members.values()
            for ticket in (member.join_ticket, member.sync_ticket)
            if ticket is not None
        }

    def _check_tickets(self) -> None:
        parked = self.parked()
        assert parked <= self.owed.keys(), "a parked ticket is not owed"
        if not self.log.in_doubt:
            forgotten = self.owed.keys() - parked
            assert not forgotten, f"forgotten: {[self.owed[ticket] for ticket in forgotten]}"

    def _check_replay(self) -> None:
        """Check that the log, also if compacted, restores the live state and resumes it."""
        records = self.log.durable + self.log.doubted
        if records != self._replayed_records:
            self._replayed_records = records
            self._replayed = self.replayed(records)
            self._replayed_state = invariants.durable_state(self._replayed)
            shortened = invariants.durable_state(self.replayed(compacted(records)))
            assert shortened == self._replayed_state, "compaction changes the state"
            self._replayed.resume(self.now_ms)
        live = invariants.durable_state(self.shard)
        assert live == self._replayed_state, "a replay gives another state"
        for group in self.shard.groups.values():
            if group.state in IN_GENERATION and len(group.members) <= self.settings.members_max:
                again = self._replayed.groups[group.id]
                assert again.state is group.state
                assert (again.generation, again.leader) == (group.generation, group.leader)
                assert list(again.members) == list(group.members)
                assert again.static_members == group.static_members
