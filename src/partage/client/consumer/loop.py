"""A user's loop over records: what is lent to it, record by record."""

from __future__ import annotations

from collections.abc import Iterator

from partage.client.consumer.engine import Engine
from partage.client.consumer.positions import Taken
from partage.client.consumer.records import Batch, Record


class Loan:
    """A stretch of a partition that a loop hands out, one record at a time.

    Before each record it looks whether it still may: a seek, a pause or the loss of the partition
    between two records ends it at once. What it did not hand out goes back, and so the position
    is always the offset after the last record that the loop saw.
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
        """The next record; None: this loan is at its end."""
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
        """Give back what was not handed out."""
        self._engine.give_back(self._taken, self._handed)
