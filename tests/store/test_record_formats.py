"""A shard's records have Kafka's binary formats."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    Record,
)
from partage.store.record_formats import AWAITING_SYNC_TAG, decode_record, encode_record
from partage.wire.primitives import MalformedError

from .kafka import GROUP_KEY, GROUP_VALUE, MADE_BY_KAFKA, OFFSET_KEY, OFFSET_VALUE
from .record_strategies import (
    AT_MS,
    committed_offsets,
    expiring_offsets,
    records,
    removed_groups,
    removed_offsets,
    saved_groups,
)


def made(what: str, version: int) -> bytes:
    return bytes.fromhex(MADE_BY_KAFKA[what][version])


OFFSET_KEY_BYTES = made("offset key", 1)
GROUP_KEY_BYTES = made("group key", 2)
KEYS = {"offset": OFFSET_KEY_BYTES, "group": GROUP_KEY_BYTES, "empty group": GROUP_KEY_BYTES}
VALUES = [
    pytest.param(KEYS[what], made(what, version), id=f"{what}-v{version}")
    for what in KEYS
    for version in MADE_BY_KAFKA[what]
]

# The content of the bytes that Kafka wrote.

OFFSET = OffsetRecord(
    group_id="größe",
    topic="t",
    partition=7,
    offset=1_234_567_890_123,
    leader_epoch=5,
    metadata="notiz \N{SNOWMAN}",
    commit_ms=AT_MS,
)
WITH_EXPIRY = msgspec.structs.replace(OFFSET, leader_epoch=-1, expire_ms=AT_MS + 600_000)
GROUP = GroupRecord(
    group_id="größe",
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m-1",
    since_ms=AT_MS,
    members=(
        MemberRecord(
            member_id="m-1",
            instance_id="i",
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            subscription=b"\x00\x01\x02",
            assignment=b"\x03\x04",
        ),
        MemberRecord(
            member_id="m-2",
            instance_id=None,
            client_id="",
            client_host="/::1",
            rebalance_timeout_ms=30_000,
            session_timeout_ms=6_000,
            subscription=b"",
        ),
    ),
)
EMPTY = GroupRecord(group_id="größe", generation=4, since_ms=AT_MS)


def without(saved: GroupRecord, version: int) -> GroupRecord:
    """Return the parts of a group that an older version can hold."""
    changed: dict[str, object] = {}
    if version < 3:
        changed["instance_id"] = None
    members = tuple(
        msgspec.structs.replace(
            m,
            **changed,
            rebalance_timeout_ms=m.session_timeout_ms if version < 1 else m.rebalance_timeout_ms,
        )
        for m in saved.members
    )
    since_ms = saved.since_ms if version >= 2 else -1
    return msgspec.structs.replace(saved, members=members, since_ms=since_ms)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (OFFSET, OFFSET_KEY_BYTES, made("offset", 3)),
        (WITH_EXPIRY, OFFSET_KEY_BYTES, made("offset", 1)),
        (GROUP, GROUP_KEY_BYTES, made("group", 4)),
        (EMPTY, GROUP_KEY_BYTES, made("empty group", 4)),
        (OffsetTombstone(group_id="größe", topic="t", partition=7), OFFSET_KEY_BYTES, None),
        (GroupTombstone(group_id="größe"), GROUP_KEY_BYTES, None),
    ],
)
def test_record_bytes_equal_kafka(record: Record, key: bytes, value: bytes | None) -> None:
    assert encode_record(record) == (key, value)
    assert decode_record(key, value) == record


@pytest.mark.parametrize("version", range(5))
def test_offset_decoded_in_all_kafka_versions(version: int) -> None:
    epoch = 5 if version >= 3 else -1
    expected = msgspec.structs.replace(OFFSET, leader_epoch=epoch)
    if version == 1:
        expected = WITH_EXPIRY
    assert decode_record(OFFSET_KEY_BYTES, made("offset", version)) == expected


def test_offset_key_v0_is_decoded() -> None:
    key = b"\x00\x00" + OFFSET_KEY_BYTES[2:]
    assert decode_record(key, made("offset", 3)) == OFFSET
    assert decode_record(key, None) == OffsetTombstone(group_id="größe", topic="t", partition=7)


@pytest.mark.parametrize("version", range(5))
def test_group_decoded_in_all_kafka_versions(version: int) -> None:
    """Before rebalance timeouts, the session timeout was used for both."""
    assert decode_record(GROUP_KEY_BYTES, made("group", version)) == without(GROUP, version)
    assert decode_record(GROUP_KEY_BYTES, made("empty group", version)) == without(EMPTY, version)


# Other implementations.


def fields_of(record: OffsetRecord | GroupRecord) -> dict[str, object]:
    if isinstance(record, OffsetRecord):
        return {
            "offset": record.offset,
            "metadata": record.metadata,
            "commit_timestamp": record.commit_ms,
        }
    return {
        "protocol_type": record.protocol_type or "",
        "generation": record.generation,
        "protocol": record.protocol,
        "leader": record.leader,
        "current_state_timestamp": record.since_ms,
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "rebalance_timeout": m.rebalance_timeout_ms,
                "session_timeout": m.session_timeout_ms,
                "subscription": m.subscription,
                "assignment": m.assignment,
            }
            for m in record.members
        ],
    }


@given(committed_offsets)
def test_offset_bytes_equal_kafka_python(record: OffsetRecord) -> None:
    values = fields_of(record) | {"leader_epoch": record.leader_epoch}
    where = {"group": record.group_id, "topic": record.topic, "partition": record.partition}
    assert encode_record(record) == (OFFSET_KEY.encode(1, where), OFFSET_VALUE.encode(3, values))


@given(expiring_offsets)
def test_offset_with_expiry_bytes_equal_kafka_python(record: OffsetRecord) -> None:
    values = fields_of(record) | {"expire_timestamp": record.expire_ms}
    assert encode_record(record)[1] == OFFSET_VALUE.encode(1, values)


@given(saved_groups)
def test_group_bytes_equal_kafka_python(record: GroupRecord) -> None:
    """Other implementations skip our tagged field of a pending sync."""
    key, value = encode_record(record)
    assert value is not None
    assert key == GROUP_KEY.encode(2, {"group": record.group_id})
    tags = {f"_{AWAITING_SYNC_TAG}": b"\x01"} if record.awaiting_sync else {}
    assert GROUP_VALUE.decode(value) == (4, fields_of(record), tags)
    if not record.awaiting_sync:
        assert value == GROUP_VALUE.encode(4, fields_of(record))
    older = GROUP_VALUE.encode(3, fields_of(record))
    assert decode_record(key, older) == msgspec.structs.replace(record, awaiting_sync=False)


@given(st.one_of(removed_groups, removed_offsets))
def test_key_without_value_is_tombstone(record: Record) -> None:
    key, value = encode_record(record)
    assert value is None
    assert decode_record(key, None) == record


@given(records)
@example(msgspec.structs.replace(GROUP, awaiting_sync=True))
@example(msgspec.structs.replace(OFFSET, expire_ms=0, leader_epoch=-1))
def test_record_roundtrip(record: Record) -> None:
    assert decode_record(*encode_record(record)) == record


def test_awaiting_sync_tag_takes_five_bytes() -> None:
    """A group without a pending sync has exactly Kafka's bytes."""
    awaiting = encode_record(msgspec.structs.replace(GROUP, awaiting_sync=True))[1]
    assert awaiting is not None
    assert awaiting[:-5] == made("group", 4)[:-1]
    assert awaiting[-5:] == bytes.fromhex("01 914e 01 01")


