"""Produce: append record batches to partitions, and respond once they are durable."""

from __future__ import annotations

from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.partition import Partition
from partage.log.catalogue.topic_names import TOPIC_NAME_MAX
from partage.log.results import AppendResult, RecordError, Refusal
from partage.log.validator import RECORD_ERRORS_MAX
from partage.model.errors import ErrorCode
from partage.wire.apis.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRecordError,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResult,
)
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import Compression, whole_batches
from partage.wire.types import Buffer

_ACKS: Final = (-1, 0, 1)
_ZSTD_VERSION_MIN: Final = 7  # KIP-110


class ProduceHandler:
    """One Produce request, until its batches are durable in all partitions.

    One broker is all in-sync replicas, so acks=1 and acks=-1 mean the same. With acks=0 there is no
    response, but the request counts as in flight until its batches are durable. This limits how far
    a producer can be ahead of the disk.
    """

    def __init__(self, inbound: InboundRequest, log_manager: LogManager) -> None:
        self._inbound = inbound
        self._log_manager = log_manager
        self._request: ProduceRequest = inbound.message
        self._pending_count = 1
        self._has_error = False
        self._record_error_count = 0

    def run(self) -> None:
        """Append all batches; respond when they are durable."""
        results = [
            ProduceTopicResult(
                name=topic.name,
                partition_responses=[self._append(topic.name, p) for p in topic.partition_data],
            )
            for topic in self._request.topic_data
        ]
        self._response = ProduceResponse(responses=results)
        self._complete_one()

    def _append(self, topic: str, wanted: ProducePartition) -> ProducePartitionResult:
        result = ProducePartitionResult(
            index=wanted.index, error_code=ErrorCode.NONE, base_offset=-1
        )
        partition = self._partition(topic, wanted.index)
        if isinstance(partition, Refusal):
            self._fail(result, partition)
            return result
        if not wanted.records or not len(wanted.records[0]):
            self._fail(
                result,
                Refusal(ErrorCode.INVALID_RECORD, "the request has no records for the partition"),
            )
            return result
        if self._inbound.version < _ZSTD_VERSION_MIN and _uses_zstd(wanted.records[0]):
            self._fail(
                result,
                Refusal(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"Produce v{self._inbound.version} does not allow zstd",
                ),
            )
            return result

        def appended(outcome: AppendResult | Refusal) -> None:
            if isinstance(outcome, Refusal):
                self._fail(result, outcome)
                self._complete_one()
                return
            result.base_offset = outcome.base_offset
            result.log_append_time_ms = outcome.log_append_time_ms
            result.log_start_offset = outcome.log_start_offset

        def done(error: ErrorCode) -> None:
            if error:
                self._fail(result, Refusal(error, "the records could not be written"))
            self._complete_one()

        self._pending_count += 1
        at_ms = self._log_manager.wall_ms()
        partition.append_from_client(wanted.records[0], appended, done, at_ms=at_ms)
        return result

    def _partition(self, topic: str, index: int) -> Partition | Refusal:
        if self._request.acks not in _ACKS:
            return Refusal(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._request.acks} is not one of -1, 0, 1"
            )
        if self._request.transactional_id is not None:
            return Refusal(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "this broker does not support transactions",
            )
        if self._log_manager.is_internal(topic):
            return Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{topic!r} is an internal topic: clients cannot write to it",
            )
        partition = self._log_manager.partition(topic, index)
        if partition is None:
            name = f"{topic[:TOPIC_NAME_MAX]}-{index}"
            return Refusal(
                self._log_manager.missing_partition_error(topic, index),
                f"this broker does not hold partition {name}",
            )
        return partition

    def _fail(self, result: ProducePartitionResult, refusal: Refusal) -> None:
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

    def _complete_one(self) -> None:
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
