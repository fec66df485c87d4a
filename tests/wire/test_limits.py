"""Limits of what a peer may declare, and the cost of false declarations."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from partage.wire.api import AnyApi
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.list_groups import LIST_GROUPS
from partage.wire.apis.metadata import METADATA
from partage.wire.apis.offset_fetch import OFFSET_FETCH
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.codec import REQUEST_ALLOWANCE, RESPONSE_ALLOWANCE, TAGS_MAX, TEXT_MAX
from partage.wire.codec.layout import FieldLayout, message_layout
from partage.wire.primitives import MalformedError, decode_uvarint, decode_varint, encode_uvarint
from partage.wire.types import (
    ZERO_UUID,
    ArrayKind,
    BytesKind,
    FieldKind,
    FixedKind,
    Message,
    RecordsKind,
    StringKind,
)

from .random_messages import NEWEST, Case, MessageFactory

HUGE = b"\xff\xff\xff\xff\x07"  # 2**31 - 1 as a varint
HEARTBEAT_V4 = b"\x02g" + struct.pack(">i", 7) + b"\x02m" + b"\x00"  # without tag section


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the peak memory of ``call``, which may raise `MalformedError`."""
    tracemalloc.start()
    try:
        call()
    except MalformedError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def lowest_peak_bytes(call: Callable[[], object]) -> int:
    """Return the lowest peak of three calls, to compare it with a few kilobytes.

    `tracemalloc` also counts what other threads allocate meanwhile, such as those of pytest-xdist.
    """
    return min(peak_bytes(call) for _ in range(3))


# Counts (CVE-2026-111108)


@pytest.mark.parametrize("count", [2, 1000, 2**31 - 1])
def test_classic_count_must_fit_bytes_left(count: int) -> None:
    frame = struct.pack(">i", count) + bytes(3)  # one topic name takes at least two bytes
    with pytest.raises(MalformedError, match=f"topics declares a size of {count}"):
        METADATA.decode_request(0, frame)


@pytest.mark.parametrize("count", [b"\x05", b"\xff\x01", HUGE, b"\xff\xff\xff\xff\x7f"])
def test_compact_count_must_fit_bytes_left(count: bytes) -> None:
    with pytest.raises(MalformedError, match="topics declares a size of"):
        METADATA.decode_request(9, count + bytes(3))


def test_nested_count_must_fit_bytes_left() -> None:
    topic = b"\x00\x01t" + struct.pack(">i", 2**31 - 1)
    frame = struct.pack(">iiiibi", -1, 0, 0, 0, 0, 1) + topic + bytes(64)
    with pytest.raises(MalformedError, match=r"FetchTopic\.partitions declares a size of"):
        FETCH.decode_request(4, frame)


def test_count_of_numbers_must_fit_bytes_left() -> None:
    partition = struct.pack(">hiii", 0, 0, 0, 2**30)  # ends with the count of replicas
    topic = struct.pack(">hh?i", 0, 0, False, 1) + partition
    frame = struct.pack(">iii", 0, 0, 1) + topic + bytes(64)  # no brokers, a controller, a topic
    with pytest.raises(MalformedError, match="replica_nodes declares a size of"):
        METADATA.decode_response(1, frame)


@pytest.mark.parametrize(
    ("api", "version", "frame"),
    [
        (METADATA, 8, b"\x7f\xff\xff\xff" + bytes(1000)),
        (METADATA, 12, HUGE + bytes(1000)),
        (LIST_GROUPS, 5, HUGE + bytes(1000)),
    ],
)
def test_huge_count_allocates_nothing(api: AnyApi, version: int, frame: bytes) -> None:
    peak_bytes(lambda: api.decode_request(version, frame))  # compiles the decoder
    assert lowest_peak_bytes(lambda: api.decode_request(version, frame)) < 4096


def strings(count: int, size: int = 0) -> bytes:
    """Return an array of ``count`` strings, each of ``size`` bytes."""
    return encode_uvarint(count + 1) + (encode_uvarint(size + 1) + b"x" * size) * count


