"""Admission of the offsets of a transaction: TxnOffsetCommit before the group decides."""

from __future__ import annotations

from typing import Final

from partage.log.producer_state import ProducerStateManager, VerificationGuard
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.apis.txn_offset_commit import TxnOffsetCommitRequest

#: The base sequence of batches without sequences.
_NO_SEQUENCE: Final = -1
#: From this version on, the broker adds the group to the transaction (KIP-890).
_ADDING_VERSION: Final = 5
#: From this version on, clients know TRANSACTION_ABORTABLE.
_ABORTABLE_VERSION: Final = 4


class OffsetAdmission:
    """A commit that waits for its admission by the transaction coordinator.

    A marker may arrive meanwhile. Offsets that are written after it would belong to the producer's
    next transaction, so they are rejected.

    Args:
        request: The request.
        version: Its API version.
        at_ms: The time of the request, ms since the epoch.
        producers: The producers of the partition with the group's offsets.
    """

    def __init__(
        self,
        request: TxnOffsetCommitRequest,
        version: int,
        at_ms: int,
        producers: ProducerStateManager,
    ) -> None:
        self._request = request
        self._version = version
        self._at_ms = at_ms
        self._producers = producers
        self.adds = version >= _ADDING_VERSION
        self._guard = self._verify()

    def _verify(self) -> VerificationGuard | Refusal | None:
        return self._producers.start_verification(
            self._request.producer_id,
            self._request.producer_epoch,
            _NO_SEQUENCE,
            raises_epochs=self.adds,
            at_ms=self._at_ms,
        )

    def is_fenced(self) -> bool:
        """True if a marker or a batch of a newer producer is in the log."""
        return isinstance(self._guard, Refusal)

    def decide(self, error: ErrorCode) -> ErrorCode:
        """Return the error of the commit, NONE if the group may decide.

        Args:
            error: The answer of the transaction coordinator.
        """
        return _shown_error(error, self._version) or self._late_error()

    def _late_error(self) -> ErrorCode:
        """Return the error if a marker has arrived since, otherwise NONE."""
        now = self._verify()
        if isinstance(now, Refusal):
            return now.code
        # None: the transaction is open in this partition, by an earlier commit.
        return ErrorCode.NONE if now in (None, self._guard) else ErrorCode.INVALID_TXN_STATE


def _shown_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error as Kafka shows it to a client of this version (KIP-890)."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return error
