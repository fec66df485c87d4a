"""A transactional id with its transaction."""

from __future__ import annotations

from typing import Final

from partage.transactions.records import NO_PRODUCER_ID, TransactionRecord
from partage.transactions.states import PREPARED

EPOCH_MAX: Final = 32_767
#: A producer never gets an epoch above this one, so that the coordinator can still fence it.
LAST_CLIENT_EPOCH: Final = EPOCH_MAX - 1


class Transaction:
    """The state of a transactional id.

    Attributes:
        record: the durable state.
        partitions: the partitions of the record, as a set.
        unmarked: after the decision, the partitions whose markers are not known to be durable.
    """

    __slots__ = ("partitions", "record", "unmarked")

    def __init__(self, record: TransactionRecord) -> None:
        self.record = record
        self.partitions = frozenset(record.partitions)
        self.unmarked = set(self.partitions) if record.state in PREPARED else set()

    @property
    def is_exhausted(self) -> bool:
        """True if the producer id has no epoch left for a client."""
        return self.record.epoch >= LAST_CLIENT_EPOCH

    def is_repeated_end(self, producer_id: int, epoch: int) -> bool:
        """True if an EndTxn v5 repeats the one that ended the last transaction.

        That one changed the epoch, or, if the epochs were exhausted, the producer id.
        """
        record = self.record
        if producer_id == record.producer_id:
            return epoch + 1 == record.epoch
        return (
            producer_id == record.previous_producer_id != NO_PRODUCER_ID
            and epoch == LAST_CLIENT_EPOCH
            and record.epoch == 0
            and record.next_producer_id == NO_PRODUCER_ID
        )