# Invalid data.


@pytest.mark.parametrize("kind", [4, 9, 10, 15, 17, 32_767, -1])
def test_unknown_key_types_are_ignored(kind: int) -> None:
    """Kafka keeps share and streams groups in the same topic."""
    key = struct.pack(">h", kind) + b"whatever"
    assert decode_record(key, b"\x00\x00what it holds") is None
    assert decode_record(key, None) is None


@pytest.mark.parametrize("key", [OFFSET_KEY_BYTES, GROUP_KEY_BYTES])
@pytest.mark.parametrize("version", [5, 99, -1])
def test_unknown_versions_raise_malformed(key: bytes, version: int) -> None:
    with pytest.raises(MalformedError, match=f"has version {version}; supported: 0 to 4"):
        decode_record(key, struct.pack(">h", version) + bytes(100))


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_truncated_record_raises_malformed(key: bytes, value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(MalformedError):
            decode_record(key, value[:length])
    for length in range(len(key)):
        with pytest.raises(MalformedError):
            decode_record(key[:length], value)


@given(
    st.sampled_from((OFFSET_KEY_BYTES, GROUP_KEY_BYTES)),
    st.integers(0, 4),
    st.binary(max_size=80),
)
def test_random_bytes_decode_or_raise_malformed(key: bytes, version: int, rest: bytes) -> None:
    """No other exception is raised, so loading can report the error."""
    try:
        record = decode_record(key, struct.pack(">h", version) + rest)
    except MalformedError:
        return
    assert isinstance(record, OffsetRecord | GroupRecord)


@given(st.data())
def test_corrupt_byte_decodes_or_raises_malformed(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([made(w, v) for w in KEYS for v in MADE_BY_KAFKA[w]]))
    at = data.draw(st.integers(2, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(min_size=1, max_size=1)) + whole[at + 1 :]
    for key in (OFFSET_KEY_BYTES, GROUP_KEY_BYTES):
        try:
            decode_record(key, damaged)
        except MalformedError:
            continue
