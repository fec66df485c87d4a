"""Appends to a partition, and reads from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.log.segments import segment
from partage.log.segments.batch_reader import check_slice
from partage.model.errors import ErrorCode
from partage.wire.records.batch import Compression, parse_header, whole_batches
from partage.wire.records.decoder import decode_records, scan

from .partition_host import DIRECTORY, NOW_MS, Host, batch, offsets
from .property_settings import PROPERTY_SETTINGS


def test_batches_get_consecutive_offsets() -> None:
    host = Host()
    first = host.append(batch(b"a", b"b"))
    second = host.append(batch(b"c") + batch(b"d", b"e"))
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 4)
    assert host.log.end_offset == 5


def test_records_are_readable_only_when_durable() -> None:
    host = Host()
    host.write(batch(b"a"))
    host.append(batch(b"b"))
    assert (host.log.high_watermark, host.log.end_offset) == (1, 2)
    assert host.values() == [b"a"]
    assert host.fetch(1) == b""
    assert host.log.timestamp_lookup(NOW_MS + 1)() is None
    host.flush()
    assert host.values() == [b"a", b"b"]


def test_appends_become_durable_in_groups() -> None:
    host = Host()
    for value in (b"a", b"b", b"c"):
        host.append(batch(value))
    host.log.mark_durable(2)
    assert host.log.high_watermark == 2
    host.flush()
    assert host.values() == [b"a", b"b", b"c"]


def test_batch_is_stored_with_only_broker_fields_changed() -> None:
    host = Host()
    payload = batch(b"a", b"b", compression=Compression.ZSTD)
    host.write(batch(b"first"))
    appended = host.append(payload)
    host.flush()
    stored = host.fetch(1)
    assert stored[16:] == payload[16:]
    assert parse_header(stored).base_offset == 1
    assert parse_header(stored).leader_epoch == 0
    (write,) = appended.writes
    assert write.chunks[1].obj is payload  # a view, not a copy


def test_log_append_time_is_stamped() -> None:
    host = Host(message_timestamp_type="LogAppendTime")
    appended = host.append(batch(b"a", b"b", at_ms=5))
    host.flush()
    assert appended.log_append_time_ms == NOW_MS
    assert scan(host.fetch(0)).reason == "end"  # the checksum holds
    assert [time for _, time, *_ in host.records()] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("segment_bytes", [200, 1000, 1 << 30])
@pytest.mark.parametrize("index_interval_bytes", [0, 150, 4096])
def test_locate_finds_every_offset(segment_bytes: int, index_interval_bytes: int) -> None:
    host = Host(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    host.write(*(batch(*[b"%d" % n] * (n % 3 + 1)) for n in range(40)))
    for _ in range(2):
        for offset in range(host.log.end_offset):
            header = parse_header(host.fetch(offset))
            assert header.base_offset <= offset <= header.last_offset
        host.close()
        host.open()  # recent batches are not known after a start


@pytest.mark.parametrize("payload_batches", [1, 3, 20])
def test_locate_works_with_few_recent_batches(
    payload_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "RECENT_BATCHES_MAX", 4)
    host = Host(index_interval_bytes=300)
    for _ in range(6):
        host.write(batch(b"x", b"y") * payload_batches)
        for offset in range(host.log.end_offset):
            assert parse_header(host.fetch(offset)).base_offset == offset // 2 * 2
    host.open()
    for offset in range(host.log.end_offset):
        assert parse_header(host.fetch(offset)).base_offset == offset // 2 * 2


def test_offset_out_of_range_is_refused() -> None:
    host = Host()
    host.write(batch(b"a", b"b"))
    for offset in (-1, 3):
        refusal = host.log.locate(offset, 100)
        assert isinstance(refusal, Refusal)
        assert refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert host.log.locate(2, 100) == []


def test_first_batch_is_complete_or_absent() -> None:
    host = Host()
    host.write(batch(b"a" * 500), batch(b"b"))
    assert host.log.locate(0, 100, whole_first=False) == []
    (only,) = host.log.locate(0, 100)
    assert scan(host.fetch(0, 100)).count == 1
    assert only.length == parse_header(host.fetch(0, 100)).size
    assert host.log.locate(0, 0, whole_first=False) == []


def test_fetch_stops_at_limit_and_spans_segments() -> None:
    host = Host(segment_bytes=200)
    payload = batch(b"x" * 20)
    host.write(*[payload] * 10)
    slices = host.log.locate(3, 5 * len(payload) + 7)
    assert len(slices) > 1
    assert sum(one.length for one in slices) == 5 * len(payload), "the next segment is left out"
    assert offsets(decode_records(host.fetch(3, 5 * len(payload) + 7))) == [3, 4, 5, 6, 7]


def test_each_slice_begins_with_a_complete_batch_at_any_limit() -> None:
    host = Host(segment_bytes=200)
    host.write(*[batch(b"x" * 20)] * 4)
    for limit in range(1, 400):
        for part in host.log.locate(1, limit):
            content = host.disk.read(part.path, part.position, part.length)
            assert check_slice(part, content) is None
            assert scan(content).count > 0


def test_slice_is_checked_by_its_first_batch() -> None:
    host = Host(segment_bytes=200)
    host.write(*(batch(b"%d" % n * 10) for n in range(9)))
    for part in host.log.locate(1, 10_000):
        content = host.disk.read(part.path, part.position, part.length)
        assert check_slice(part, content) is None
        assert "expected offset" in str(check_slice(part, content[:3] + b"\1" + content[4:]))
        assert "does not end where" in str(check_slice(part, content[:8] + b"\1" + content[9:]))
        assert "checksum" in str(check_slice(part, content[:70] + b"\1" + content[71:]))
        assert check_slice(part, content[50:]) is not None
        assert check_slice(part, b"") is not None


def test_segments_are_named_after_base_offset() -> None:
    host = Host(segment_bytes=200)
    host.write(*[batch(b"x" * 50, b"y" * 50)] * 3)
    assert [name for name in host.files() if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000002.log",
        "00000000000000000004.log",
    ]


def test_segment_rolls_at_segment_ms() -> None:
    host = Host(segment_ms=1000)
    host.write(batch(b"a"), batch(b"b", at_ms=NOW_MS + 1000))
    assert len([name for name in host.files() if name.endswith(".log")]) == 1
    host.write(batch(b"c", at_ms=NOW_MS + 1001))
    assert len([name for name in host.files() if name.endswith(".log")]) == 2


def test_segment_without_timestamps_ages_from_creation() -> None:
    host = Host(segment_ms=1000)
    host.write(batch(b"a", at_ms=-1))
    host.now_ms += 1001
    host.write(batch(b"b", at_ms=-1))
    assert len([name for name in host.files() if name.endswith(".log")]) == 2


def test_segment_rolls_when_index_is_full() -> None:
    host = Host(segment_index_bytes=16, index_interval_bytes=0)
    host.write(*[batch(b"x")] * 4)
    assert len([name for name in host.files() if name.endswith(".log")]) == 2


def test_indexes_of_old_segments_are_unloaded_and_reloaded() -> None:
    host = Host(segment_bytes=200, index_interval_bytes=0)
    host.write(*(batch(b"%d" % n * 10) for n in range(9)))
    assert host.log.apply_retention(NOW_MS) is None
    disk = host.disk
    assert isinstance(disk, MemoryDisk)
    disk.truncate(f"{DIRECTORY}/00000000000000000000.index", 3)  # rebuilt if damaged
    for offset in range(9):
        assert parse_header(host.fetch(offset)).base_offset == offset


@PROPERTY_SETTINGS
@given(st.lists(st.integers(1, 5), min_size=1, max_size=60), st.integers(1, 400))
def test_consecutive_fetches_return_every_record_once(counts: list[int], bytes_max: int) -> None:
    host = Host(segment_bytes=500, index_interval_bytes=100)
    for count in counts:
        host.write(batch(*[b"v" * count] * count))
    seen, offset = list[int](), 0
    while content := host.fetch(offset, bytes_max):
        for _, header in whole_batches(content):
            seen.append(header.base_offset)
            offset = header.next_offset
    assert offset == sum(counts)
    assert len(seen) == len(counts)


def test_epoch_end_is_found_in_batches() -> None:
    host = Host(segment_bytes=250)
    for epoch, count in ((0, 5), (2, 1), (3, 6)):
        for _ in range(count):
            appended = host.log.append(batch(b"x" * 20), at_ms=NOW_MS, leader_epoch=epoch)
            assert not isinstance(appended, Refusal)
            host.writes += appended.writes
            host.flush()
    ask = host.log.end_offset_for_epoch
    assert ask(3, current=3) == (3, 12)
    assert ask(0, current=3) == (0, 5)
    assert ask(1, current=3) == (0, 5)
    assert ask(2, current=3) == (2, 6)
    assert ask(4, current=3) == (-1, -1)
    assert ask(3, current=4) == (3, 12)
    assert ask(-1, current=3) == (-1, -1)


def test_epoch_before_first_ends_at_log_start() -> None:
    host = Host()
    appended = host.log.append(batch(b"x"), at_ms=NOW_MS, leader_epoch=7)
    assert not isinstance(appended, Refusal)
    host.writes += appended.writes
    host.flush()
    assert host.log.end_offset_for_epoch(3, current=7) == (3, 0)


own_batches = st.lists(
    st.sampled_from(
        (
            batch(b"a"),
            batch(b"b", b"c" * 300),
            batch(b"d", compression=Compression.LZ4),
            batch(b"e") + batch(b"f", b"g"),
            batch(b"h" * 2_000),
        )
    ),
    min_size=1,
    max_size=12,
)


@given(own_batches, st.sampled_from(("CreateTime", "LogAppendTime")))
@PROPERTY_SETTINGS
def test_plain_batches_of_the_broker_are_stored_like_others(
    payloads: list[bytes], timestamp_type: str
) -> None:
    """Batches of the broker have a shorter path: `prepare_own_batch`."""
    stored = []
    for from_client in (True, False):
        host = Host(segment_bytes=3_000, message_timestamp_type=timestamp_type)
        results = [host.append(payload, from_client=from_client) for payload in payloads]
        host.flush()
        ends = [(one.base_offset, one.last_offset, one.log_append_time_ms) for one in results]
        names = host.disk.names(DIRECTORY)
        files = {name: host.disk.read(f"{DIRECTORY}/{name}", 0, 1 << 20) for name in names}
        stored.append((ends, files))
    assert stored[0] == stored[1]


def test_oversized_plain_batch_of_the_broker_is_refused() -> None:
    host = Host(segment_bytes=100)
    refusal = host.log.append(batch(bytes(200)), at_ms=NOW_MS, from_client=False)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.RECORD_LIST_TOO_LARGE