def test_arrays_of_request_share_one_allowance() -> None:
    """A base number of elements, and one more for every eight bytes."""
    half = REQUEST_ALLOWANCE.base // 2
    both = LIST_GROUPS.decode_request(5, strings(half) + strings(half) + b"\x00")
    assert len(both.states_filter) + len(both.types_filter) == REQUEST_ALLOWANCE.base
    with pytest.raises(MalformedError, match="more elements than allowed in a message of"):
        LIST_GROUPS.decode_request(5, strings(half) + strings(2 * half) + b"\x00")
    more = LIST_GROUPS.decode_request(5, strings(2 * half, 7) + strings(half, 7) + b"\x00")
    assert len(more.states_filter) == 2 * half
    assert len(more.types_filter) == half


def test_request_has_element_limit() -> None:
    assert len(
        LIST_GROUPS.decode_request(
            5, strings(REQUEST_ALLOWANCE.elements_max, 20) + b"\x01\x00"
        ).states_filter
    )
    with pytest.raises(MalformedError, match="more elements"):
        LIST_GROUPS.decode_request(5, strings(REQUEST_ALLOWANCE.elements_max + 1, 20) + b"\x01\x00")


def test_response_has_larger_element_limit() -> None:
    """A broker may send responses that are larger than any of ours."""
    listed = encode_uvarint(REQUEST_ALLOWANCE.elements_max + 2) + b"\x01\x01\x01\x01\x00" * (
        REQUEST_ALLOWANCE.elements_max + 1
    )
    assert (
        len(LIST_GROUPS.decode_response(5, bytes(6) + listed + b"\x00").groups)
        > REQUEST_ALLOWANCE.elements_max
    )
    over = encode_uvarint(RESPONSE_ALLOWANCE.elements_max + 2) + bytes(
        5 * (RESPONSE_ALLOWANCE.elements_max + 1)
    )
    with pytest.raises(MalformedError, match="more elements"):
        LIST_GROUPS.decode_response(5, bytes(6) + over)


def test_two_numbers_of_request_count_as_one_element() -> None:
    """Each requested partition is answered with a structure."""

    def asking(count: int) -> bytes:
        return b"\x00\x01g" + struct.pack(">i", 1) + b"\x00\x01t" + struct.pack(">i", count)

    most = 2 * REQUEST_ALLOWANCE.elements_max
    (topic,) = OFFSET_FETCH.decode_request(1, asking(most - 2) + bytes(4 * most)).topics or ()
    assert len(topic.partition_indexes) == most - 2
    with pytest.raises(MalformedError, match="more elements"):
        OFFSET_FETCH.decode_request(1, asking(most) + bytes(4 * most))


def test_produce_partitions_are_limited_by_size() -> None:
    """Each would take a hundred times its size, and many requests are processed at a time."""
    empty = struct.pack(">ii", 0, -1)
    head = struct.pack(">hhii", -1, -1, 0, 1) + b"\x00\x01t"
    few = head + struct.pack(">i", 900) + 900 * empty
    assert len(PRODUCE.decode_request(8, few).topic_data[0].partition_data) == 900
    many = head + struct.pack(">i", 700_000) + 700_000 * empty
    assert peak_bytes(lambda: PRODUCE.decode_request(8, many)) < 1 << 20
    with pytest.raises(MalformedError, match="more elements"):
        PRODUCE.decode_request(8, many)
    honest = struct.pack(">ii", 0, 61) + bytes(61)
    full = head + struct.pack(">i", 10_000) + 10_000 * honest
    assert len(PRODUCE.decode_request(8, full).topic_data[0].partition_data) == 10_000
    over = head + struct.pack(">i", 20_000) + 20_000 * honest
    with pytest.raises(MalformedError, match="more elements"):
        PRODUCE.decode_request(8, over)


def test_numbers_of_response_do_not_use_allowance() -> None:
    count = RESPONSE_ALLOWANCE.elements_max + 1
    replicas = encode_uvarint(count + 1) + bytes(4 * count)
    partition = bytes(14) + replicas + b"\x01\x01\x00"
    topic = b"\x00\x00\x02t\x00\x02" + partition + bytes(5)
    frame = bytes(4) + b"\x01\x00" + bytes(4) + b"\x02" + topic + bytes(5)
    (read,) = METADATA.decode_response(9, frame).topics
    assert len(read.partitions[0].replica_nodes) == count


