"""Validation of produced batches (Kafka's LogValidator), and stamping of broker fields."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from partage.log.catalogue.topic_config import LogConfig
from partage.log.disk import Buffer
from partage.log.results import RecordError, Refusal
from partage.model.errors import ErrorCode
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    PREFIX,
    BatchHeader,
    checksum,
    parse_header,
    whole_batches,
)
from partage.wire.records.checksum import crc32c
from partage.wire.records.columns import OFFSET_MAX
from partage.wire.records.decoder import decode_columns, decode_records
from partage.wire.records.transaction_marker import decode_marker
from partage.wire.records.validation import CorruptBatchError, validate_batch

#: The most invalid records that a refusal lists. With more of them it lists none, and the producer
#: fails all records of the batch.
RECORD_ERRORS_MAX: Final = 10_000
#: A batch that decompresses to more bytes is refused without such a list.
_LISTED_BYTES_MAX: Final = 8 * 1024 * 1024
_SHOWN_MAX: Final = 3  # invalid records that the message of a refusal names
_NO_KEY: Final = "a compacted topic does not accept a record without a key"
_CRC: Final = struct.Struct(">I")
_AFTER_PREFIX: Final = struct.Struct(">bI")  # magic, CRC
_FROM_CRC: Final = struct.Struct(">hiqqqhii")
_LOG_APPEND_TIME: Final = 0x08


class ValidatedBatch(msgspec.Struct, frozen=True):
    """A valid batch: its header as received, and all its bytes."""

    header: BatchHeader
    content: memoryview


def needs_decompression(payload: Buffer, config: LogConfig, now_ms: int) -> bool:
    """True if `validate_batches` decompresses a batch, to find its keys or its invalid records.

    Damaged bytes are never decompressed.
    """
    try:
        return any(
            header.compression
            and (config.compacts or _check_times(header, config, now_ms) is not None)
            for _, header in whole_batches(payload)
        )
    except MalformedError:
        return False


def validate_batches(
    payload: Buffer,
    config: LogConfig,
    now_ms: int,
    *,
    from_client: bool,
    are_records_checked: bool = False,
) -> list[ValidatedBatch] | Refusal:
    """Validate a partition's batches in a Produce request; return them or the first fault.

    If `needs_decompression`, this can take a second for a few KB, so call it in a thread. With
    ``are_records_checked`` it does not decompress: an earlier call has checked the records.
    """
    view, batches, at, record_count = memoryview(payload), list[ValidatedBatch](), 0, 0
    end, has_records = len(view), False
    while at < end:
        try:
            header = parse_header(view, at)
        except MalformedError as error:
            return Refusal(ErrorCode.INVALID_RECORD, str(error))
        size = header.size
        if size > end - at:
            return Refusal(ErrorCode.CORRUPT_MESSAGE, f"the record batch at byte {at} is cut off")
        content = view[at : at + size]
        if refusal := _check(header, content, config, now_ms, from_client, are_records_checked):
            return _shifted(refusal, record_count)
        batches.append(ValidatedBatch(header, content))
        at += size
        record_count += header.record_count
        has_records = has_records or not header.is_control
    if not batches:
        return Refusal(ErrorCode.INVALID_RECORD, "the request has no record batch")
    # a marker must always fit
    return (check_total_size(at, config) if has_records else None) or batches


def extent_of(headers: Sequence[BatchHeader], time_ms: int) -> tuple[int, int, int]:
    """Return the bytes of batches, their records, and their largest time, at least ``time_ms``."""
    size = records = 0
    for header in headers:
        size += header.size
        records += header.record_count
        time_ms = max(time_ms, header.max_timestamp_ms)
    return size, records, time_ms


def check_batch_size(size: int, config: LogConfig) -> Refusal | None:
    """Return MESSAGE_TOO_LARGE if a batch of ``size`` bytes exceeds ``max.message.bytes``."""
    if size <= config.max_message_bytes:
        return None
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record batch of {size} bytes exceeds the limit, "
        f"max.message.bytes={config.max_message_bytes}",
    )


def check_total_size(size: int, config: LogConfig) -> Refusal | None:
    """Return RECORD_LIST_TOO_LARGE if batches of ``size`` bytes do not fit into a segment."""
    if size <= config.segment_bytes:
        return None
    return Refusal(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{size} bytes exceed the segment size, segment.bytes={config.segment_bytes}",
    )


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
    header: BatchHeader,
    content: memoryview,
    config: LogConfig,
    now_ms: int,
    from_client: bool,
    are_records_checked: bool,
) -> Refusal | None:
    if from_client and (refusal := check_batch_size(header.size, config)):
        return refusal
    try:
        if from_client:
            return _check_client(header, content, config, now_ms, are_records_checked)
        if header.crc != checksum(content, 0, header.size):
            raise CorruptBatchError("the record batch does not match its checksum")
        decode_marker(header, content)
    except CorruptBatchError as error:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, str(error))
    except MalformedError as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    return None if config.uses_log_append_time else _check_times(header, config, now_ms)


def _check_client(
    header: BatchHeader,
    content: memoryview,
    config: LogConfig,
    now_ms: int,
    are_records_checked: bool,
) -> Refusal | None:
    validate_batch(content, 0, header)
    refusal = None
    if not config.uses_log_append_time:
        if header.is_log_append_time:
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                "a producer must not send a batch with timestamp type LogAppendTime",
            )
        refusal = _check_times(header, config, now_ms)
    if are_records_checked:
        return refusal
    if refusal is None and config.compacts and not _has_keys(content):
        refusal = Refusal(ErrorCode.INVALID_RECORD, _NO_KEY)
    if refusal is None or header.record_count > RECORD_ERRORS_MAX:
        return refusal
    return _with_record_errors(refusal, content, config, now_ms)


def _has_keys(content: memoryview) -> bool:
    # Columns, because an object for each record could need gigabytes.
    columns = decode_columns(
        content, from_offset=0, to_offset=OFFSET_MAX, with_headers=False, verify_crc=False
    )
    return not columns.key.null_count


def _check_times(header: BatchHeader, config: LogConfig, now_ms: int) -> Refusal | None:
    first_ms, newest_ms = header.base_timestamp_ms, header.max_timestamp_ms
    fault = _time_fault(first_ms, config, now_ms)
    if fault is None and newest_ms != first_ms:
        fault = _time_fault(newest_ms, config, now_ms)
    return None if fault is None else Refusal(ErrorCode.INVALID_TIMESTAMP, fault)


def _time_fault(time_ms: int, config: LogConfig, now_ms: int) -> str | None:
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if time_ms == NO_TIMESTAMP or earliest_ms <= time_ms <= latest_ms:
        return None
    return f"timestamp {time_ms} is not between {earliest_ms} and {latest_ms}"


def _with_record_errors(
    refusal: Refusal, content: memoryview, config: LogConfig, now_ms: int
) -> Refusal:
    """Return the refusal with all invalid records of the batch, if it can be decoded quickly.

    A time beyond the limits makes the error INVALID_TIMESTAMP, even if other records have no key.
    """
    try:
        records = decode_records(content, verify_crc=False, decompressed_max=_LISTED_BYTES_MAX)
    except MalformedError:
        return refusal
    errors = list[RecordError]()
    for index, (_, time_ms, key, _, _) in enumerate(records):
        fault = _NO_KEY if config.compacts and key is None else None
        if fault is None and not config.uses_log_append_time:
            fault = _time_fault(time_ms, config, now_ms)
        if fault is not None:
            errors.append(RecordError(index, fault))
    if not errors:  # the header contradicts the records
        return refusal
    shown = "; ".join(f"record {one.index}: {one.message}" for one in errors[:_SHOWN_MAX])
    return Refusal(refusal.code, f"{len(errors)} invalid records: {shown}", tuple(errors))


def _shifted(refusal: Refusal, record_count: int) -> Refusal:
    """Return the refusal with indexes after ``record_count`` records of earlier batches."""
    if not record_count or not refusal.record_errors:
        return refusal
    errors = [RecordError(one.index + record_count, one.message) for one in refusal.record_errors]
    return Refusal(refusal.code, refusal.message, tuple(errors))
