"""The interface through which leaders ask the transaction coordinator about partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition


class TransactionParticipation(Protocol):
    """The part of the transaction coordinator that leaders of partitions use (KIP-890)."""

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Check that partitions belong to the ongoing transaction, or add them to it.

        Args:
            transactional_id: The transactional id of the request.
            producer_id: The producer id of its batches.
            producer_epoch: The epoch of its batches.
            partitions: The partitions that the producer wants to write to.
            adds: False to check that they belong to the transaction; True to add them to it, which
                starts a transaction if none is open.
            done: Called once, maybe before this method returns, with an error for each partition.
                NONE allows the write. With ``adds``, the partitions are durable then. The errors
                are those of the coordinator; a leader converts them for the API and its version.
        """
