"""Hosts of group shards that record what they read and write, for the rules of the coordinator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Protocol

from partage.broker.clock import Clock
from partage.broker.coordination.group_event_listeners import GroupEventListener
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.coordination.state_store import (
    ContentReader,
    LocalStore,
    StateStore,
    StoredCallback,
)
from partage.coordinator.outcome import GroupEvent, GroupEventType
from partage.lab import history
from partage.lab.offset_log import LogChange, Pair
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.store.record_formats import decode_record
from partage.store.shard_log import encode_records
from partage.wire.records.decoder import decode_pairs
from partage.wire.types import Buffer

_NUMBER: Final = re.compile(r"\d+$")


class EntryRecorder(Protocol):
    """Collects history entries."""

    def append(self, entry: history.HistoryEntry) -> None:
        """Append an entry."""


def broker_number(name: str) -> int:
    """Return the number at the end of the name of a broker or shard."""
    found = _NUMBER.search(name)
    assert found is not None, f"{name!r} has no number"
    return int(found[0])


class RecordedStore:
    """The store of a shard; it records appends, their results, and loads."""

    def __init__(
        self, store: StateStore, recorder: EntryRecorder, broker: int, shard: int, clock: Clock
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._place: dict[str, int] = {"broker": broker, "shard": shard}
        self._clock = clock
        self._incarnation = 0  # results of earlier appends do not count

    @property
    def epoch(self) -> int | None:
        """The epoch of the current ownership."""
        return self._store.epoch

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""
        return self._store.producer_state

    def may_answer(self) -> bool:
        """True if no other broker can own the shard now."""
        return self._store.may_answer()

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append records, and record the result before the host learns of it."""
        written = self._changes(encode_records(records, at_ms, event_ends=event_ends))
        pairs = tuple(pair for pair, _ in written)
        changes = tuple(change for _, change in written if change is not None)
        self._recorder.append(
            history.RecordsAppended(
                at_ms=self._clock.now_ms(),
                **self._place,
                records=changes,
                pairs=pairs,
                broker_ms=at_ms,
            )
        )
        incarnation = self._incarnation

        def told(error: ErrorCode) -> None:
            if incarnation == self._incarnation:
                if error:
                    self.on_failed()
                else:
                    self._recorder.append(
                        history.RecordsDurable(
                            at_ms=self._clock.now_ms(), **self._place, count=len(pairs)
                        )
                    )
            stored(error)

        try:
            self._store.append(records, at_ms, told, event_ends)
        except OSError:
            self.on_failed()
            raise

    def _changes(self, batches: Sequence[Buffer]) -> list[tuple[Pair, LogChange | None]]:
        """Return the encoded pairs of batches, each with its record; None if it has none."""
        pairs = ((key or b"", value) for key, value in decode_pairs(batches))
        return [(pair, decode_record(*pair)) for pair in pairs]

    def _state(self, content: Sequence[Buffer]) -> dict[bytes, bytes | None]:
        """Return the last value of each key."""
        return {key: value for key, value in decode_pairs(content) if key is not None}

    def on_failed(self) -> None:
        """Record that the results of all appends so far are unknown."""
        self._incarnation += 1
        self._recorder.append(history.LogWriteFailed(at_ms=self._clock.now_ms(), **self._place))

    def on_resigned(self) -> None:
        """Record that the shard was dropped, because another broker may own it."""
        self._incarnation += 1
        self._recorder.append(history.ShardResigned(at_ms=self._clock.now_ms(), **self._place))

    def on_empty(self) -> None:
        """Record that the log is empty, and is not read."""
        self._on_read(0, ())

    async def prepare_read(self) -> ContentReader:
        """Return a function that reads the content, and records it."""
        epoch, incarnation = self.epoch, self._incarnation
        if epoch is not None:
            self._recorder.append(
                history.ShardAcquired(at_ms=self._clock.now_ms(), **self._place, epoch=epoch)
            )
        read = await self._store.prepare_read()

        def read_and_record() -> Sequence[Buffer]:
            content = read()
            if incarnation == self._incarnation:
                self._on_read(epoch or 0, content)
            return content

        return read_and_record

    def _on_read(self, epoch: int, content: Sequence[Buffer]) -> None:
        state = self._state(content)
        self._recorder.append(
            history.ShardLoaded(at_ms=self._clock.now_ms(), **self._place, epoch=epoch, state=state)
        )

    async def reopen(self) -> None:
        """Open the log again after a failure of the log or of the shard."""
        self.on_failed()
        await self._store.reopen()


class RecordedShardHost(ShardHost):
    """A host whose store is recorded, and the members that it removes; a base class.

    Attributes:
        entries: Collects the history.
    """

    entries: ClassVar[EntryRecorder]

    @classmethod
    def broker_id(cls) -> int:
        """Return the number of the broker that creates a host now; each subclass overrides it.

        The host's base class is not abstract, so a missing method shows when a host is created.

        Raises:
            NotImplementedError: The subclass does not override it.
        """
        raise NotImplementedError

    @classmethod
    def record_store(
        cls, store: StateStore, broker_id: int, shard: int, clock: Clock
    ) -> RecordedStore:
        """Return a store that records what the host of a shard reads and writes."""
        return RecordedStore(store, cls.entries, broker_id, shard, clock)

    def __init__(
        self,
        name: str,
        store: StateStore,
        settings: GroupSettings,
        clock: Clock,
        listener: GroupEventListener,
        *more: Any,
    ) -> None:
        self._broker = self.broker_id()
        self._recorded = self.record_store(store, self._broker, broker_number(name), clock)
        #: Removals that are reported when the lease is valid again.
        self._expired: list[GroupEvent] = []

        def listen(event: GroupEvent) -> None:
            if event.event_type is GroupEventType.EXPIRED:
                self._expired.append(event)
            listener(event)

        super().__init__(name, self._recorded, settings, clock, listen, *more)
        if isinstance(store, LocalStore) and store.is_empty:
            self._recorded.on_empty()

    def _history_ms(self, at_ms: int) -> int:
        """Return the time in the history of an event at ``at_ms`` on the broker's clock."""
        return at_ms

    def resign(self) -> None:
        """Drop the loaded state, and record it."""
        self._expired.clear()
        self._recorded.on_resigned()
        super().resign()

    def _fail(self, error: BaseException) -> None:
        self._expired.clear()
        self._recorded.on_failed()
        super()._fail(error)

    def unload(self) -> None:
        """Drop the loaded state, and record that appends in progress are in doubt."""
        self._expired.clear()
        self._recorded.on_failed()
        super().unload()

    def _flush_notices(self) -> None:
        super()._flush_notices()
        if self._expired and self._store.may_answer():
            expired, self._expired = self._expired, []
            for event in expired:
                self.entries.append(
                    history.MemberExpired(
                        at_ms=self._history_ms(event.at_ms),
                        broker=self._broker,
                        group_id=event.group_id,
                        member_id=event.member_id or "",
                        reason=event.reason,
                    )
                )
