"""Results of the markers of transactions."""

from __future__ import annotations

from typing import Final

from partage.model.errors import ErrorCode

#: A single broker is the only coordinator that its partitions ever have.
COORDINATOR_EPOCH: Final = 0
#: The leader has a later marker of the producer, or one of a later coordinator.
_OVERTAKEN: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_SETTLED: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_OVERTAKEN)


def is_settled(error: ErrorCode) -> bool:
    """True if a marker with this result needs no other attempt."""
    return error in _SETTLED
