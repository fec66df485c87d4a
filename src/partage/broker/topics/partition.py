"""A partition on this broker: its log, its writer, and the requests that wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from partage.broker.topics.log_writer import LogWriter
from partage.broker.topics.recompressor import Recompressor
from partage.log.errors import DamagedLogError
from partage.log.partition import PartitionLog
from partage.log.producer_state import VerificationGuard
from partage.log.recompression import needs_recompression, recompress_batches
from partage.log.results import AppendResult, Refusal
from partage.log.segments.segment_list import LogEnd
from partage.log.validator import needs_decompression
from partage.model.errors import ErrorCode
from partage.runtime.transaction_admission import AdmissionKey
from partage.wire.types import Buffer

log = logging.getLogger(__name__)

AppendCallback = Callable[[ErrorCode], None]
AppendOutcome = AppendResult | Refusal


class PartitionListener(Protocol):
    """A request that waits for records."""

    def on_partition_changed(self, byte_count: int) -> None:
        """Handle ``byte_count`` new readable bytes; 0 means that the partition has failed or was
        removed.
        """


class _ClientAppend(NamedTuple):
    """Batches of a producer that wait until earlier ones are validated or recompressed."""

    payload: Buffer
    at_ms: int
    appended: Callable[[AppendOutcome], None]
    done: AppendCallback
    guard: VerificationGuard | None


class Partition:
    """One partition.

    After a failed write its log is ahead of its files, so the partition goes offline, and
    ``on_failed`` is called to reopen it.
    """

    def __init__(
        self,
        name: str,
        log: PartitionLog,
        writer: LogWriter,
        recompressor: Recompressor,
        on_failed: Callable[[], None],
    ) -> None:
        self.name = name
        self.log = log
        #: Held by the maintenance while it works on the files, and before the files are removed.
        self.maintenance_lock = asyncio.Lock()
        self._writer = writer
        self._recompressor = recompressor
        self._client_appends = deque[_ClientAppend]()
        #: Decisions about transactional batches, in order of arrival: `transaction_admission`.
        self.admissions: dict[AdmissionKey, list[Callable[[ErrorCode], None]]] = {}
        self._on_failed = on_failed
        self._listeners: dict[PartitionListener, None] = {}
        self._stable_listeners: dict[PartitionListener, None] = {}
        self.failure: OSError | None = None
        #: Error for requests to this partition; NONE without a failure.
        self.error = ErrorCode.NONE

    def append_from_client(
        self,
        payload: Buffer,
        appended: Callable[[AppendOutcome], None],
        done: AppendCallback,
        *,
        at_ms: int,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Append batches of a producer, in order of arrival.

        A thread decompresses them first, if ``compression.type`` requires another codec or the
        validation must see the records. Later batches wait for them, because the sequence numbers
        of a producer must be in order.

        Args:
            payload: one or more record batches.
            appended: called with the offsets or a refusal.
            done: called after ``appended``, as in `append`.
            at_ms: the time of the append.
            guard: the proof that a transactional batch may open its transaction.
        """
        waiting = self._client_appends
        one = _ClientAppend(payload, at_ms, appended, done, guard)
        if not waiting and not self._needs_thread(one):
            appended(self.append(payload, done, at_ms=at_ms, guard=guard))
            return
        waiting.append(one)
        if len(waiting) == 1:
            self._recompressor.spawn(self._append_waiting())

    def _needs_thread(self, one: _ClientAppend) -> bool:
        config = self.log.config
        return self.failure is None and (
            needs_recompression(one.payload, config)
            or needs_decompression(one.payload, config, one.at_ms)
        )

    async def _append_waiting(self) -> None:
        waiting = self._client_appends
        while waiting:
            one = waiting[0]
            is_prepared = self._needs_thread(one)
            content = await self._prepare(one) if is_prepared else one.payload
            try:
                one.appended(
                    content
                    if isinstance(content, Refusal)
                    else self.append(
                        content,
                        one.done,
                        at_ms=one.at_ms,
                        are_records_checked=is_prepared,
                        guard=one.guard,
                    )
                )
            except Exception:  # a bug; later batches must not wait forever
                log.exception("append to %s failed", self.name)
            # Only now: a refusal may start the next request, which must find that this task runs.
            waiting.popleft()

    async def _prepare(self, one: _ClientAppend) -> Buffer | Refusal:
        """Validate batches in a thread, and recompress them if the topic requires it."""
        try:
            work = partial(recompress_batches, one.payload, self.log.config, one.at_ms)
            return await self._recompressor.run(work)
        except Exception:  # a bug, or no memory
            log.exception("validation or recompression of a batch for %s failed", self.name)
            return Refusal(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the batch could not be validated or recompressed"
            )

    def append(
        self,
        payload: Buffer,
        done: AppendCallback,
        *,
        at_ms: int,
        from_client: bool = True,
        are_records_checked: bool = False,
        guard: VerificationGuard | None = None,
    ) -> AppendOutcome:
        """Append batches.

        Args:
            payload: one or more record batches.
            done: called with NONE once the batches are durable, or with an error. It is not called
                after a refusal, which changes nothing.
            at_ms: the time of the append.
            from_client: False for records of the broker itself.
            are_records_checked: True if `validate_batches` has already validated the payload.
            guard: the proof that a transactional batch may open its transaction.
        """
        if self.failure is not None:
            return self._offline()
        outcome = self.log.append(
            payload,
            at_ms=at_ms,
            from_client=from_client,
            are_records_checked=are_records_checked,
            guard=guard,
        )
        return self._submit(outcome, len(payload), done)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        transaction_version: int,
        at_ms: int,
        done: AppendCallback,
    ) -> AppendOutcome:
        """Append the marker that ends a producer's transaction: see `PartitionLog.append_marker`.

        Args:
            producer_id: the producer.
            producer_epoch: the epoch of the marker.
            coordinator_epoch: the epoch of the transaction coordinator.
            is_commit: True to commit the transaction, False to abort it.
            transaction_version: 2 if each marker raises the epoch (KIP-890).
            at_ms: the time of the append.
            done: called with NONE once the marker is durable, or with an error. It is not called
                after a refusal, which changes nothing.
        """
        if self.failure is not None:
            return self._offline()
        outcome = self.log.append_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            is_commit=is_commit,
            transaction_version=transaction_version,
            at_ms=at_ms,
        )
        size = 0 if isinstance(outcome, Refusal) else outcome.writes[-1].size
        return self._submit(outcome, size, done)

    def call_when_durable(self, done: AppendCallback) -> None:
        """Report when all appended batches are durable, or the error of the partition."""
        if self.failure is not None:
            done(self.error)
            return

        def written(error: OSError | None) -> None:
            if self.failure is not None:
                done(self.error)
            else:  # the error may be that of another partition
                done(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR)

        self._writer.submit((), written)

    def _offline(self) -> Refusal:
        return Refusal(self.error, f"{self.name} is offline: {self.failure}")

    def _submit(self, outcome: AppendOutcome, size: int, done: AppendCallback) -> AppendOutcome:
        """Submit the writes of an append of ``size`` bytes, if it was not refused."""
        if isinstance(outcome, Refusal):
            return outcome
        end_offset = self.log.end_offset

        def written(error: OSError | None) -> None:
            if error is not None:
                self.fail(error)
            if self.failure is not None:
                done(self.error)
                return
            self._on_durable(end_offset, size)
            done(ErrorCode.NONE)

        # A duplicate writes nothing, but waits for the write of the original.
        self._writer.submit(outcome.writes, written)
        return outcome

    def _on_durable(self, end_offset: int, byte_count: int) -> None:
        stable_end = self._stable_end() if self._stable_listeners else None
        is_synced = self._writer.is_sync_enabled
        self.log.mark_durable(end_offset, synced=is_synced)
        if is_synced:
            self._writer.queue_checkpoint(self.log.checkpoint_write())
        _notify(self._listeners, byte_count)
        if self._stable_listeners:
            new_end = self._stable_end()
            if stable_end is not None and new_end is not None:
                byte_count = self.log.bytes_between(stable_end, new_end)
            if byte_count:
                _notify(self._stable_listeners, byte_count)

    def _stable_end(self) -> LogEnd | None:
        """Return the position of the last stable offset; None if the log cannot be read."""
        try:
            return self.log.stable_end
        except (DamagedLogError, OSError) as error:
            log.error("lookup of the stable end failed: partition=%s error=%s", self.name, error)
            return None

    def fail(self, error: OSError) -> None:
        """Go offline: the log no longer matches its files."""
        if self.failure is None:
            log.error("partition %s went offline, a write failed: %s", self.name, error)
            self.failure, self.error = error, ErrorCode.KAFKA_STORAGE_ERROR
            self._notify_failure()
            self._on_failed()

    def add_listener(self, watcher: PartitionListener, *, only_stable: bool = False) -> None:
        """Notify a listener of new records, or only of those below the last stable offset."""
        (self._stable_listeners if only_stable else self._listeners)[watcher] = None

    def remove_listener(self, watcher: PartitionListener) -> None:
        """Stop notifying a listener."""
        self._listeners.pop(watcher, None)
        self._stable_listeners.pop(watcher, None)

    @property
    def listener_count(self) -> int:
        """Number of listeners."""
        return len(self._listeners) + len(self._stable_listeners)

    def _notify_failure(self) -> None:
        _notify(self._listeners, 0)
        _notify(self._stable_listeners, 0)

    async def retire(
        self, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why: str = "deleted"
    ) -> None:
        """Take the partition offline because it is deleted or reopened.

        When this returns, no request waits for it and nothing uses its files.
        """
        self.failure, self.error = OSError(f"{self.name} is {why}"), error
        self._notify_failure()
        await self._writer.barrier()
        async with self.maintenance_lock:
            pass  # the maintenance checks `failure` before and during its work


def _notify(listeners: Iterable[PartitionListener], byte_count: int) -> None:
    for listener in list(listeners):
        listener.on_partition_changed(byte_count)
