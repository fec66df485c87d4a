"""Hosts of group shards in a world: they record, count coverage, fail and die as planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, cast

from partage.broker.clock import Clock
from partage.broker.coordination.group_actions import GroupActions, ResultCallback
from partage.broker.coordination.state_store import ContentReader, StateStore, StoredCallback
from partage.coordinator import invariants
from partage.coordinator.consumer_group.actions import Action, ComputeTarget
from partage.coordinator.consumer_group.events import (
    RegexesResolved,
    RepeatedHeartbeat,
    TargetComputed,
)
from partage.coordinator.consumer_group.records import ConsumerGroupRecord
from partage.coordinator.events import Event
from partage.coordinator.records import TransactionMarker
from partage.coordinator.shard import Shard
from partage.lab import history
from partage.lab.brokers.environment import HistoryClock
from partage.lab.brokers.recorded_shard_host import RecordedShardHost, RecordedStore
from partage.lab.brokers.shell import BrokerShell
from partage.lab.coverage import APPEND_FAILED, ELSEWHERE, LOADING, group_coverage_keys
from partage.lab.offset_log import LogChange, OffsetLogModel, Pair
from partage.lab.options import ACTION_TIMEOUT_MS
from partage.model.errors import ErrorCode
from partage.wire.types import Buffer

#: The longest time that an action of a consumer group takes while actions are slow.
_SLOW_ACTION_MS: Final = 3_000
#: Of the appends, while some fail.
_FAILING_SHARE: Final = 0.5
#: Of the appends that fail.
_WRITTEN_SHARE: Final = 0.3
#: The times after which a failed append is reported.
_APPEND_FAILURES_MS: Final = (2, 50, 300)


class GroupShardHost(RecordedShardHost):
    """A recorded host that counts coverage, and checks the invariants after each event.

    Attributes:
        owner: The broker.
    """

    owner: ClassVar[BrokerShell]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        driver: Any = self._driver
        handle = driver.handle

        def count_and_handle(event: Event) -> None:
            self._count(event)
            handle(event)

        driver.handle = count_and_handle

    @classmethod
    def broker_id(cls) -> int:
        """Return the number of the broker."""
        return cls.owner.broker_id

    @classmethod
    def record_store(
        cls, store: StateStore, broker_id: int, shard: int, clock: Clock
    ) -> RecordedStore:
        """Return a store that records, and that dies at planned points."""
        failing: Any = FailingStore(store, cls.owner)
        history_clock = HistoryClock(cls.owner.world)
        return CrashingStore(failing, cls.entries, broker_id, shard, history_clock, cls.owner)

    def _history_ms(self, at_ms: int) -> int:
        """Return the virtual time of an event at ``at_ms`` on the broker's clock."""
        return at_ms - (self._clock.now_ms() - self.owner.world.now_ms)

    @property
    def driver(self) -> Any:
        """The driver of the shard."""
        return self._driver

    def open_tickets(self) -> set[Any]:
        """Return the tickets of the requests without a reply."""
        return set(cast(Any, self._driver)._open_requests)

    def reload(self) -> None:
        """Drop the shard, as after a failure of its log, and load it again."""
        self.owner.enter(lambda: self._fail(OSError("injected")))

    def delete_topic_offsets(self, names: frozenset[str]) -> None:
        """Record the deletion of topics, and delete their offsets."""
        self._record_deletion(names)
        super().delete_topic_offsets(names)

    def _activate(self, shard: Shard, deleted_topics: frozenset[str]) -> None:
        self._record_deletion(deleted_topics)
        super()._activate(shard, deleted_topics)

    def _record_deletion(self, names: frozenset[str]) -> None:
        """Record that the broker learned of deletions, which permit it to remove offsets.

        Names of topics that were never deleted do not count: the broker is wrong then.
        """
        for name in sorted(names & self.owner.world.deleted_topics):
            self.entries.append(history.TopicDeleted(at_ms=self.owner.world.now_ms, topic=name))

    def answer(self, event: Any) -> None:
        """Count and handle the event of a request."""
        if self._driver.shard is not None:  # otherwise the driver passes it to `handle`
            self._count(event.complete() if type(event) is RepeatedHeartbeat else event)
        super().answer(event)
        self._check_invariants()

    def _count(self, event: Event) -> None:
        absence = ELSEWHERE if self._is_resigned else LOADING
        for key in group_coverage_keys(self._driver.shard, absence, event):
            self.owner.world.group_coverage[key] += 1

    def _flush_outputs(self) -> None:
        super()._flush_outputs()
        self._check_invariants()

    def _check_invariants(self) -> None:
        shard = self._driver.shard
        if shard is not None and self.owner.world.has_invariant_checks:
            invariants.check(shard, self._driver.timers.armed)


