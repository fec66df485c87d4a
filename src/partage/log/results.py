"""Results of the log: I/O to perform, slices to read, and refusals.

The order matters. A shell performs the writes in the returned order and waits until they are
durable. Only then does it call `PartitionLog.mark_durable` and answer the producer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.log.disk import Buffer
from partage.model.errors import ErrorCode


class Write(msgspec.Struct, frozen=True):
    """Bytes to write at a position.

    A write at position 0 may create the file, so its directory needs a sync.
    """

    path: str
    position: int
    chunks: Sequence[Buffer]

    @property
    def size(self) -> int:
        """Bytes in all chunks."""
        return sum(map(len, self.chunks))


class RecordError(msgspec.Struct, frozen=True):
    """A record that caused the refusal of its batch (KIP-467).

    ``index`` counts the records of the partition in the request, from 0.
    """

    index: int
    message: str


class Refusal(msgspec.Struct, frozen=True):
    """The reason why a request was refused. Nothing has changed.

    ``record_errors`` lists the invalid records. It is empty if the batches are invalid as a whole.
    """

    code: ErrorCode
    message: str
    record_errors: tuple[RecordError, ...] = ()


class AppendResult(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of appended batches. Answer the producer once ``high_watermark > last_offset``.

    A duplicate has its first offsets and no writes. The same wait applies to it.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 if the topic keeps the producer's timestamps
    log_start_offset: int
    writes: Sequence[Write]


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to read: complete batches, except that the last one may be cut off.

    ``base_offset`` is the base offset of the batch at ``position``, and ``first_size`` its size in
    bytes, which may exceed ``length``; see `batch_reader.check_slice`.
    If the file does not exist, the segment was removed or compacted: locate the offset again.
    """

    path: str
    position: int
    length: int
    base_offset: int
    first_size: int


class DurableStep(msgspec.Struct, frozen=True, kw_only=True):
    """A change with a fixed order of I/O.

    Make ``writes`` durable, write and sync ``checkpoint``, then remove the files in ``removals``.

    Remove them after ``file.delete.delay.ms``, so that reads in progress can finish. See
    `io.perform_step`.
    """

    writes: Sequence[Write] = ()
    checkpoint: Write
    removals: Sequence[str] = ()
