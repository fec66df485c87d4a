"""The shorter way for batches of the broker: for which batches, and with the same result."""

from __future__ import annotations

import pytest

from partage.log.catalogue.topic_config import LogConfig
from partage.log.prepared_batches import PreparedBatches, prepare_batches, prepare_own_batch
from partage.log.producer_state import ProducerStateManager
from partage.log.results import Refusal
from partage.log.validator import validate_batches
from partage.wire.records.batch import HEADER_SIZE, checksum
from partage.wire.records.transaction_marker import encode_marker

from .partition_host import NOW_MS, batch

BASE_OFFSET, LEADER_EPOCH = 17, 3
PLAIN = batch((b"k", b"v"), (b"l", b"w" * 300))


def with_checksum(content: bytes | bytearray) -> bytes:
    """Return the bytes of a batch with a valid checksum."""
    fixed = bytearray(content)
    fixed[17:21] = checksum(fixed, 0, len(fixed)).to_bytes(4, "big")
    return bytes(fixed)


def changed(at: int, value: int) -> bytes:
    content = bytearray(PLAIN)
    content[at] = value
    return bytes(content)


def facts(prepared: PreparedBatches) -> tuple[object, ...]:
    return (
        b"".join(map(bytes, prepared.chunks)),
        prepared.positions,
        prepared.last_offsets,
        prepared.max_timestamps_ms,
        prepared.aborted,
        prepared.size,
    )


@pytest.mark.parametrize("payload", [PLAIN, batch(b"v"), batch((b"k", None))])
def test_plain_batch_is_prepared_as_by_the_longer_way(payload: bytes) -> None:
    found = prepare_own_batch(payload, BASE_OFFSET, LEADER_EPOCH)
    batches = validate_batches(payload, LogConfig.from_configs({}), NOW_MS, from_client=False)
    assert not isinstance(batches, Refusal)
    expected = prepare_batches(
        batches, ProducerStateManager(), BASE_OFFSET, LEADER_EPOCH, -1, NOW_MS
    )
    assert found is not None
    assert facts(found) == facts(expected)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(PLAIN[: HEADER_SIZE - 1], id="part of a header"),
        pytest.param(PLAIN[:-1], id="truncated"),
        pytest.param(with_checksum(PLAIN[:-1]), id="truncated, valid checksum"),
        pytest.param(PLAIN + b"?", id="longer"),
        pytest.param(with_checksum(PLAIN + b"?"), id="longer, valid checksum"),
        pytest.param(PLAIN + PLAIN, id="two batches"),
        pytest.param(changed(16, 1), id="other magic"),
        pytest.param(changed(len(PLAIN) - 1, 1), id="wrong checksum"),
        pytest.param(batch(b"v" * 300, compression=4), id="compressed"),
        pytest.param(batch(b"v", producer=(1, 0, 0)), id="of a producer"),
        pytest.param(with_checksum(changed(22, 8)), id="log append time"),
        pytest.param(encode_marker(7, 3, 9, is_commit=True, timestamp_ms=NOW_MS), id="marker"),
    ],
)
def test_other_payload_goes_the_longer_way(payload: bytes) -> None:
    assert prepare_own_batch(payload, BASE_OFFSET, LEADER_EPOCH) is None
