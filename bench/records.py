"""Speed of reading, scanning and building record batches, compared with Python clients.

All calls use the same bytes in one process, by turns. The figure is CPU time, the best of several
rounds. Every reader verifies checksums. The clients return objects: "kept" collects their fields as
tuples, which is what `decode_records` returns; "dropped" only accesses them. `decode_columns` is
the input of Arrow. Compare ratios, because machines vary.
"""

from __future__ import annotations

import importlib
import struct
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from rich.console import Console
from rich.table import Table

from bench.figures import Figure
from partage.wire.records.columns import OFFSET_MAX
from partage.wire.records.compression import compress, decompress
from partage.wire.records.encoder import SimpleRecord, encode_batch, encode_pairs

with warnings.catch_warnings():
    # kafka-python loads its message definitions with a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaRecords

TITLE = "Records"

CODECS = {"none": 0, "lz4": 3, "zstd": 4}
BATCH_SIZES = (16 << 10, 256 << 10)
VALUE_SIZE = 100
NOW_MS = 1_700_000_000_000
OURS = ("native", "plain")


def decoders() -> dict[str, ModuleType]:
    found = {"plain": importlib.import_module("partage.wire.records.plain")}
    try:
        found["native"] = importlib.import_module("partage.wire.records._native")
    except ImportError:
        print("The compiled decoder is not built.")
    return found


