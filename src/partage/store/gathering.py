"""Write batcher for the logs of many shards.

A ZooKeeper ensemble handles a few hundred transactions per second, and each can hold half a
megabyte. Entries that arrive while a transaction is under way share the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from partage.store.shared_log import CHUNK_BYTES, Entry, SharedLog
from partage.store.zookeeper import (
    TRANSACTION_BYTES_MAX,
    Check,
    Create,
    InDoubt,
    Refused,
    Session,
    StoreFault,
    Why,
)

_OPERATION_BYTES: Final = 128  # estimate for the overhead besides path and data
_ENTRIES_MAX: Final = 1000

#: Called with None once the entry is durable, or with an error, after which the entry may or may
#: not be durable.
Written = Callable[[StoreFault | None], None]


class Deposed(StoreFault):
    """Raised when another broker has taken over the shard."""


class _Waiting:
    """An entry that is not durable yet."""

    __slots__ = ("entry", "is_in_doubt", "log", "written")

    def __init__(self, log: SharedLog, entry: Entry, written: Written) -> None:
        self.log = log
        self.entry = entry
        self.written = written
        self.is_in_doubt = False


class Gatherer:
    """The pending log entries of one session.

    After `enqueue` a shell must run `flush`, one call at a time. It should wait a few milliseconds
    first, so that more entries share a transaction.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[_Waiting] = deque()

    def add(self, log: SharedLog, batch: bytes, written: Written) -> None:
        """Append a record batch to a log, with the next `flush`.

        Args:
            log: The log.
            batch: The bytes of the record batch.
            written: Called with the result.
        """
        self._waiting.append(_Waiting(log, log.next_entry(batch), written))

    @property
    def is_idle(self) -> bool:
        """True if no entry is pending."""
        return not self._waiting

    async def flush(self) -> None:
        """Write until no entry is pending.

        Raises:
            SessionEndedError: The session ended; the remaining callbacks are not called.
        """
        while self._waiting:
            gathered = await self._gather()
            if gathered:
                await self._write(gathered)

    async def _gather(self) -> list[_Waiting]:
        """Remove and return the next entries that fit into one transaction, in order."""
        gathered: list[_Waiting] = []
        size = 0
        while self._waiting and len(gathered) < _ENTRIES_MAX:
            one = self._waiting[0]
            if len(one.entry.batch) >= CHUNK_BYTES and one.entry.part is None:
                if gathered:
                    break  # write the entries before it first; its chunks may take some time
                try:
                    one.entry = await one.log.prepared(one.entry)
                except Refused as refused:
                    self._fail(one.log, _reason(refused, at_fence=refused.position == 0))
                    continue
            size += _OPERATION_BYTES + _size(one.log.creation(one.entry)) + _size(one.log.fence)
            if gathered and size > TRANSACTION_BYTES_MAX:
                break
            gathered.append(self._waiting.popleft())
        return gathered

    async def _write(self, gathered: list[_Waiting]) -> None:
        """Write entries in one transaction, and retry until its result is known."""
        while gathered:
            logs = list(dict.fromkeys(one.log for one in gathered))
            operations = [log.fence for log in logs]
            creations = [one.log.creation(one.entry) for one in gathered]
            try:
                await self._session.transact([*operations, *creations])
            except InDoubt:
                for one in gathered:
                    one.is_in_doubt = True
                await self._session.connected()
            except Refused as refused:
                gathered = self._without(gathered, logs, refused)
            else:
                for one in gathered:
                    self._done(one)
                return

    def _without(
        self, gathered: list[_Waiting], logs: list[SharedLog], refused: Refused
    ) -> list[_Waiting]:
        """Handle a refused transaction and return the entries to retry."""
        if refused.position < len(logs):
            log = logs[refused.position]
            self._fail(log, _reason(refused, at_fence=True), also=gathered)
            return [one for one in gathered if one.log is not log]
        culprit = gathered[refused.position - len(logs)]
        if refused.why is Why.EXISTS and culprit.is_in_doubt:
            # The fence was checked first, so an earlier attempt wrote this entry and all others.
            for one in gathered:
                self._done(one)
            return []
        self._fail(culprit.log, _reason(refused, at_fence=False), also=gathered)
        return [one for one in gathered if one.log is not culprit.log]

    @staticmethod
    def _done(one: _Waiting) -> None:
        one.log.written(one.entry)
        one.written(None)

    def _fail(self, log: SharedLog, reason: StoreFault, also: list[_Waiting] | None = None) -> None:
        """Fail all pending entries of a log: its entry numbers must have no gap."""
        failed = [one for one in also or () if one.log is log]
        failed += [one for one in self._waiting if one.log is log]
        self._waiting = deque(one for one in self._waiting if one.log is not log)
        for one in failed:
            one.written(reason)


def _reason(refused: Refused, *, at_fence: bool) -> StoreFault:
    if at_fence and refused.why in (Why.VERSION, Why.MISSING):
        return Deposed("another broker has taken the shard over")
    return refused


def _size(operation: Create | Check) -> int:
    return len(operation.path) + (len(operation.data) if isinstance(operation, Create) else 0)