@pytest.mark.parametrize("case", NEWEST, ids=str)
def test_false_declarations_cost_little_memory(case: Case) -> None:
    """Replace every length and count by a large one, followed by small elements."""
    message = MessageFactory(case.rng("lies")).message(case.cls, case.version, case.flexible)
    frame = case.encode(message)
    case.decode(frame)  # compiles the decoder
    for at in range(min(len(frame), 40)):
        for lie in (b"\x00\x00\x00\x40", b"\x7f\xff\xff\xff", b"\xff\x01", HUGE):
            for filling in (b"\x00", b"\x01"):
                hostile = frame[:at] + lie + 400 * filling
                assert peak_bytes(lambda: case.decode(hostile)) < 100 * len(hostile)  # noqa: B023


@pytest.mark.parametrize("case", NEWEST, ids=str)
def test_smallest_elements_cost_at_most_100_times_size(case: Case) -> None:
    """Valid counts have a cost too: Python objects are larger than their encoding."""
    for path in array_paths(case.cls, case):
        frame = case.encode(smallest(case.cls, case, path))
        case.decode(frame)  # compiles the decoder
        assert peak_bytes(lambda: case.decode(frame)) < 100 * len(frame), path  # noqa: B023


def array_paths(cls: type[Message], case: Case) -> Iterator[tuple[str, ...]]:
    """Return the field names that lead to each array in a message."""
    shape = message_layout(cls, case.version, case.flexible)
    for field in (*shape.fields, *shape.tagged):
        if isinstance(field.kind, ArrayKind):
            yield (field.name,)
        if field.struct is not None:
            for path in array_paths(field.struct, case):
                yield (field.name, *path)


def smallest(cls: type[Message] | None, case: Case, path: tuple[str, ...] = ()) -> Message:
    """Return the smallest message, but with 200 of the smallest elements at ``path``."""
    assert cls is not None
    shape = message_layout(cls, case.version, case.flexible)
    values: dict[str, Any] = {}
    for field in (*shape.fields, *shape.tagged):
        if path and field.name == path[0]:
            count = 1 if path[1:] else 200
            element = (
                smallest(field.struct, case, path[1:])
                if field.struct
                else ZEROS[type(field.element)]
            )
            values[field.name] = [element] * count if isinstance(field.kind, ArrayKind) else element
        elif field.tag is None:
            values[field.name] = (
                smallest(field.struct, case) if type(field.kind) is FieldKind else zero(field)
            )
    return cls(**values)


def zero(field: FieldLayout) -> Any:
    if isinstance(field.kind, FixedKind) and field.kind.size == 16:
        return ZERO_UUID
    return ZEROS[type(field.kind)]


ZEROS: dict[type, Any] = {
    FixedKind: 0,
    StringKind: "",
    BytesKind: b"",
    RecordsKind: [b""],
    ArrayKind: [],
}


# Lengths


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        (0, b"\x7f\xffgroup"),
        (0, b"\xff\xff" + bytes(20)),  # null
        (0, b"\xff\xfe" + bytes(20)),  # smaller than null
        (4, b"\x00" + bytes(20)),  # null
        (4, b"\x7fgroup"),
        (4, HUGE + b"group"),
        (4, b"\x03\xc3\x28" + bytes(20)),  # not UTF-8
        (4, b"\x04\xed\xa0\x80" + bytes(20)),  # half of a surrogate pair
    ],
)
def test_string_with_false_length_is_malformed(version: int, frame: bytes) -> None:
    with pytest.raises(MalformedError):
        HEARTBEAT.decode_request(version, frame)


def test_string_above_32767_bytes_is_malformed() -> None:
    longest = HeartbeatRequest(group_id="x" * TEXT_MAX, generation_id=1, member_id="")
    longer = HeartbeatRequest(group_id="x" * (TEXT_MAX + 1), generation_id=1, member_id="")
    for version in (3, 4):
        frame = b"".join(HEARTBEAT.encode_request(version, longest))
        assert HEARTBEAT.decode_request(version, frame) == longest
        with pytest.raises(struct.error):
            HEARTBEAT.encode_request(version, longer)
    frame = encode_uvarint(TEXT_MAX + 2) + bytes(40_000)
    with pytest.raises(MalformedError, match="a string of 32768 bytes"):
        HEARTBEAT.decode_request(4, frame)


