"""Batches written by other clients, and our batches read by them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from random import Random
from types import ModuleType
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemoryRecords

from partage.wire.primitives import MalformedError
from partage.wire.records.batch import parse_header
from partage.wire.records.columns import OFFSET_MAX, RecordTuple
from partage.wire.records.encoder import SimpleRecord, encode_batch
from partage.wire.records.validation import validate_batch

from . import arrow_tables
from .batch_factory import CODECS, as_tuples, marker, records

with warnings.catch_warnings():
    # kafka-python reads its definitions through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_records
    from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

# kafka-python needs packages that are not installed here for the other codecs.
BUILDERS = [
    *[("kafka-python", kafka_records, codec) for codec in (0, 1)],
    *[("aiokafka", aiokafka_records, codec) for codec in CODECS],
]
PEERS = [pytest.param(module, codec, id=f"{name}-{codec}") for name, module, codec in BUILDERS]
BASE = 2**40


def theirs(module: Any, codec: int, written: list[SimpleRecord]) -> bytes:
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for delta, made in enumerate(written):
        builder.append(delta, made.timestamp_ms, made.key, made.value, list(made.headers))
    return bytes(builder.build())


def read_by_peer(module: Any, blob: bytes) -> Iterator[RecordTuple]:
    memory = KafkaMemoryRecords if module is kafka_records else AiokafkaMemoryRecords
    batches = memory(blob)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for read in batch:
            yield (read.offset, read.timestamp, read.key, read.value, tuple(read.headers))


@pytest.mark.parametrize(("module", "codec"), PEERS)
@pytest.mark.parametrize("seed", range(3))
def test_batches_of_other_clients_are_decoded(
    decoder: ModuleType, module: Any, codec: int, seed: int
) -> None:
    written = records(Random(seed), 200)
    batch = theirs(module, codec, written)
    expected = as_tuples(written)
    assert decoder.decode_records(batch) == expected
    assert decoder.decode_pairs(batch) == [(made.key, made.value) for made in written]
    columns = decoder.decode_columns(
        batch, from_offset=0, to_offset=OFFSET_MAX, with_headers=True, verify_crc=True
    )
    assert arrow_tables.tuples(columns) == expected
    found = decoder.scan(batch)
    assert (found.count, found.stop, found.reason) == (1, len(batch), "end")
    validate_batch(batch, 0, parse_header(batch))


@pytest.mark.parametrize(("module", "codec"), PEERS)
@pytest.mark.parametrize("seed", range(3))
def test_other_clients_decode_our_batches(module: Any, codec: int, seed: int) -> None:
    rng = Random(seed)
    first, second = records(rng, 100), records(rng, 1)
    blob = encode_batch(first, base_offset=BASE, compression=codec)
    blob += encode_batch(second, base_offset=BASE + 100, compression=codec)
    expected = as_tuples(first, BASE) + as_tuples(second, BASE + 100)
    assert list(read_by_peer(module, blob)) == expected


@pytest.mark.parametrize("module", [kafka_records, aiokafka_records])
def test_other_clients_decode_our_batch_headers(module: Any) -> None:
    blob = encode_batch(
        [SimpleRecord(b"k", b"v", (), 70), SimpleRecord(None, None, (), 40, 7)],
        base_offset=BASE,
        producer_id=12,
        producer_epoch=3,
        base_sequence=99,
        leader_epoch=5,
        is_transactional=True,
        last_offset_delta=9,
        append_time_ms=1234,
    )
    batch = module.DefaultRecordBatch(blob)
    assert batch.validate_crc()
    assert batch.base_offset == BASE
    assert batch.last_offset_delta == 9
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (12, 3, 99)
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert (batch.first_timestamp, batch.max_timestamp) == (70, 1234)
    read = [(record.offset, record.timestamp, record.timestamp_type) for record in batch]
    assert read == [(BASE, 1234, 1), (BASE + 7, 1234, 1)]


def test_other_clients_decode_our_transaction_markers() -> None:
    (read,) = kafka_records.DefaultRecordBatch(marker(5, 0, BASE))
    assert read.abort
    assert not read.commit


@pytest.mark.parametrize("module", [kafka_records, aiokafka_records])
def test_flipped_bit_in_their_batch_is_malformed(decoder: ModuleType, module: Any) -> None:
    batch = bytearray(theirs(module, 0, records(Random(1), 20)))
    batch[len(batch) // 2] ^= 4
    with pytest.raises(MalformedError, match="crc"):
        decoder.decode_records(batch)
    assert decoder.scan(batch).reason == "crc"
