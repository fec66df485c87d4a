"""Admission of transactional batches to partitions by the transaction coordinator (KIP-890).

The first batch of a transaction on a partition waits until the coordinator has confirmed that the
partition belongs to the transaction, or has added it. Later batches of the same producer wait
behind it, so that they stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from partage.log.partition import PartitionLog
from partage.log.producer_state import VerificationGuard
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_participation import TransactionParticipation
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import HEADER_SIZE, NO_PRODUCER, BatchHeader, parse_header
from partage.wire.types import Buffer

_ADDS_VERSION_MIN: Final = 12  # of Produce: the leader adds the partition to the transaction
_ABORTABLE_VERSION_MIN: Final = 11
#: Temporary errors of the coordinator. A client would not retry Produce after them, so Kafka
#: answers NOT_ENOUGH_REPLICAS.
_TEMPORARY: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_ATTRIBUTES_AT: Final = 22  # the lower byte of a batch's attributes
_TRANSACTIONAL: Final = 0x10


class AdmissionKey(NamedTuple):
    """The batches that wait for one answer of the transaction coordinator about a partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool  # the partition to the transaction


class AdmittingPartition(Protocol):
    """A partition, as the admission sees it."""

    log: PartitionLog
    #: Decisions about transactional batches, in order of arrival.
    admissions: dict[AdmissionKey, list[Callable[[ErrorCode], None]]]


class WaitingAppend(Protocol):
    """A batch for a partition that waits for its admission."""

    @property
    def partition(self) -> AdmittingPartition:
        """The partition."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's topic and index."""

    def append(self, guard: VerificationGuard | None) -> None:
        """Append the batch."""

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the batch."""


class TransactionalBatches(NamedTuple):
    """The transactional batches of a Produce request, all of one producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int  # of the request
    at_ms: int

    @property
    def adds(self) -> bool:
        """True if the leader adds partitions to the transaction (transaction version 2)."""
        return self.version >= _ADDS_VERSION_MIN


def transactional_header(payload: Buffer) -> BatchHeader | None:
    """Return the header of the first batch if it is transactional; None if it is not, or invalid.

    A transactional batch without a producer counts as not transactional, as in Kafka.
    """
    if len(payload) < HEADER_SIZE or not payload[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        return None
    try:
        header = parse_header(payload)
    except MalformedError:
        return None
    return None if header.producer_id == NO_PRODUCER else header


def admit_batches(
    request: TransactionalBatches,
    batches: Sequence[tuple[WaitingAppend, BatchHeader]],
    participation: TransactionParticipation,
    *,
    is_verification_enabled: bool,
) -> None:
    """Append each batch once it is admitted, or refuse it.

    Args:
        request: The facts that the batches share.
        batches: The batches, at most one for each partition.
        participation: The transaction coordinator.
        is_verification_enabled: ``transaction.partition.verification.enable``. It has no effect
            on partitions that the leader adds.

    An exception of an append is a bug. It propagates after all other appends.
    """
    asked = list[WaitingAppend]()
    key = AdmissionKey(*request[:3], request.adds)
    for waiting, header in batches:
        partition = waiting.partition
        guard = partition.log.producer_state.start_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            raises_epochs=request.adds,
            at_ms=request.at_ms,
        )
        if isinstance(guard, Refusal):
            waiting.refuse(guard)
            continue
        earlier = partition.admissions.get(key)
        if earlier is None and (guard is None or not (is_verification_enabled or request.adds)):
            waiting.append(guard)
            continue
        decide = _decision(waiting, guard, request)
        if earlier is not None:
            earlier.append(decide)
        else:
            partition.admissions[key] = [decide]
            asked.append(waiting)
    if not asked:
        return

    def done(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        failures = list[Exception]()
        for waiting in asked:
            error = errors.get(waiting.topic_partition, ErrorCode.NONE)
            failures += _finish_admission(waiting.partition, key, error)
        if failures:
            raise failures[0]

    participation.admit(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [waiting.topic_partition for waiting in asked],
        adds=request.adds,
        done=done,
    )


def _finish_admission(
    partition: AdmittingPartition, key: AdmissionKey, error: ErrorCode
) -> list[Exception]:
    """Decide about all batches that waited, in order. More may come meanwhile.

    Returns:
        The exceptions that decisions raised, which are bugs: the other batches must not wait.
    """
    failures = []
    for decide in partition.admissions[key]:
        try:
            decide(error)
        except Exception as bug:
            failures.append(bug)
    del partition.admissions[key]
    return failures


def _decision(
    waiting: WaitingAppend, guard: VerificationGuard | None, request: TransactionalBatches
) -> Callable[[ErrorCode], None]:
    def decide(error: ErrorCode) -> None:
        if error:
            waiting.refuse(_refusal(error, request))
        else:
            waiting.append(guard)

    return decide


def _refusal(error: ErrorCode, request: TransactionalBatches) -> Refusal:
    """Return the error of the coordinator as the request's version of Produce knows it."""
    code = error
    if error is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error is ErrorCode.TRANSACTION_ABORTABLE and request.version < _ABORTABLE_VERSION_MIN:
        code = ErrorCode.INVALID_TXN_STATE
    elif error in _TEMPORARY or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not request.adds):
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    reason = "the partition was not added to the transaction"
    if code is not ErrorCode.INVALID_TXN_STATE:
        reason = f"the transaction coordinator refused the batch: {error.name}"
    return Refusal(code, reason)
