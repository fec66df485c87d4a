"""The state of a shard in ZooKeeper, behind the interface that the shard's host uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from partage.broker.coordination.state_store import ContentReader, RecordEncoder, StoredCallback
from partage.log.producer_state import ProducerStateManager
from partage.model.errors import ErrorCode
from partage.runtime.shard_producers import ShardProducers
from partage.store.shard_log import encode_records
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import ShardFencedError, WriteCallback
from partage.store.zk_schema import ForeignDataError
from partage.store.zookeeper import StoreError

#: Target size of a log entry, if there are many events. ZooKeeper stores an entry atomically.
_BATCH_BYTES: Final = 128 * 1024
_EXPIRY_INTERVAL_MS: Final = 600_000


class ShardLogAccess(Protocol):
    """Access to the logs of owned shards."""

    def append(self, log: SharedLog, batch: bytes, written: WriteCallback) -> None:
        """Append a batch, together with others of the same few milliseconds."""

    def on_deposed(self, log: SharedLog) -> None:
        """Give up the shard of this log: another broker owns it now."""

    def may_answer(self) -> bool:
        """True if the session's lease is valid."""

    async def reacquire(self, shard: int) -> SharedLog:
        """Acquire an owned shard again, with a new epoch.

        Raises:
            OSError: the broker no longer owns the shard, or ZooKeeper refused.
        """


class SharedStore:
    """The store of one shard. ``log`` is None while this broker does not own the shard.

    Args:
        place: access to the logs of owned shards.
        shard: the number of the shard.
        encode: returns records as batches.
    """

    def __init__(
        self, place: ShardLogAccess, shard: int, encode: RecordEncoder = encode_records
    ) -> None:
        self.log: SharedLog | None = None
        self._producers = ShardProducers()
        self._access = place
        self._shard = shard
        self._encode = encode
        self._expired_ms = 0  # the last time at which old producers were removed

    @property
    def producer_state(self) -> ProducerStateManager:
        """The producers of transactional records."""
        return self._producers.state

    @property
    def epoch(self) -> int | None:
        """Epoch of the current ownership; None while another broker owns the shard."""
        return None if self.log is None else self.log.epoch

    def append(
        self, records: list[Any], at_ms: int, stored: StoredCallback, event_ends: Sequence[int]
    ) -> None:
        """Append the records; they are durable when the last batch is."""
        log = self.log
        if log is None:
            raise OSError(f"this broker does not own shard {self._shard}")

        def written(fault: StoreError | None) -> None:
            if fault is None:
                stored(ErrorCode.NONE)
            elif isinstance(fault, ShardFencedError):
                self._access.on_deposed(log)
            else:
                stored(ErrorCode.KAFKA_STORAGE_ERROR)

        batches = self._encode(records, at_ms, _BATCH_BYTES, event_ends)
        self._producers.apply(batches)
        if at_ms >= self._expired_ms + _EXPIRY_INTERVAL_MS:
            self._expired_ms = at_ms
            self._producers.state.remove_expired(at_ms)
        for batch in batches[:-1]:
            self._access.append(log, batch, _ignore_result)
        self._access.append(log, batches[-1], written)

    async def prepare_read(self) -> ContentReader:
        """Read the content.

        Raises:
            OSError: the broker does not own the shard, or ZooKeeper failed.
            MalformedError: the content cannot be decoded.
        """
        log = self.log
        if log is None:
            raise OSError(f"this broker does not own shard {self._shard}")
        try:
            blobs = await log.load()
        except (StoreError, ForeignDataError) as error:
            raise OSError(str(error)) from None
        self._producers.load(blobs)
        return lambda: blobs

    async def reopen(self) -> None:
        """Acquire the shard again: ZooKeeper then refuses unfinished writes of the old epoch."""
        self.log = await self._access.reacquire(self._shard)

    def may_answer(self) -> bool:
        """True if no other broker can own the shard now."""
        return self._access.may_answer()


def _ignore_result(fault: StoreError | None) -> None:
    """Ignore the result of a batch: the last batch reports for all."""
