"""Write batcher for the logs of many shards.

A ZooKeeper ensemble handles a few hundred transactions per second, and each can hold half a
megabyte. Entries that arrive while a transaction is under way share the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from partage.store.shared_log import CHUNK_BYTES, LogEntry, SharedLog
from partage.store.zookeeper import (
    TRANSACTION_BYTES_MAX,
    Check,
    Create,
    InDoubtError,
    RefusalReason,
    RefusedError,
    Session,
    StoreError,
)

_OPERATION_BYTES: Final = 128  # estimate for the overhead besides path and data
_ENTRIES_MAX: Final = 1000

#: Called with None once the entry is durable, or with an error, after which the entry may or may
#: not be durable.
WriteCallback = Callable[[StoreError | None], None]


class ShardFencedError(StoreError):
    """Raised when another broker has taken over the shard."""


class _PendingWrite:
    """An entry that is not durable yet."""

    __slots__ = ("entry", "is_in_doubt", "log", "on_written")

    def __init__(self, log: SharedLog, entry: LogEntry, written: WriteCallback) -> None:
        self.log = log
        self.entry = entry
        self.on_written = written
        self.is_in_doubt = False


class WriteBatcher:
    """The pending log entries of one session.

    After `enqueue` a shell must run `flush`, one call at a time. It should wait a few milliseconds
    first, so that more entries share a transaction.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pending: deque[_PendingWrite] = deque()

    def enqueue(self, log: SharedLog, batch: bytes, written: WriteCallback) -> None:
        """Append a record batch to a log, with the next `flush`.

        Args:
            log: The log.
            batch: The bytes of the record batch.
            written: Called with the result.
        """
        self._pending.append(_PendingWrite(log, log.next_entry(batch), written))

    @property
    def is_idle(self) -> bool:
        """True if no entry is pending."""
        return not self._pending

    async def flush(self) -> None:
        """Write until no entry is pending.

        Raises:
            SessionEndedError: The session ended; the remaining callbacks are not called.
        """
        while self._pending:
            batch = await self._next_batch()
            if batch:
                await self._write(batch)

    async def _next_batch(self) -> list[_PendingWrite]:
        """Remove and return the next entries that fit into one transaction, in order."""
        batch: list[_PendingWrite] = []
        size = 0
        while self._pending and len(batch) < _ENTRIES_MAX:
            one = self._pending[0]
            if len(one.entry.batch) >= CHUNK_BYTES and one.entry.blob is None:
                if batch:
                    break  # write the entries before it first; its chunks may take some time
                try:
                    one.entry = await one.log.write_chunks(one.entry)
                except RefusedError as refused:
                    self._fail(one.log, _reason(refused, at_fence=refused.position == 0))
                    continue
            size += (
                _OPERATION_BYTES + _size(one.log.create_operation(one.entry)) + _size(one.log.fence)
            )
            if batch and size > TRANSACTION_BYTES_MAX:
                break
            batch.append(self._pending.popleft())
        return batch

    async def _write(self, batch: list[_PendingWrite]) -> None:
        """Write entries in one transaction, and retry until its result is known."""
        while batch:
            logs = list(dict.fromkeys(one.log for one in batch))
            operations = [log.fence for log in logs]
            creations = [one.log.create_operation(one.entry) for one in batch]
            try:
                await self._session.transact([*operations, *creations])
            except InDoubtError:
                for one in batch:
                    one.is_in_doubt = True
                await self._session.wait_connected()
            except RefusedError as refused:
                batch = self._retry_after_refusal(batch, logs, refused)
            else:
                for one in batch:
                    self._complete(one)
                return

    def _retry_after_refusal(
        self, batch: list[_PendingWrite], logs: list[SharedLog], refused: RefusedError
    ) -> list[_PendingWrite]:
        """Handle a refused transaction and return the entries to retry."""
        if refused.position < len(logs):
            log = logs[refused.position]
            self._fail(log, _reason(refused, at_fence=True), also=batch)
            return [one for one in batch if one.log is not log]
        culprit = batch[refused.position - len(logs)]
        if refused.reason is RefusalReason.EXISTS and culprit.is_in_doubt:
            # The fence was checked first, so an earlier attempt wrote this entry and all others.
            for one in batch:
                self._complete(one)
            return []
        self._fail(culprit.log, _reason(refused, at_fence=False), also=batch)
        return [one for one in batch if one.log is not culprit.log]

    @staticmethod
    def _complete(one: _PendingWrite) -> None:
        one.log.on_written(one.entry)
        one.on_written(None)

    def _fail(
        self, log: SharedLog, reason: StoreError, also: list[_PendingWrite] | None = None
    ) -> None:
        """Fail all pending entries of a log: its entry numbers must have no gap."""
        failed = [one for one in also or () if one.log is log]
        failed += [one for one in self._pending if one.log is log]
        self._pending = deque(one for one in self._pending if one.log is not log)
        for one in failed:
            one.on_written(reason)


def _reason(refused: RefusedError, *, at_fence: bool) -> StoreError:
    if at_fence and refused.reason in (RefusalReason.VERSION, RefusalReason.MISSING):
        return ShardFencedError("another broker has taken over the shard")
    return refused


def _size(operation: Create | Check) -> int:
    return len(operation.path) + (len(operation.data) if isinstance(operation, Create) else 0)
