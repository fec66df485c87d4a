"""Look-up of offsets by timestamp."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.wire.records.encoder import SimpleRecord, encode_batch

from .partition_host import NOW_MS, Host, batch, unreadable
from .property_settings import PROPERTY_SETTINGS


def timed(*ages: int, compression: int = 0) -> bytes:
    return encode_batch(
        [SimpleRecord(None, b"v" * 30, timestamp_ms=NOW_MS + age) for age in ages],
        compression=compression,
    )


@PROPERTY_SETTINGS
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=40),
    st.integers(0, 4),
    st.integers(0, 30),
    st.booleans(),
)
def test_lookup_finds_first_record_at_or_after_timestamp(
    ages: list[list[int]], compression: int, deleted: int, reopened: bool
) -> None:
    host = Host(segment_bytes=500, index_interval_bytes=200, segment_ms=10**9)
    for group in ages:
        host.write(timed(*group, compression=compression))
    flat = [age for group in ages for age in group]
    start = min(deleted, len(flat))
    host.perform(host.log.delete_records(start))
    if reopened:
        host.close()
        host.open()
    for wanted in range(-1, 32):
        expected = next(
            (
                (offset, NOW_MS + age)
                for offset, age in enumerate(flat)
                if age >= wanted and offset >= start
            ),
            None,
        )
        assert host.log.timestamp_lookup(NOW_MS + wanted)() == expected


@PROPERTY_SETTINGS
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=30),
    st.integers(0, 40),
)
def test_lookup_of_max_timestamp_finds_first_such_record(
    ages: list[list[int]], deleted: int
) -> None:
    """Also if later records were deleted while their segment still exists."""
    host = Host(segment_bytes=400, index_interval_bytes=100)
    for group in ages:
        host.write(timed(*group))
    flat = [age for group in ages for age in group]
    start = min(deleted, len(flat))
    host.perform(host.log.delete_records(start))
    latest = max(flat[start:], default=None)
    expected = None if latest is None else (flat.index(latest, start), NOW_MS + latest)
    assert host.log.timestamp_lookup(None)() == expected


def test_unreadable_batch_is_found_by_its_header() -> None:
    """The batch was stored unread, as its producer sent it. The disk is not at fault."""
    host = Host()
    host.write(timed(0), unreadable(timed(1, 2, compression=1)), timed(3))
    assert host.log.timestamp_lookup(NOW_MS + 1)() == (1, NOW_MS + 2)
    assert host.log.timestamp_lookup(NOW_MS + 3)() == (3, NOW_MS + 3)
    host.write(unreadable(timed(9, compression=1)))
    assert host.log.timestamp_lookup(None)() == (4, NOW_MS + 9)
    host.perform(host.log.delete_records(2))
    assert host.log.timestamp_lookup(0)() == (2, NOW_MS + 2)


def test_lookup_without_match_returns_none() -> None:
    host = Host()
    assert host.log.timestamp_lookup(0)() is None
    assert host.log.timestamp_lookup(None)() is None
    host.write(batch(b"no time", at_ms=-1))
    assert host.log.timestamp_lookup(None)() is None
    assert host.log.timestamp_lookup(0)() is None


def test_lookup_ignores_records_above_high_watermark() -> None:
    host = Host()
    host.write(timed(5))
    host.append(timed(9))
    assert host.log.timestamp_lookup(None)() == (0, NOW_MS + 5)
    host.flush()
    assert host.log.timestamp_lookup(None)() == (1, NOW_MS + 9)


def test_log_append_time_applies_to_every_record() -> None:
    host = Host(message_timestamp_type="LogAppendTime")
    host.write(timed(0, 1))
    host.now_ms += 10
    host.write(timed(0, 1))
    assert host.log.timestamp_lookup(NOW_MS + 1)() == (2, NOW_MS + 10)
    assert host.log.timestamp_lookup(None)() == (2, NOW_MS + 10)