class CrashingStore(RecordedStore):
    """A recorded store whose broker dies at the planned crash points.

    In worlds with transactions, it decodes the log with them, and records durable markers.
    """

    def __init__(self, *arguments: Any) -> None:
        *others, self._owner = arguments
        super().__init__(*others)
        self._model: OffsetLogModel | None = None
        self._count = 0  # of appends

    def _changes(self, batches: Sequence[Buffer]) -> list[tuple[Pair, LogChange | None]]:
        if self._model is None:
            return super()._changes(batches)
        return list(self._model.apply(batches))

    def _state(self, content: Sequence[Buffer]) -> dict[bytes, bytes | None]:
        if not self._owner.world.options.transactional_producers:
            return super()._state(content)
        self._model = OffsetLogModel()
        return dict(pair for pair, _ in self._model.apply(content))

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append records, unless the process dies before or after."""
        owner = self._owner
        owner.pass_crash_point(records, is_stored=False)
        self._count += 1
        if self.epoch is not None and self._count % owner.world.options.entries_per_merge == 0:
            owner.merge_shard(self._place["shard"])
        incarnation, shard_epoch = self._incarnation, self.epoch or 0

        def told(error: ErrorCode) -> None:
            if incarnation == self._incarnation and not error:
                self._record_markers(records, shard_epoch)
                self._owner.pass_crash_point(records, is_stored=True)
            stored(error)

        super().append(records, at_ms, told, event_ends)

    def _record_markers(self, records: list[Any], shard_epoch: int) -> None:
        for record in records:
            if isinstance(record, TransactionMarker):
                self._recorder.append(
                    history.OffsetsMarkerDurable(
                        at_ms=self._clock.now_ms(),
                        **self._place,
                        shard_epoch=shard_epoch,
                        producer_id=record.producer_id,
                        producer_epoch=record.producer_epoch,
                        coordinator_epoch=record.coordinator_epoch,
                    )
                )


class FailingStore:
    """The store of a shard, whose appends fail as planned.

    The first append that fails may be written nevertheless. Later ones fail, too, until the log is
    read again.

    Args:
        store: The store.
        owner: The broker.
    """

    def __init__(self, store: StateStore, owner: BrokerShell) -> None:
        self._store = store
        self._owner = owner
        self._has_failed = False

    async def prepare_read(self) -> ContentReader:
        """Return a function that reads the content; appends may succeed again."""
        self._has_failed = False
        return await self._store.prepare_read()

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append records, or report an error after a delay."""
        world, owner = self._owner.world, self._owner
        if not self._has_failed:
            if not self._takes_failure(records):
                self._store.append(records, at_ms, stored, event_ends)
                return
            self._has_failed = True
            world.count_fault(APPEND_FAILED)
            if world.append_rng.random() < _WRITTEN_SHARE:
                self._store.append(records, at_ms, lambda error: None, event_ends)

        def fail() -> None:
            owner.enter(lambda: stored(ErrorCode.KAFKA_STORAGE_ERROR))

        owner.call_later(world.append_rng.choice(_APPEND_FAILURES_MS), fail)

    def _takes_failure(self, records: list[Any]) -> bool:
        """Return True if an append fails."""
        world = self._owner.world
        if world.lost_epochs and any(isinstance(each, ConsumerGroupRecord) for each in records):
            world.lost_epochs -= 1
            return True
        is_failing = world.now_ms < world.failing_appends_until_ms
        return is_failing and world.append_rng.random() < _FAILING_SHARE

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FaultyGroupActions(GroupActions):
    """Actions that take time, fail, or hang until their time limit."""

    owner: ClassVar[BrokerShell]

    def run(self, action: Action, done: ResultCallback) -> None:
        """Perform an action."""
        world = self.owner.world
        kind = "assignors" if isinstance(action, ComputeTarget) else "regexes"
        fails = world.now_ms < world.failing_until_ms.get(kind, 0)
        if world.now_ms < world.hanging_until_ms.get(kind, 0):
            fails, delay_ms = True, ACTION_TIMEOUT_MS
        else:
            is_slow = world.now_ms < world.slow_actions_until_ms
            longest_ms = _SLOW_ACTION_MS if is_slow else world.options.action_delay_max_ms
            delay_ms = world.action_rng.randrange(longest_ms + 1)
        if fails:
            self._loop.call_later(delay_ms / 1000, self._fail, action, done)
        elif delay_ms:
            self._loop.call_later(delay_ms / 1000, super().run, action, done)
        else:
            super().run(action, done)

    def _fail(self, action: Action, done: ResultCallback) -> None:
        if isinstance(action, ComputeTarget):
            done(
                TargetComputed(
                    at_ms=self._clock.now_ms(),
                    group_id=action.group_id,
                    sequence=action.sequence,
                    group_epoch=action.group_epoch,
                    target=None,
                    error="injected",
                )
            )
        else:
            done(
                RegexesResolved(
                    at_ms=self._clock.now_ms(),
                    group_id=action.group_id,
                    sequence=action.sequence,
                    topics=None,
                    version=self._images.version,
                )
            )
