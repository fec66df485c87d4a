"""The cursor of a user's loop over records."""

from __future__ import annotations

from collections.abc import Iterator

from partage.client.consumer.engine import Engine
from partage.client.consumer.positions import Taken
from partage.client.consumer.records import Batch, Record


class Loan:
    """A range of records that a loop delivers one at a time.

    Before each record it checks whether delivery is still allowed. A seek, a pause or the loss of
    the partition ends it at once. `close` puts the undelivered records back, so the position is
    always the offset after the last delivered record.
    """

    def __init__(self, engine: Engine, taken: Taken) -> None:
        self._engine = engine
        self._taken = taken
        self._lease = taken.lease
        self._may_deliver = engine.owner.may_deliver
        self._handed = taken.from_offset
        try:
            batch = Batch(taken.part.content, taken.from_offset, taken.to_offset)
            self._records: Iterator[Record] = iter(batch.records())
        except BaseException:
            engine.give_back(taken, taken.from_offset)
            raise

    def next(self) -> Record | None:
        """Return the next record; None if the range has ended."""
        lease = self._lease
        if lease.is_over or lease.is_paused or not self._may_deliver(lease.partition):
            self.end()
            return None
        for record in self._records:
            self._handed = lease.handed = record.offset + 1
            return record
        self._handed = self._taken.to_offset
        self.end()
        return None

    def end(self) -> None:
        """Put the undelivered records back."""
        self._engine.give_back(self._taken, self._handed)