def race(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the best CPU seconds of each call.

    The calls take turns, so that all run under the same conditions.
    """
    fastest = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            before = time.process_time()
            call()
            fastest[name] = min(fastest[name], time.process_time() - before)
    return fastest


def repeated(call: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """Return a function that makes a thousand calls, so that seconds are milliseconds per call."""

    def thousand() -> None:
        for _ in range(1000):
            call(*arguments)

    return thousand


def values(rng: Random, count: int) -> list[bytes]:
    """Return values of half noise and half text, so that compression saves about half."""
    return [rng.randbytes(VALUE_SIZE // 2) + b"flight " * 7 + b"." for _ in range(count)]


def fetch(batch_size: int, codec: int, size: int) -> tuple[bytes, int]:
    """Return about ``size`` bytes of records, and their number.

    ``batch_size`` is the uncompressed size of a batch.
    """
    per_batch = batch_size // (VALUE_SIZE + 10)
    rng = Random(1)
    batches, offset = [], 0
    while offset * VALUE_SIZE < size:
        written = [
            SimpleRecord(None, value, (), NOW_MS + n)
            for n, value in enumerate(values(rng, per_batch))
        ]
        batches.append(encode_batch(written, base_offset=offset, compression=codec))
        offset += per_batch
    return b"".join(batches), offset


def read_by(reader: Any, blob: bytes) -> Iterator[tuple[object, ...]]:
    batches = reader(blob)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for record in batch:
            yield (record.offset, record.timestamp, record.key, record.value, record.headers)


def kept(reader: Any, blob: bytes) -> object:
    return list(read_by(reader, blob))


def dropped(reader: Any, blob: bytes) -> object:
    return deque(read_by(reader, blob), maxlen=0)


def columns_by(decoder: ModuleType, blob: bytes) -> object:
    return decoder.decode_columns(
        blob, from_offset=0, to_offset=OFFSET_MAX, with_headers=True, verify_crc=True
    )


def reading(rounds: int) -> Table:
    table = Table(title="Reading records of 100 bytes, millions a CPU second", title_justify="left")
    names = [f"{name} {kind}" for name in OURS for kind in ("columns", "records")]
    names += ["aiokafka kept", "aiokafka dropped", "kafka-python dropped"]
    for name in ("codec, batch", *names, "columns, native : plain", "native : aiokafka kept"):
        table.add_column(name, justify="right")
    for codec_name, codec in CODECS.items():
        for batch_size in BATCH_SIZES:
            blob, count = fetch(batch_size, codec, 8 << 20)
            calls = {
                "aiokafka kept": partial(kept, AiokafkaRecords, blob),
                "aiokafka dropped": partial(dropped, AiokafkaRecords, blob),
            }
            if not codec:  # other codecs need packages that this project does not install
                calls["kafka-python dropped"] = partial(dropped, KafkaRecords, blob)
            for name, decoder in decoders().items():
                calls[f"{name} columns"] = partial(columns_by, decoder, blob)
                calls[f"{name} records"] = partial(decoder.decode_records, blob)
            speeds = {name: count / took / 1e6 for name, took in race(calls, rounds).items()}
            table.add_row(
                f"{codec_name}, {batch_size >> 10} KB",
                *(cell(speeds.get(name)) for name in names),
                ratio(speeds, "native columns", "plain columns"),
                ratio(speeds, "native records", "aiokafka kept"),
            )
    return table


def cell(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}" if number < 10 else f"{number:.1f}"


def ratio(speeds: dict[str, float], ours: str, theirs: str) -> str:
    return cell(speeds[ours] / speeds[theirs]) if ours in speeds else "-"


def build_by(builder: Any, pairs: list[tuple[bytes, bytes]]) -> bytes:
    made = builder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for delta, (key, value) in enumerate(pairs):
        made.append(delta, NOW_MS, key, value, [])
    return bytes(made.build())


def build_records(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return encode_batch([SimpleRecord(key, value, (), NOW_MS) for key, value in pairs])


def building(rounds: int) -> Table:
    table = Table(title="Building batches, microseconds each", title_justify="left")
    for name in ("records", "encode_batch", "encode_pairs", "aiokafka", "kafka-python"):
        table.add_column(name, justify="right")
    rng = Random(2)
    for count in (1, 10, 50):
        pairs = [(rng.randbytes(45), rng.randbytes(30)) for _ in range(count)]
        calls = {
            "encode_batch": repeated(build_records, pairs),
            "encode_pairs": repeated(encode_pairs, pairs, NOW_MS),
            "aiokafka": repeated(build_by, AiokafkaBuilder, pairs),
            "kafka-python": repeated(build_by, KafkaBuilder, pairs),
        }
        table.add_row(str(count), *(cell(1e3 * took) for took in race(calls, rounds).values()))
    return table


def scanning(rounds: int) -> Table:
    table = Table(title="Scanning headers, seconds a GB", title_justify="left")
    table.add_column("batches")
    for name in decoders():
        table.add_column(name, justify="right")
        table.add_column(f"{name}, no checksums", justify="right")
    for label, batch_size, size in (("64 KB", 64 << 10, 128 << 20), ("100 bytes", 100, 8 << 20)):
        one = encode_pairs([(None, bytes(batch_size - 70))], NOW_MS)
        blob = b"".join(struct.pack(">q", n) + one[8:] for n in range(size // len(one)))
        calls = {
            f"{name} {verify}": partial(decoder.scan, blob, verify_crc=verify)
            for name, decoder in decoders().items()
            for verify in (True, False)
        }
        took = race(calls, rounds).values()
        table.add_row(label, *(f"{seconds / len(blob) * 1e9:.3f}" for seconds in took))
    return table


def loading(rounds: int) -> Table:
    """Measure commit records with the layout of a shard of ``__consumer_offsets``."""
    rng = Random(3)
    count = 100_000
    pairs = [(rng.randbytes(45), rng.randbytes(30)) for _ in range(count)]
    table = Table(title="Keys and values of a million commits, seconds", title_justify="left")
    for name in ("records a batch", *decoders()):
        table.add_column(name, justify="right")
    for per_batch in (1, 10, 50):
        blob = b"".join(
            encode_pairs(pairs[n : n + per_batch], NOW_MS, base_offset=n)
            for n in range(0, count, per_batch)
        )
        calls = {name: partial(decoder.decode_pairs, blob) for name, decoder in decoders().items()}
        took = race(calls, rounds).values()
        table.add_row(str(per_batch), *(cell(seconds * 1e6 / count) for seconds in took))
    return table


def compressing(rounds: int) -> Table:
    table = Table(title="Payloads of 16 KB, microseconds", title_justify="left")
    for name in ("codec", "packed", "compress", "decompress"):
        table.add_column(name, justify="right")
    payload = b"".join(values(Random(4), 164))[: 16 << 10]
    for name, codec in {"gzip": 1, "snappy": 2, **CODECS}.items():
        packed = compress(codec, payload)
        calls = {
            "compress": repeated(compress, codec, payload),
            "decompress": repeated(decompress, codec, packed, 1 << 20),
        }
        took = race(calls, rounds).values()
        share = f"{len(packed) / len(payload):.0%}"
        table.add_row(name, share, *(cell(1e3 * seconds) for seconds in took))
    return table


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Print the tables, and return the figures that summarize them."""
    rounds = 1 if is_quick else 6
    console = Console(width=140)
    for make_table in (reading, building, scanning, loading, compressing):
        console.print(make_table(rounds))
    blob, count = fetch(16 << 10, CODECS["none"], 8 << 20)
    calls: dict[str, Callable[[], object]] = {"aiokafka": partial(kept, AiokafkaRecords, blob)}
    for name, decoder in decoders().items():
        calls[f"{name} columns"] = partial(columns_by, decoder, blob)
        calls[f"{name} records"] = partial(decoder.decode_records, blob)
    speeds = {name: count / took / 1e6 for name, took in race(calls, rounds).items()}
    for name in decoders():
        for kind, peer in (("records", "aiokafka"), ("columns", "plain columns")):
            if f"{name} {kind}" != peer:
                yield Figure(
                    what=f"reading records of 100 bytes, {name} {kind}",
                    unit="million a CPU s",
                    ours=speeds[f"{name} {kind}"],
                    peer_name=peer,
                    peer=speeds[peer],
                )
