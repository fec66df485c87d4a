"""The cursor of a user's loop over records."""

from __future__ import annotations

from collections.abc import Iterator

from partage.client.consumer.deserializers import Deserializers
from partage.client.consumer.engine import Engine
from partage.client.consumer.fetch_state_machine import RecordRange
from partage.client.consumer.records import Batch, Record


class RecordCursor:
    """A range of records that a loop delivers one at a time.

    Before each record it checks whether delivery is still allowed. A seek, a pause or the loss of
    the partition ends it at once. `close` puts the undelivered records back, so the position is
    always the offset after the last delivered record.
    """

    def __init__(
        self, engine: Engine, taken: RecordRange, deserializers: Deserializers | None
    ) -> None:
        self._engine = engine
        self._deserializers = deserializers
        self._range = taken
        self._lease = taken.permit
        self._may_deliver = engine.assignment_source.may_deliver
        self._position = taken.from_offset
        try:
            batch = Batch(taken.chunk.content, taken.from_offset, taken.to_offset)
            self._records: Iterator[Record] = iter(batch.records())
        except BaseException:
            engine.put_back(taken, taken.from_offset)
            raise

    def next(self) -> Record | None:
        """Return the next record; None if the range has ended.

        Raises:
            DeserializationError: The next loop delivers the same record again.
        """
        lease = self._lease
        if lease.is_revoked or lease.is_paused or not self._may_deliver(lease.partition):
            self.close()
            return None
        for record in self._records:
            if self._deserializers is not None:
                record = self._deserialized(self._deserializers, record)
            self._position = lease.delivered_offset = record.offset + 1
            return record
        self._position = self._range.to_offset
        self.close()
        return None

    def _deserialized(self, deserializers: Deserializers, record: Record) -> Record:
        try:
            return deserializers.apply(record)
        except BaseException:
            self.close()
            self._records = iter(())
            self._position = self._range.to_offset
            self._engine.deliver_last(self._lease.partition)
            raise

    def close(self) -> None:
        """Put the undelivered records back."""
        self._engine.put_back(self._range, self._position)
