"""What the log answers: I/O still to be done, places to read from, and refusals.

The order is the contract. A shell performs the writes in the order in which they were returned,
waits until they are durable, and only then tells the log (`PartitionLog.mark_durable`) and
answers the producer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.log.disk import Buffer
from partage.model.errors import ErrorCode


class Write(msgspec.Struct, frozen=True):
    """Bytes to write at a position; at position 0 the file may be new, so its name needs a sync."""

    path: str
    position: int
    chunks: Sequence[Buffer]

    @property
    def size(self) -> int:
        """All chunks together, in bytes."""
        return sum(map(len, self.chunks))


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was not carried out; nothing has changed."""

    code: ErrorCode
    message: str


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """Where batches were put; answer the producer once ``high_watermark > last_offset``.

    A duplicate has the offsets of the first time and no writes: the same wait holds for it.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 where the topic keeps the producer's times
    log_start_offset: int
    writes: Sequence[Write]


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to read: whole batches, except that the last one may be cut.

    ``base_offset`` is what the batch at ``position`` states; see `reading.fault_in_slice`. A file
    that is gone means that the segment was removed or compacted since: locate again.
    """

    path: str
    position: int
    length: int
    base_offset: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is safe in this order: make ``writes`` durable, write ``marker`` and sync it,
    and only then remove the files in ``removals``, after ``file.delete.delay.ms`` so that reads
    begun can end. See `performing.perform_step`.
    """

    writes: Sequence[Write] = ()
    marker: Write
    removals: Sequence[str] = ()
