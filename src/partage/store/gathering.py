"""Entries of many shards' logs, gathered into as few transactions as can be.

A ZooKeeper takes some hundreds of transactions a second, and each may hold half a megabyte: what
came while the last one was under way goes out together in the next.
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

_OPERATION_BYTES: Final = 128  # beside path and data, generously
_ENTRIES_MAX: Final = 1000

#: Told once the entry is durable, with None; or why it is not, and then it may be or not.
Written = Callable[[StoreFault | None], None]


class Deposed(StoreFault):
    """Somebody else has taken the shard over."""


class _Waiting:
    """An entry on its way."""

    __slots__ = ("entry", "is_in_doubt", "log", "written")

    def __init__(self, log: SharedLog, entry: Entry, written: Written) -> None:
        self.log = log
        self.entry = entry
        self.written = written
        self.is_in_doubt = False


class Gatherer:
    """All entries of one session that wait to be written.

    After `add` a shell sees to it that `flush` runs, once at a time, and not at once: what comes
    within a few milliseconds shares a transaction.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[_Waiting] = deque()

    def add(self, log: SharedLog, batch: bytes, written: Written) -> None:
        """Have a batch appended to a log."""
        self._waiting.append(_Waiting(log, log.next_entry(batch), written))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to write."""
        return not self._waiting

    async def flush(self) -> None:
        """Write until nothing waits. Raises `SessionOver`, and then nobody is told any more."""
        while self._waiting:
            gathered = await self._gather()
            if gathered:
                await self._write(gathered)

    async def _gather(self) -> list[_Waiting]:
        """The next entries in order, as many as fit into a transaction."""
        gathered: list[_Waiting] = []
        size = 0
        while self._waiting and len(gathered) < _ENTRIES_MAX:
            one = self._waiting[0]
            if len(one.entry.batch) >= CHUNK_BYTES and one.entry.part is None:
                if gathered:
                    break  # first those before it; its chunks may take their time
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
        """One transaction, again until its outcome is known."""
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
        """What is left of a refused transaction, to be tried again."""
        if refused.position < len(logs):
            log = logs[refused.position]
            self._fail(log, _reason(refused, at_fence=True), also=gathered)
            return [one for one in gathered if one.log is not log]
        culprit = gathered[refused.position - len(logs)]
        if refused.why is Why.EXISTS and culprit.is_in_doubt:
            # The fence was checked before it: what is there is what an earlier try has written,
            # and all else with it.
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
        """Give up what waits for a log: an entry that is not written leaves no room for later."""
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
