"""Produce: append record batches to partitions, and respond once they are durable."""

from __future__ import annotations

from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.log.catalogue.topic_names import TOPIC_NAME_MAX
from partage.log.producer_state import VerificationGuard
from partage.log.results import AppendResult, RecordError, Refusal
from partage.log.validator import RECORD_ERRORS_MAX
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.runtime.transaction_admission import (
    TransactionalBatches,
    WaitingAppend,
    admit_batches,
    transactional_header,
)
from partage.runtime.transaction_participation import TransactionParticipation
from partage.wire.apis.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRecordError,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResult,
)
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import BatchHeader, Compression, whole_batches
from partage.wire.types import Buffer

_ACKS: Final = (-1, 0, 1)
_ZSTD_VERSION_MIN: Final = 7  # KIP-110


class _PartitionAppend:
    """The batches of a request for one partition."""

    __slots__ = ("_handler", "_result", "_topic", "partition", "payload")

    def __init__(
        self,
        handler: ProduceHandler,
        topic: str,
        partition: Partition,
        payload: Buffer,
        result: ProducePartitionResult,
    ) -> None:
        self.partition = partition
        self.payload = payload
        self._handler = handler
        self._topic = topic
        self._result = result

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's topic and index."""
        return TopicPartition(self._topic, self._result.index)

    def append(self, guard: VerificationGuard | None = None) -> None:
        """Append the batches; complete when they are durable or refused."""
        at_ms = self._handler.log_manager.wall_ms()
        self.partition.append_from_client(
            self.payload, self._on_appended, self._on_durable, at_ms=at_ms, guard=guard
        )

    def refuse(self, refusal: Refusal) -> None:
        """Complete with an error."""
        self._handler.fail(self._result, refusal)
        self._handler.complete_one()

    def _on_appended(self, outcome: AppendResult | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self.refuse(outcome)
            return
        result = self._result
        result.base_offset = outcome.base_offset
        result.log_append_time_ms = outcome.log_append_time_ms
        result.log_start_offset = outcome.log_start_offset

    def _on_durable(self, error: ErrorCode) -> None:
        if error:
            self._handler.fail(self._result, Refusal(error, "the records could not be written"))
        self._handler.complete_one()


class ProduceHandler:
    """One Produce request, until its batches are durable in all partitions.

    One broker is all in-sync replicas, so acks=1 and acks=-1 mean the same. With acks=0 there is no
    response, but the request counts as in flight until its batches are durable. This limits how far
    a producer can be ahead of the disk.

    Args:
        inbound: the request.
        log_manager: the topics and partitions of this broker.
        participation: the transaction coordinator.
    """

    def __init__(
        self,
        inbound: InboundRequest,
        log_manager: LogManager,
        participation: TransactionParticipation,
    ) -> None:
        self._inbound = inbound
        self.log_manager = log_manager
        self._participation = participation
        self._request: ProduceRequest = inbound.message
        self._appends: list[_PartitionAppend] = []
        self._pending_count = 1
        self._has_error = False
        self._record_error_count = 0

    def run(self) -> None:
        """Append all batches; respond when they are durable."""
        self._refusal = self._refuse_request()
        results = [
            ProduceTopicResult(
                name=topic.name,
                partition_responses=[self._prepare(topic.name, p) for p in topic.partition_data],
            )
            for topic in self._request.topic_data
        ]
        self._response = ProduceResponse(responses=results)
        self._pending_count += len(self._appends)
        if self._request.transactional_id is None:
            for one in self._appends:
                one.append()
        else:
            self._admit(self._request.transactional_id)
        self.complete_one()

    def _admit(self, transactional_id: str) -> None:
        """Append batches; transactional ones once the coordinator admits them."""
        transactional = list[tuple[WaitingAppend, BatchHeader]]()
        for one in self._appends:
            header = transactional_header(one.payload)
            if header is None:
                one.append()
            else:
                transactional.append((one, header))
        if not transactional:
            return
        header = transactional[0][1]
        admit_batches(
            TransactionalBatches(
                transactional_id,
                header.producer_id,
                header.producer_epoch,
                self._inbound.version,
                self.log_manager.wall_ms(),
            ),
            transactional,
            self._participation,
            is_verification_enabled=self.log_manager.settings.transactions.is_verification_enabled,
        )

    def _refuse_request(self) -> Refusal | None:
        """Return the error of all partitions, or None."""
        request = self._request
        if request.acks not in _ACKS:
            return Refusal(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is not one of -1, 0, 1"
            )
        headers = [
            header
            for topic in request.topic_data
            for wanted in topic.partition_data
            if wanted.records and (header := transactional_header(wanted.records[0]))
        ]
        if not headers:
            return None
        producers = {(header.producer_id, header.producer_epoch) for header in headers}
        if request.transactional_id is None:
            return Refusal(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "the request has transactional batches, but no transactional id",
            )
        if len(producers) > 1:
            return Refusal(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "the request has transactional batches of several producers or epochs",
            )
        return None

    def _prepare(self, topic: str, wanted: ProducePartition) -> ProducePartitionResult:
        """Return the result of a partition, which is final if its batches cannot be appended."""
        result = ProducePartitionResult(
            index=wanted.index, error_code=ErrorCode.NONE, base_offset=-1
        )
        payload = wanted.records[0] if wanted.records else b""
        partition = self._partition(topic, wanted.index, payload)
        if isinstance(partition, Refusal):
            self.fail(result, partition)
        else:
            self._appends.append(_PartitionAppend(self, topic, partition, payload, result))
        return result

    def _partition(self, topic: str, index: int, payload: Buffer) -> Partition | Refusal:
        """Return the partition to append to, or the reason why the batches cannot be appended."""
        if self._refusal is not None:
            return self._refusal
        if self.log_manager.is_internal(topic):
            return Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{topic!r} is an internal topic: clients cannot write to it",
            )
        partition = self.log_manager.partition(topic, index)
        if partition is None:
            name = f"{topic[:TOPIC_NAME_MAX]}-{index}"
            return Refusal(
                self.log_manager.missing_partition_error(topic, index),
                f"this broker does not hold partition {name}",
            )
        if not len(payload):
            return Refusal(ErrorCode.INVALID_RECORD, "the request has no records for the partition")
        if self._inbound.version < _ZSTD_VERSION_MIN and _uses_zstd(payload):
            return Refusal(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce v{self._inbound.version} does not allow zstd",
            )
        return partition

    def fail(self, result: ProducePartitionResult, refusal: Refusal) -> None:
        """Fill in the error of a partition."""
        self._has_error = True
        result.error_code = refusal.code
        result.base_offset = result.log_append_time_ms = result.log_start_offset = -1
        result.error_message = refusal.message
        result.record_errors = self._record_errors(refusal.record_errors)

    def _record_errors(self, errors: tuple[RecordError, ...]) -> list[ProduceRecordError]:
        """Return the invalid records of a partition, or none if the response would grow too large.

        A client then fails all records of the partition.
        """
        self._record_error_count += len(errors)
        if self._record_error_count > RECORD_ERRORS_MAX:
            return []
        return [
            ProduceRecordError(batch_index=one.index, batch_index_error_message=one.message)
            for one in errors
        ]

    def complete_one(self) -> None:
        """Respond if all partitions are complete."""
        self._pending_count -= 1
        if self._pending_count:
            return
        if self._request.acks:
            self._inbound.respond(self._response)
            return
        self._inbound.complete_without_response()
        if self._has_error:
            # As in Kafka: without responses, closing the connection is the only way to report an
            # error.
            self._inbound.connection.close_for_error("a Produce request with acks=0 failed")


def _uses_zstd(payload: Buffer) -> bool:
    """True if a batch is compressed with zstd. The validation refuses damaged bytes."""
    try:
        return any(header.compression == Compression.ZSTD for _, header in whole_batches(payload))
    except MalformedError:
        return False
