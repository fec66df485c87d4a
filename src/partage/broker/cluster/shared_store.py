"""A shard's state in ZooKeeper, as the shard's host sees it."""

from __future__ import annotations

from typing import Final, Protocol

from partage.broker.coordination.state_store import ContentReader, StoredCallback
from partage.coordinator.records import Record
from partage.model.errors import ErrorCode
from partage.store.shard_log import encode_records
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import ShardFencedError, WriteCallback
from partage.store.zk_schema import ForeignDataError
from partage.store.zookeeper import StoreError

#: Of many records, about as many share an entry.
_BATCH_BYTES: Final = 128 * 1024


class ShardLogAccess(Protocol):
    """What a store needs of the broker's place in the cluster."""

    def append(self, log: SharedLog, batch: bytes, written: WriteCallback) -> None:
        """Have a batch appended, together with what else comes in these milliseconds."""

    def on_deposed(self, log: SharedLog) -> None:
        """Another broker has the shard of this log."""

    def may_answer(self) -> bool:
        """Whether the session's lease holds."""

    async def reacquire(self, shard: int) -> SharedLog:
        """Take a shard of this broker's over anew. Raises `OSError`."""


class SharedStore:
    """The store of one shard; ``log`` is that of the tenure that is under way, if one is."""

    def __init__(self, place: ShardLogAccess, shard: int) -> None:
        self.log: SharedLog | None = None
        self._access = place
        self._shard = shard

    @property
    def epoch(self) -> int | None:
        """That of the tenure under way; None while the shard is somebody else's."""
        return None if self.log is None else self.log.epoch

    def append(self, records: list[Record], at_ms: int, stored: StoredCallback) -> None:
        """Append the records; they are durable when their last batch is."""
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

        batches = encode_records(records, at_ms, _BATCH_BYTES)
        for batch in batches[:-1]:
            self._access.append(log, batch, _ignore_result)
        self._access.append(log, batches[-1], written)

    async def prepare_read(self) -> ContentReader:
        """Read the content. Raises `OSError` and `Malformed`."""
        log = self.log
        if log is None:
            raise OSError(f"this broker does not own shard {self._shard}")
        try:
            blobs = await log.load()
        except (StoreError, ForeignDataError) as error:
            raise OSError(str(error)) from None
        return lambda: blobs

    async def reopen(self) -> None:
        """Begin a tenure anew: what is still under way of the old one is refused by ZooKeeper."""
        self.log = await self._access.reacquire(self._shard)

    def may_answer(self) -> bool:
        """Whether no other broker can have the shard by now."""
        return self._access.may_answer()


def _ignore_result(fault: StoreError | None) -> None:
    """A batch whose successor's outcome says all."""
