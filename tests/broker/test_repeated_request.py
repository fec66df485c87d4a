"""Heartbeats that a client repeats on one connection: only the correlation id differs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from partage.broker.net.repeated_request import RepeatedRequest, is_repeated
from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat, RepeatedHeartbeat
from partage.coordinator.events import Heartbeat, Ticket
from partage.coordinator.replies import HeartbeatReply
from partage.model.errors import ErrorCode
from partage.testing import ThreadedBroker
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.metadata import METADATA
from polled_conditions import eventually

from .group_requests import heartbeat_request, join_and_sync, join_request
from .raw_client import RawClient
from .requests import create

FRAME = b"\0\x0c\0\4\0\0\0\7\0\3raw\0\2g\0\0\0\1\2m\0\0"


@pytest.fixture
def other(broker: ThreadedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def repeated() -> RepeatedRequest:
    return RepeatedRequest(FRAME, HEARTBEAT, 4, "raw", None)


def test_request_matches_frames_with_another_correlation_id_only() -> None:
    kept = repeated()
    assert kept.matches(FRAME)
    for position in range(len(FRAME)):
        changed = bytearray(FRAME)
        changed[position] ^= 1
        assert kept.matches(bytes(changed)) is (4 <= position < 8), position
    assert not kept.matches(FRAME[:-1])
    assert not kept.matches(FRAME + b"\0")


def test_request_matches_received_bytes_of_one_frame_only() -> None:
    kept = repeated()
    received = len(FRAME).to_bytes(4, "big") + FRAME
    assert kept.received_size == len(received)
    assert kept.is_received(received)
    for position in range(len(received)):
        changed = bytearray(received)
        changed[position] ^= 1
        assert kept.is_received(bytes(changed)) is (8 <= position < 12), position


def test_request_keeps_its_event_without_the_ticket() -> None:
    kept = repeated()
    assert kept.event(5, "ticket") is None
    event = Heartbeat(at_ms=1, reply_to=Ticket("t"), group_id="g", generation=1, member_id="m")
    kept.keep_event(event)
    assert kept.event(5, "u") == Heartbeat(
        at_ms=5, reply_to=Ticket("u"), group_id="g", generation=1, member_id="m"
    )
    assert kept._event.reply_to is None


def test_repeated_events_of_consumer_groups_have_the_same_original() -> None:
    message = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    kept = RepeatedRequest(FRAME, CONSUMER_GROUP_HEARTBEAT, 1, "raw", message)
    event = ConsumerGroupHeartbeat(
        at_ms=1,
        reply_to=Ticket("t"),
        group_id="g",
        member_id="m",
        generated_member_id="",
        member_epoch=1,
        client_id="c",
        client_host="/h",
    )
    kept.keep_event(event)
    later, last = kept.event(5, "u"), kept.event(6, "v")
    assert isinstance(later, RepeatedHeartbeat)
    assert isinstance(last, RepeatedHeartbeat)
    assert last.original is later.original
    assert later.original == msgspec.structs.replace(event, reply_to=Ticket(None))
    assert later.group_id == "g"
    assert later.complete() == msgspec.structs.replace(
        event, at_ms=5, reply_to=Ticket("u"), original=later.original
    )


def test_request_keeps_the_response_of_its_last_reply() -> None:
    kept = repeated()
    success, error = HeartbeatReply(ErrorCode.NONE), HeartbeatReply(ErrorCode.UNKNOWN_MEMBER_ID)
    assert kept.response(success, 7) is None
    kept.keep_response(success, [b"a", b"b"])
    # length, correlation id, no tagged fields, body
    assert kept.response(HeartbeatReply(ErrorCode.NONE), 7) == b"\0\0\0\7\0\0\0\7\0ab"
    assert kept.response(success, -1) == b"\0\0\0\7\xff\xff\xff\xff\0ab"
    assert kept.response(error, 7) is None
    kept.keep_response(error, [bytes(504)])
    assert kept.response(error, 7) is None
    assert kept.response(success, 7) is None
    kept.keep_response(error, [bytes(503)])
    assert kept.response(error, 7) == b"\0\0\1\xfc\0\0\0\7" + bytes(504)


def test_connection_keeps_short_heartbeats_only() -> None:
    assert is_repeated(HEARTBEAT.key, bytes(512))
    assert is_repeated(CONSUMER_GROUP_HEARTBEAT.key, FRAME)
    assert not is_repeated(HEARTBEAT.key, bytes(513))
    assert not is_repeated(METADATA.key, FRAME)


# On a broker.


def test_repeated_heartbeat_gets_the_current_state_of_its_group(
    raw: RawClient, other: RawClient
) -> None:
    mine = join_and_sync(raw, "g")
    request = heartbeat_request("g", mine)
    assert [raw.request(HEARTBEAT, request).error_code for _ in range(3)] == [0, 0, 0]
    theirs = other.request(JOIN_GROUP, join_request("g"))
    other.send(JOIN_GROUP, join_request("g", theirs.member_id))
    rebalancing = ErrorCode.REBALANCE_IN_PROGRESS
    eventually(lambda: raw.request(HEARTBEAT, request).error_code == rebalancing)
    assert raw.request(HEARTBEAT, request).error_code == rebalancing


def test_same_bytes_in_another_version_get_a_response_of_that_version(raw: RawClient) -> None:
    request = heartbeat_request("g", join_and_sync(raw, "g"))
    for version in (0, 1, 1, 0, 0, 1):  # requests of both versions have the same fields
        assert raw.request(HEARTBEAT, request, version).error_code == 0


def test_pipelined_repeated_heartbeats_are_all_answered(raw: RawClient) -> None:
    request = heartbeat_request("g", join_and_sync(raw, "g"))
    for _ in range(50):
        raw.send(HEARTBEAT, request)
    assert [raw.receive().error_code for _ in range(50)] == [0] * 50


def test_long_heartbeats_are_served(raw: RawClient) -> None:
    request = heartbeat_request("g" * 600, join_and_sync(raw, "g" * 600))
    assert [raw.request(HEARTBEAT, request).error_code for _ in range(3)] == [0, 0, 0]


def consumer_heartbeat(raw: RawClient, version: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id="g", **fields)
    return raw.request(CONSUMER_GROUP_HEARTBEAT, request, version)


def test_equal_joins_without_member_ids_create_two_members(raw: RawClient) -> None:
    create(raw, "t", 2)
    joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    fields = {"member_id": "", "member_epoch": 0, "topic_partitions": [], **joining}
    replies = [consumer_heartbeat(raw, 0, **fields) for _ in range(2)]
    assert [reply.error_code for reply in replies] == [0, 0]
    assert len({reply.member_id for reply in replies}) == 2


def test_repeated_consumer_heartbeat_follows_epoch_and_assignment(
    raw: RawClient, other: RawClient
) -> None:
    create(raw, "t", 2)
    joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    fields = {"member_epoch": 0, "topic_partitions": [], **joining}
    first = consumer_heartbeat(raw, 1, member_id="A", **fields)
    same = {"member_id": "A", "member_epoch": first.member_epoch}
    unchanged = [consumer_heartbeat(raw, 1, **same) for _ in range(3)]
    assert [(each.member_epoch, each.assignment) for each in unchanged] == [
        (first.member_epoch, None)
    ] * 3
    consumer_heartbeat(other, 1, member_id="B", **fields)
    assigned = []

    def has_new_assignment() -> bool:
        assigned.append(consumer_heartbeat(raw, 1, **same).assignment)
        return assigned[-1] is not None

    eventually(has_new_assignment)
    assert consumer_heartbeat(raw, 1, **same).assignment is None
    consumer_heartbeat(raw, 1, member_id="A", member_epoch=-1)
    gone = [consumer_heartbeat(raw, 1, **same).error_code for _ in range(2)]
    assert gone == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
