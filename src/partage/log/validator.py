"""Validation of produced batches (Kafka's LogValidator), and stamping of broker fields."""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from partage.log.catalogue.topic_config import LogConfig
from partage.log.disk import Buffer
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    PREFIX,
    BatchHeader,
    checksum,
    parse_header,
)
from partage.wire.records.decoder import decode_pairs
from partage.wire.records.validation import CorruptBatchError, validate_batch

_CRC: Final = struct.Struct(">I")
_AFTER_PREFIX: Final = struct.Struct(">bI")  # magic, CRC
_FROM_CRC: Final = struct.Struct(">hiqqqhii")
_LOG_APPEND_TIME: Final = 0x08


class ValidatedBatch(msgspec.Struct, frozen=True):
    """A valid batch: its header as received, and all its bytes."""

    header: BatchHeader
    content: memoryview


def validate_batches(
    payload: Buffer, config: LogConfig, now_ms: int, *, from_client: bool
) -> list[ValidatedBatch] | Refusal:
    """Validate a partition's batches in a Produce request; return them or the first fault."""
    view, batches, at = memoryview(payload), list[ValidatedBatch](), 0
    while at < len(view):
        try:
            header = parse_header(view, at)
        except MalformedError as error:
            return Refusal(ErrorCode.INVALID_RECORD, str(error))
        if header.size > len(view) - at:
            return Refusal(ErrorCode.CORRUPT_MESSAGE, f"the record batch at byte {at} is cut off")
        content = view[at : at + header.size]
        if refusal := _check(header, content, config, now_ms, from_client):
            return refusal
        batches.append(ValidatedBatch(header, content))
        at += header.size
    if not batches:
        return Refusal(ErrorCode.INVALID_RECORD, "the request has no record batch")
    if at > config.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{at} bytes exceed the segment size, segment.bytes={config.segment_bytes}",
        )
    return batches


def stamp_batch(
    batch: ValidatedBatch, base_offset: int, leader_epoch: int, append_time_ms: int
) -> list[Buffer]:
    """Return the batch with offset, epoch and time stamped in. The records are not copied.

    With an ``append_time_ms`` other than -1 the batch carries the broker's time.
    """
    header, content = batch.header, batch.content
    prefix = PREFIX.pack(base_offset, header.length, leader_epoch)
    if append_time_ms == NO_TIMESTAMP:
        return [prefix, content[PREFIX.size :]]
    fields = _FROM_CRC.pack(
        header.attributes | _LOG_APPEND_TIME,
        header.last_offset_delta,
        header.base_timestamp_ms,
        append_time_ms,
        *header[9:],
    )
    records = content[HEADER_SIZE:]
    crc = crc32c(records, crc32c(fields))
    return [prefix + _AFTER_PREFIX.pack(header.magic, crc) + fields, records]


def _check(
    header: BatchHeader, content: memoryview, config: LogConfig, now_ms: int, from_client: bool
) -> Refusal | None:
    if from_client and header.size > config.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record batch of {header.size} bytes exceeds the limit, "
            f"max.message.bytes={config.max_message_bytes}",
        )
    try:
        if from_client:
            _check_client(header, content, needs_keys=config.compacts)
        elif header.crc != checksum(content, 0, header.size):
            raise CorruptBatchError("the record batch does not match its checksum")
    except CorruptBatchError as error:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, str(error))
    except MalformedError as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    if from_client and header.is_transactional:
        return Refusal(ErrorCode.INVALID_TXN_STATE, "no transaction is open on this partition")
    return None if config.uses_log_append_time else _check_times(header, config, now_ms)


def _check_client(header: BatchHeader, content: memoryview, *, needs_keys: bool) -> None:
    validate_batch(content, 0, header)
    if needs_keys and any(key is None for key, _ in decode_pairs(content, verify_crc=False)):
        raise MalformedError("a compacted topic does not accept a record without a key")


def _check_times(header: BatchHeader, config: LogConfig, now_ms: int) -> Refusal | None:
    if header.is_log_append_time:
        return Refusal(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer must not send a batch with timestamp type LogAppendTime",
        )
    first, last = header.base_timestamp_ms, header.max_timestamp_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    too_early = first != NO_TIMESTAMP and first < earliest
    if too_early or last > latest:
        return Refusal(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {first if too_early else last} is not between {earliest} and {latest}",
        )
    return None
