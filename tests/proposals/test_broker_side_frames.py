"""The frames of the first design: golden bytes, round trips and damaged frames."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.proposals.broker_side.frames import (
    decode_at_broker,
    decode_at_consumer,
    decode_response,
    encode_frame,
)
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    ThreadOwnership,
)
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

OFFSET = PartitionOffset(topic="t", partition="1-0", offset=7)
BROKER = BrokerAddress(id=1, host="h", port=9092)
#: The bytes of ``OFFSET`` and ``BROKER``.
OFFSET_HEX = "0001 74 0003 312d30 0000000000000007"
BROKER_HEX = "00000001 0001 68 00002384"

#: Messages and their frames without the size.
GOLDEN: list[tuple[Message, str]] = [
    (ClusterMetadataRequest(), "0005"),
    (
        ClusterMetadataResponse(coordinator_id=2, brokers_info=[BROKER]),
        f"0000 00000002 0001 {BROKER_HEX}",
    ),
    (
        RegisterConsumerRequest(
            group_id="g",
            consumer_id="c",
            topic_count='{"t":1}',
            auto_commit=True,
            auto_offset_rest="smallest",
            session_timeout_ms=6000,
        ),
        "0006 0001 67 0001 63 0007 7b2274223a317d 01 0008 736d616c6c657374 00001770",
    ),
    (RegisterConsumerResponse(error_code=6), "0006"),
    (PingRequest(consumer_id="c", num_retries=2), "0007 0001 63 00000002"),
    (PingResponse(consumer_id="c"), "0007 0000 0001 63"),
    (PingResponse(consumer_id="c", offset_info=[]), "0007 0000 0001 63 0000"),
    (
        PingResponse(error_code=-1, consumer_id="c", offset_info=[OFFSET]),
        f"0007 ffff 0001 63 0001 {OFFSET_HEX}",
    ),
    (StopFetcherRequest(consumer_id="c"), "0008 0001 63"),
    (StopFetcherResponse(consumer_id="c"), "0008 0000 0001 63"),
    (
        StopFetcherResponse(consumer_id="c", offset_info=[OFFSET]),
        f"0008 0000 0001 63 0001 {OFFSET_HEX}",
    ),
    (
        StartFetcherRequest(
            consumer_id="c",
            ownership_info=[ThreadOwnership(consumer_thread_id="c-0", assigned_parts=[OFFSET])],
            brokers_info=[BROKER],
        ),
        f"0009 0001 63 0001 0003 632d30 0001 {OFFSET_HEX} 0001 {BROKER_HEX}",
    ),
    (StartFetcherResponse(consumer_id="c"), "0009 0000 0001 63"),
]


def decode(frame: bytes, message: type[Message]) -> Message:
    if message in (ClusterMetadataResponse, RegisterConsumerResponse):
        return decode_response(frame, message)
    if message in (PingRequest, StopFetcherRequest, StartFetcherRequest):
        return decode_at_consumer(frame)
    return decode_at_broker(frame)


def frame_of(body_hex: str) -> bytes:
    body = bytes.fromhex(body_hex)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(("message", "body_hex"), GOLDEN)
def test_frame_has_the_documents_bytes(message: Message, body_hex: str) -> None:
    frame = frame_of(body_hex)
    assert encode_frame(message) == frame
    assert decode(frame, type(message)) == message


TEXT = st.text(max_size=20)
INT16S, INT32S, INT64S = (st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (16, 32, 64))
OFFSETS = st.lists(
    st.builds(PartitionOffset, topic=TEXT, partition=TEXT, offset=INT64S), max_size=3
)
BROKERS = st.lists(st.builds(BrokerAddress, id=INT32S, host=TEXT, port=INT32S), max_size=3)
RESPONSE: dict[str, Any] = {
    "error_code": INT16S,
    "consumer_id": TEXT,
    "offset_info": st.none() | OFFSETS,
}
MESSAGES = st.one_of(
    st.builds(
        ClusterMetadataResponse, error_code=INT16S, coordinator_id=INT32S, brokers_info=BROKERS
    ),
    st.builds(
        RegisterConsumerRequest,
        group_id=TEXT,
        consumer_id=TEXT,
        topic_count=TEXT,
        auto_commit=st.booleans(),
        auto_offset_rest=TEXT,
        session_timeout_ms=INT32S,
    ),
    st.builds(PingRequest, consumer_id=TEXT, num_retries=INT32S),
    st.builds(PingResponse, **RESPONSE),
    st.builds(StopFetcherResponse, **RESPONSE),
    st.builds(
        StartFetcherRequest,
        consumer_id=TEXT,
        ownership_info=st.lists(
            st.builds(ThreadOwnership, consumer_thread_id=TEXT, assigned_parts=OFFSETS), max_size=3
        ),
        brokers_info=BROKERS,
    ),
    st.builds(StartFetcherResponse, error_code=INT16S, consumer_id=TEXT),
)


@given(MESSAGES)
@settings(max_examples=100, deadline=None)
def test_every_message_survives_a_round_trip(message: Message) -> None:
    assert decode(encode_frame(message), type(message)) == message


@given(MESSAGES, st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_frame_is_refused_or_is_another_message(message: Message, data: Any) -> None:
    frame = bytearray(encode_frame(message))
    index = data.draw(st.integers(0, len(frame) - 1))
    frame[index] ^= data.draw(st.integers(1, 255))
    with suppress(MalformedError):
        assert encode_frame(decode(bytes(frame), type(message))) == frame


@given(MESSAGES, st.data())
@settings(max_examples=50, deadline=None)
def test_truncated_frame_is_refused(message: Message, data: Any) -> None:
    frame = encode_frame(message)
    with pytest.raises(MalformedError):
        decode(frame[: data.draw(st.integers(0, len(frame) - 1))], type(message))


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"", "4 bytes expected at byte 0"),
        (b"\x00\x00\x00\x09\x00\x05", "size 9 at byte 0"),
        (b"\xff\xff\xff\xff\x00\x05", "size -1 at byte 0"),
        (frame_of(""), "2 bytes expected at byte 4"),
        (frame_of("0004"), "unknown type 4 at byte 4"),
        (frame_of("0005 00"), "1 bytes left at byte 6"),
        (frame_of("0007 0000 ffff"), "string length -1 at byte 8 is negative"),
        (frame_of("0007 0000 0001 63 ffff"), "count -1 at byte 11 is negative"),
        (frame_of("0007 0000 0001 63 0001"), "2 bytes expected at byte 13"),
        (frame_of("0007 0000 0001 ff"), "string at byte 10 is not UTF-8"),
        (frame_of("0006 0000 0000 0000 02 0000 00000000"), "boolean 2 at byte 12"),
    ],
)
def test_malformed_frame_is_refused_with_its_position(frame: bytes, error: str) -> None:
    with pytest.raises(MalformedError, match=error):
        decode_at_broker(frame)


def test_request_of_the_coordinator_is_unknown_where_consumers_send_none() -> None:
    with pytest.raises(MalformedError, match="unknown type 5"):
        decode_at_consumer(encode_frame(ClusterMetadataRequest()))


def test_too_long_string_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_frame(StopFetcherRequest(consumer_id="c" * 0x8000))
