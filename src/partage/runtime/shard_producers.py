"""The producers of a shard whose log is in a shared store."""

from __future__ import annotations

from collections.abc import Iterable

from partage.log.producer_state import ProducerStateManager
from partage.store.log_merge import has_transactions
from partage.wire.records.batch import whole_batches
from partage.wire.records.transaction_marker import decode_marker
from partage.wire.types import Buffer


class ShardProducers:
    """Follows the transactional batches and markers of a shard, as the log of a partition does.

    Attributes:
        state: the producers of the batches so far.
    """

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self._position = 0  # of the next batch; it only orders the batches

    def load(self, blobs: Iterable[Buffer]) -> None:
        """Begin again with the content of the log."""
        self.state = ProducerStateManager()
        self.apply(blobs)

    def apply(self, blobs: Iterable[Buffer]) -> None:
        """Apply batches that were appended."""
        for blob in blobs:
            if not has_transactions(blob):
                continue
            view = memoryview(blob)
            for at, header in whole_batches(view):
                self._position += 1
                marker = decode_marker(header, view[at : at + header.size])
                if marker is not None:
                    self.state.record_marker(
                        header.producer_id,
                        header.producer_epoch,
                        marker,
                        self._position,
                        seen_ms=header.max_timestamp_ms,
                    )
                elif header.is_transactional:
                    self.state.record_batch(
                        header.producer_id,
                        header.producer_epoch,
                        header.base_sequence,
                        self._position,
                        self._position,
                        is_transactional=True,
                        seen_ms=header.max_timestamp_ms,
                    )
        self.state.on_high_watermark(self._position + 1)
