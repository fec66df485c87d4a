"""Host of a shard of the transaction coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import msgspec

from partage.broker.clock import Clock
from partage.broker.coordination.base_shard_host import BaseShardHost
from partage.broker.coordination.state_store import ContentReader, StateStore
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.broker.transactions.waiting_requests import WaitingRequests
from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_driver import TransactionDriver
from partage.store.transaction_log import replay_transactions
from partage.transactions.events import AddPartitions, MarkersWritten, TransactionTimedOut
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionTombstone
from partage.transactions.replies import TransactionReply
from partage.transactions.shard import TransactionShard
from partage.transactions.states import PREPARED

log = logging.getLogger(__name__)


class ReplyTicket:
    """The ticket of a request; equal only to itself. ``done`` is called with the reply."""

    __slots__ = ("done",)

    def __init__(self, done: Callable[[Any], None]) -> None:
        self.done = done


class TransactionShardHost(BaseShardHost[TransactionDriver]):
    """Runs one shard of the transaction coordinator.

    Args:
        name: the shard's name in log lines.
        store: the shard's log.
        settings: the transaction settings.
        clock: the broker's clock.
        markers: writes markers.
        loaders: threads for loading; by default the loop's pool.
    """

    def __init__(
        self,
        name: str,
        store: StateStore,
        settings: TransactionSettings,
        clock: Clock,
        markers: MarkerWriter,
        loaders: Executor | None = None,
    ) -> None:
        driver = TransactionDriver(lambda: clock.wall_ms() - clock.now_ms())
        super().__init__(name, store, clock, driver, loaders)
        self._settings = settings
        self._marker_writer = markers
        self._waiting = WaitingRequests(self.handle)

    def load(self, topics: frozenset[str] | None = None) -> None:
        """Start loading; until it is done, requests fail with COORDINATOR_LOAD_IN_PROGRESS.

        Args:
            topics: not used: a transaction may have partitions of deleted topics.
        """
        self._start_loading(self._read_shard)

    def start_empty(self) -> None:
        """Activate the shard without loading: its log is empty."""
        self._activate(TransactionShard(self._settings))
        self._flush_outputs()

    def _read_shard(self, read: ContentReader) -> Callable[[], None]:
        return partial(self._activate, replay_transactions(read(), self._settings))

    def _activate(self, shard: TransactionShard) -> None:
        self._driver.activate(shard, self._clock.now_ms())

    def handle_when_complete(self, request: AddPartitions) -> None:
        """Handle a request once the previous transaction is complete, or after a time limit."""
        if self._is_completing(request.transactional_id):
            self._waiting.add(request)
        else:
            self.handle(request)

    def _is_completing(self, transactional_id: str) -> bool:
        """True if a decided transaction still lacks markers."""
        shard = self._driver.shard
        transaction = None if shard is None else shard.transactions.get(transactional_id)
        return transaction is not None and transaction.record.state in PREPARED

    def _drop_notices(self) -> None:
        super()._drop_notices()
        self._loop.call_soon(self._refuse_waiting)

    def _refuse_waiting(self) -> None:
        """Pass on all waiting requests: the state for which they have waited was discarded."""
        for request in self._waiting.pop_all():
            self.handle(request)

    def close(self) -> None:
        """Stop handling events. Waiting requests get no response."""
        super().close()
        self._waiting.pop_all()

    def _deliver(self, ticket: ReplyTicket, reply: TransactionReply) -> None:
        try:
            ticket.done(reply)
        except Exception:  # a bug; other requests continue
            log.exception("response of %s failed", self._name)

    def _send_replies(self) -> None:
        super()._send_replies()
        self._flush_notices()

    def _flush_notices(self) -> None:
        # Markers must not overtake the replies that were decided before them: an admitted commit
        # would be written after the marker that ends its transaction.
        if self._is_sending_replies or self._driver.ready:
            return
        for markers in self._driver.pop_markers():
            self._marker_writer.write(_Order(self, markers))

    @property
    def shard(self) -> TransactionShard | None:
        """The state machine, for tests that inject faults; None while it is being loaded."""
        return self._driver.shard

    def time_out(self, transactional_id: str) -> None:
        """Abort an open transaction, as if its timeout had passed."""
        self.handle(
            TransactionTimedOut(at_ms=self._clock.now_ms(), transactional_id=transactional_id)
        )

    def remove_ids(self) -> None:
        """Remove all transactional ids; open requests get COORDINATOR_NOT_AVAILABLE."""
        shard = self._driver.shard
        assert shard is not None, f"{self._name} is not loaded"
        removed: list[Any] = [
            TransactionTombstone(transactional_id=each) for each in shard.transactions
        ]
        self.unload()
        if removed:
            self._store.append(removed, self._clock.now_ms(), lambda error: None, [len(removed)])
        self.start_empty()

    # The orders of markers.

    @property
    def coordinator_epoch(self) -> int | None:
        """Epoch of the current ownership of the shard; None on a single broker."""
        return self._store.epoch

    @property
    def incarnation(self) -> int:
        """Number of times that the state was discarded."""
        return self._incarnation

    @property
    def is_closed(self) -> bool:
        """True if the host handles no more events."""
        return self._is_closed

    def report(self, markers: MarkersToWrite, partitions: tuple[TopicPartition, ...]) -> None:
        """Report durable markers to the state machine."""
        self.handle(
            MarkersWritten(
                at_ms=self._clock.now_ms(),
                transactional_id=markers.transactional_id,
                producer_id=markers.producer_id,
                epoch=markers.epoch,
                partitions=partitions,
            )
        )
        if not self._is_completing(markers.transactional_id):
            for request in self._waiting.pop(markers.transactional_id):
                self.handle_when_complete(
                    msgspec.structs.replace(request, at_ms=self._clock.now_ms())
                )

    def report_soon(self, report: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop."""
        self._loop.call_soon(report)


class _Order:
    """An order of markers; it reports all that become durable in one turn of the loop together."""

    def __init__(self, host: TransactionShardHost, markers: MarkersToWrite) -> None:
        self.markers = markers
        self.coordinator_epoch = host.coordinator_epoch
        self._host = host
        self._incarnation = host.incarnation
        self._unreported: list[TopicPartition] = []

    @property
    def is_current(self) -> bool:
        """False if the shard was discarded since, or the broker stops."""
        return self._incarnation == self._host.incarnation and not self._host.is_closed

    def on_written(self, partition: TopicPartition) -> None:
        """Report a marker soon."""
        if not self._unreported:
            self._host.report_soon(self._report)
        self._unreported.append(partition)

    def _report(self) -> None:
        written, self._unreported = self._unreported, []
        if self.is_current:
            self._host.report(self.markers, tuple(written))
