"""Writes to ZooKeeper in one session: batched appends, and merges of long logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from partage.store.shared_log import SharedLog
from partage.store.write_batcher import WriteBatcher, WriteCallback
from partage.store.zookeeper import (
    InDoubtError,
    RefusedError,
    Session,
    SessionEndedError,
    StoreError,
)

log = logging.getLogger(__name__)

_TICK_S: Final = 0.005  # writes within this time share a transaction

SpawnTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class SessionWriter:
    """Writer for the logs of all shards. After the session has ended, no callback is called."""

    def __init__(
        self, session: Session, spawn: SpawnTask, on_fatal: Callable[[BaseException], None]
    ) -> None:
        self._batcher = WriteBatcher(session)
        self._spawn = spawn
        self._on_fatal = on_fatal
        self._flushing: asyncio.Task[None] | None = None

    def append(self, to: SharedLog, batch: bytes, written: WriteCallback) -> None:
        """Append a batch, together with others of the same few milliseconds."""

        def appended(fault: StoreError | None) -> None:
            if fault is None and to.needs_merge:
                self._spawn(self._merge(to))
            written(fault)

        self._batcher.enqueue(to, batch, appended)
        if self._flushing is None:
            self._flushing = self._spawn(self._flush())

    async def _flush(self) -> None:
        try:
            await asyncio.sleep(_TICK_S)
            await self._batcher.flush()
        except SessionEndedError:
            return
        except Exception as error:
            log.exception("write to ZooKeeper failed")
            self._on_fatal(error)
            return
        self._flushing = None

    async def _merge(self, of: SharedLog) -> None:
        try:
            await of.merge(asyncio.to_thread)
        except (SessionEndedError, InDoubtError):
            pass  # the next append tries again
        except RefusedError as refused:  # usually the fence: the next append reports it
            log.warning("merge of a shard's log refused: shard=%d reason=%s", of.shard, refused)
        except Exception as error:
            log.exception("merge of a shard's log failed: shard=%d", of.shard)
            self._on_fatal(error)