def test_bytes_and_records_must_fit_bytes_left() -> None:
    claim = struct.pack(">i", 2**31 - 1) + bytes(100)
    with pytest.raises(MalformedError, match="assignment declares a size of 2147483647"):
        SYNC_GROUP.decode_response(0, struct.pack(">h", 0) + claim)
    produce = b"\xff\xff" + struct.pack(">hii", 1, 0, 1) + b"\x00\x01t" + struct.pack(">ii", 1, 0)
    with pytest.raises(MalformedError, match="records declares a size of 2147483647"):
        PRODUCE.decode_request(3, produce + claim)


# Varints


@pytest.mark.parametrize("frame", [b"\x80" * 6, b"\xff" * 5 + b"\x01", b"\x80" * 1000])
def test_varint_above_five_bytes_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedError, match="longer than 5 bytes"):
        HEARTBEAT.decode_request(4, frame)
    with pytest.raises(MalformedError, match="longer than 5 bytes"):
        HEARTBEAT.decode_request(4, HEARTBEAT_V4 + frame)
    with pytest.raises(MalformedError, match="longer than 5 bytes"):
        decode_uvarint(frame, 0)


def test_64_bit_varint_above_ten_bytes_is_malformed() -> None:
    assert decode_varint(b"\xff" * 9 + b"\x01", 0) == (-(2**63), 10)
    with pytest.raises(MalformedError, match="longer than 10 bytes"):
        decode_varint(b"\xff" * 10 + b"\x01", 0)


# Tagged fields (CVE-2026-111115)


def tags(count: int, payload: bytes = b"") -> bytes:
    fields = (encode_uvarint(50 + n) + encode_uvarint(len(payload)) + payload for n in range(count))
    return encode_uvarint(count) + b"".join(fields)


def test_unknown_tags_are_skipped() -> None:
    expected = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    frame = HEARTBEAT_V4 + tags(TAGS_MAX, bytes(100))
    assert HEARTBEAT.decode_request(4, frame) == expected
    assert lowest_peak_bytes(lambda: HEARTBEAT.decode_request(4, frame)) < 4096


@pytest.mark.parametrize("count", [TAGS_MAX + 1, 2**31 - 1])
def test_too_many_unknown_tags_are_malformed(count: int) -> None:
    frame = HEARTBEAT_V4 + encode_uvarint(count) + bytes(2000)
    with pytest.raises(MalformedError, match="tagged fields"):
        HEARTBEAT.decode_request(4, frame)
    assert lowest_peak_bytes(lambda: HEARTBEAT.decode_request(4, frame)) < 4096


@pytest.mark.parametrize("count", [TAGS_MAX + 1, 2**31 - 1])
def test_too_many_tags_with_known_ones_are_malformed(count: int) -> None:
    body = b"\x02g" + struct.pack(">i", 7) + b"\x02m\x00\x00\x00\x01"
    with pytest.raises(MalformedError, match="tagged fields"):
        SYNC_GROUP.decode_request(5, body + encode_uvarint(count) + bytes(2000))


def test_too_many_tags_in_structure_are_malformed() -> None:
    member = b"\x02m\x00\x01" + encode_uvarint(TAGS_MAX + 1) + bytes(2000)
    body = bytes(4) + bytes(2) + struct.pack(">i", 1) + b"\x00\x00\x01\x00\x01\x02" + member
    with pytest.raises(MalformedError, match="tagged fields"):
        JOIN_GROUP.decode_response(9, body)


def test_unknown_tag_must_fit_bytes_left() -> None:
    with pytest.raises(MalformedError, match="a tagged field"):
        HEARTBEAT.decode_request(4, HEARTBEAT_V4 + b"\x01\x32\x05abcd")


NO_TOPICS = b"\x01" + bytes(4)  # a Produce response up to its tag section


@pytest.mark.parametrize("size", [b"\x00", b"\x01", b"\x0b", b"\x0d", b"\x0e", HUGE])
def test_known_tag_with_wrong_length_is_malformed(size: bytes) -> None:
    endpoints = b"\x02" + bytes(4) + b"\x01" + bytes(4) + b"\x00\x00"  # one, with empty host
    right = NO_TOPICS + b"\x01\x00" + b"\x0c" + endpoints
    assert len(PRODUCE.decode_response(10, right).node_endpoints) == 1
    with pytest.raises(MalformedError, match=r"declared length|a tagged field declares"):
        PRODUCE.decode_response(10, NO_TOPICS + b"\x01\x00" + size + endpoints + b"\x00")
