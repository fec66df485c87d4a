"""Records of transactions have Kafka's binary format."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.store.transaction_formats import (
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction,
    encode_transaction,
)
from partage.store.transaction_log import encode_transactions, replay_transactions
from partage.transactions.records import TransactionRecord, TransactionTombstone
from partage.transactions.states import TransactionState
from partage.wire.codec import decoder, encoder
from partage.wire.primitives import MalformedError

KEY = "000000096772c3b6c39f652d61"
COMMON = TransactionRecord(
    transactional_id="größe-a",
    producer_id=0,
    previous_producer_id=0,
    epoch=0,
    timeout_ms=60_000,
    updated_ms=1_795_446_165_869,
)
ENDED = msgspec.structs.replace(
    COMMON, state=TransactionState.COMPLETE_COMMIT, started_ms=1_795_446_166_123
)
OFFSETS = msgspec.structs.replace(
    COMMON,
    partitions=(TopicPartition("__consumer_offsets", 5),),
    updated_ms=1_795_446_166_554,
    started_ms=1_795_446_166_526,
    state=TransactionState.PREPARE_ABORT,
    version=2,
    epoch=1,
)
#: Values that Apache Kafka 4.4 wrote into ``__transaction_state``.
MADE_BY_KAFKA = {
    "0001000000000000000000000000ea600000000001a208ee516dffffffffffffffff0100080000000000000000": (
        COMMON
    ),
    "0001000000000000000000000000ea60010206746f70696303000000000000000200000001a208ee526b"
    "000001a208ee526b0100080000000000000000": msgspec.structs.replace(
        COMMON,
        state=TransactionState.ONGOING,
        partitions=(TopicPartition("topic", 0), TopicPartition("topic", 2)),
        updated_ms=1_795_446_166_123,
        started_ms=1_795_446_166_123,
    ),
    "0001000000000000000000000000ea600401000001a208ee52f5000001a208ee526b0100080000000000000000": (
        msgspec.structs.replace(ENDED, updated_ms=1_795_446_166_261)
    ),
    "0001000000000000000000010000ea600302135f5f636f6e73756d65725f6f6666736574730200000005000000"
    "01a208ee541a000001a208ee53fe020008000000000000000002020002": OFFSETS,
}


@pytest.mark.parametrize("value", MADE_BY_KAFKA, ids=range(len(MADE_BY_KAFKA)))
def test_bytes_of_kafka_are_read_and_written(value: str) -> None:
    pair = bytes.fromhex(KEY), bytes.fromhex(value)
    assert decode_transaction(*pair) == MADE_BY_KAFKA[value]
    assert encode_transaction(MADE_BY_KAFKA[value]) == pair


def test_value_before_flexible_versions_is_read() -> None:
    """Kafka before 4.0 writes version 0."""
    value = struct.pack(">hqhibi", 0, 7, 3, 60_000, 1, 1) + b"\0\1t" + struct.pack(">iii", 2, 4, 5)
    value += struct.pack(">qq", 9, 8)
    assert decode_transaction(bytes.fromhex(KEY), value) == TransactionRecord(
        transactional_id="größe-a",
        producer_id=7,
        epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=(TopicPartition("t", 4), TopicPartition("t", 5)),
        updated_ms=9,
        started_ms=8,
    )


ids = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 32_767)
partitions = st.lists(
    st.tuples(st.sampled_from("tu"), st.integers(0, 2**31 - 1)), unique=True, max_size=4
).map(lambda pairs: tuple(TopicPartition(*pair) for pair in sorted(pairs)))


@st.composite
def records(draw: st.DrawFn) -> TransactionRecord:
    state = draw(st.sampled_from(TransactionState))
    return TransactionRecord(
        transactional_id=draw(st.text(st.characters(codec="utf-8"), max_size=20)),
        producer_id=draw(ids),
        previous_producer_id=draw(ids),
        next_producer_id=draw(ids),
        epoch=draw(epochs),
        last_epoch=draw(epochs),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=draw(partitions) if state is TransactionState.ONGOING else (),
        updated_ms=draw(ids),
        started_ms=draw(ids),
        version=draw(st.sampled_from((0, 1, 2))),
    )


@given(records())
def test_record_survives_its_format(record: TransactionRecord) -> None:
    assert decode_transaction(*encode_transaction(record)) == record


@given(records(), partitions)
def test_record_has_the_bytes_of_the_codec(
    record: TransactionRecord, added: tuple[TopicPartition, ...]
) -> None:
    record = msgspec.structs.replace(record, partitions=added)
    key, value = encode_transaction(record)
    read, _ = decoder(TransactionLogKey, 0, False)(key, 2)
    assert b"".join((b"\0\0", *encoder(TransactionLogKey, 0, False)(read))) == key
    assert value is not None
    held, end = decoder(TransactionLogValue, 1, True)(value, 2)
    assert end == len(value)
    assert b"".join((b"\0\1", *encoder(TransactionLogValue, 1, True)(held))) == value


def test_largest_transaction_has_the_bytes_of_the_codec() -> None:
    many = tuple(TopicPartition("t" * 249, number) for number in range(20_000))
    record = msgspec.structs.replace(COMMON, state=TransactionState.ONGOING, partitions=many)
    _, value = encode_transaction(record)
    assert value is not None
    held, _ = decoder(TransactionLogValue, 1, True)(value, 2)
    assert b"".join((b"\0\1", *encoder(TransactionLogValue, 1, True)(held))) == value


def test_tombstone_survives_its_format() -> None:
    tombstone = TransactionTombstone(transactional_id="größe-a")
    assert encode_transaction(tombstone) == (bytes.fromhex(KEY), None)
    assert decode_transaction(bytes.fromhex(KEY), None) == tombstone


def test_key_of_later_version_is_ignored() -> None:
    assert decode_transaction(b"\0\1abc", b"x") is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\2x", b"\0\1x", b"\xff\xff"])
def test_damaged_value_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_transaction(bytes.fromhex(KEY), value)


def test_unknown_status_is_malformed() -> None:
    _, value = encode_transaction(COMMON)
    assert value is not None
    with pytest.raises(MalformedError, match="status 6"):
        decode_transaction(bytes.fromhex(KEY), value[:16] + b"\6" + value[17:])


def test_log_keeps_last_record_of_each_id() -> None:
    other = msgspec.structs.replace(COMMON, transactional_id="b")
    log = [COMMON, other, ENDED, TransactionTombstone(transactional_id="b")]
    shard = replay_transactions(encode_transactions(log, 1), TransactionSettings())
    assert [one.record for one in shard.transactions.values()] == [ENDED]


@given(records())
def test_single_record_has_the_bytes_of_a_batch_of_several(record: TransactionRecord) -> None:
    """A list of one record has a shorter path; an iterator always has the usual one."""
    assert encode_transactions([record], 1) == encode_transactions(iter([record]), 1)


def test_many_records_fill_several_batches() -> None:
    log = [msgspec.structs.replace(COMMON, transactional_id=str(n)) for n in range(1_100)]
    size = sum(map(len, encode_transactions(log, 1)))
    batches = encode_transactions(log, 1, batch_bytes=size // 3)
    assert len(batches) in (3, 4)
    assert len(replay_transactions(batches, TransactionSettings()).transactions) == 1_100
