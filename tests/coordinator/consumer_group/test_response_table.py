"""The documented responses of consumer groups, each compared with the response of a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partage.coordinator.consumer_group.response_table import CONSUMER_COLUMNS, CONSUMER_RESPONSES
from partage.coordinator.events import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Protocol,
    Sync,
    TransactionalCommit,
)
from partage.model.errors import ErrorCode

from .harness import ConsumerHarness, joining
from .mixed_group import subscription

OFFSETS = (OffsetToCommit(topic="t", partition=0, offset=1),)
MEMBER: dict[str, Any] = {"member_id": "A", "generation": 2}
TXN: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "offsets": OFFSETS}


def send(harness: ConsumerHarness, event_type: Callable[..., Any], **fields: object) -> Any:
    """Send a request and return its reply; None if it has none yet."""
    ticket = harness.ticket()
    base = {"at_ms": harness.now_ms, "reply_to": ticket, "group_id": "g"}
    harness.handle(event_type(**base, **fields))
    return harness.replies.get(ticket)


JOIN: dict[str, Any] = {
    "member_id": "",
    "generated_member_id": "Q",
    "client_id": "q",
    "client_host": "/q",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": (Protocol("range", subscription("t")),),
}

REQUESTS: dict[str, Callable[[ConsumerHarness], Any]] = {
    "ConsumerGroupHeartbeat, epoch 0": lambda h: h.ask("A", 0, instance_id="j", **joining("t")),
    "ConsumerGroupHeartbeat, epoch of a member": lambda h: h.ask("A", 2),
    "ConsumerGroupHeartbeat, epoch -1": lambda h: h.ask("A", -1),
    "ConsumerGroupHeartbeat, epoch -2": lambda h: h.ask("A", -2, instance_id="i"),
    "ConsumerGroupDescribe": lambda h: h.describe(),
    "OffsetCommit, with member and epoch": lambda h: send(h, Commit, offsets=OFFSETS, **MEMBER),
    "OffsetCommit, without member and epoch": lambda h: send(h, Commit, offsets=OFFSETS),
    "TxnOffsetCommit, with member and epoch": lambda h: send(
        h, TransactionalCommit, **TXN, **MEMBER
    ),
    "TxnOffsetCommit, without member and epoch": lambda h: send(h, TransactionalCommit, **TXN),
    "OffsetFetch, with member and epoch": lambda h: send(
        h, FetchOffsets, partitions=(("t", 0),), member_id="A", member_epoch=2
    ),
    "OffsetFetch, without member and epoch": lambda h: send(
        h, FetchOffsets, partitions=(("t", 0),)
    ),
    "OffsetDelete": lambda h: send(h, DeleteOffsets, partitions=(("u", 0),)),
    "DeleteGroups": lambda h: send(h, DeleteGroup),
    "DescribeGroups": lambda h: send(h, DescribeGroup),
    "JoinGroup, no member id": lambda h: send(h, Join, must_rejoin_with_id=False, **JOIN),
    "SyncGroup": lambda h: send(h, Sync, **MEMBER),
    "Heartbeat": lambda h: send(h, Heartbeat, **MEMBER),
    "LeaveGroup": lambda h: send(h, Leave, members=(LeavingMember(member_id="A"),)),
}


def error_of(reply: Any) -> ErrorCode:
    """Return the error of a reply; a parked request has none."""
    if reply is None:
        return ErrorCode.NONE
    errors = getattr(reply, "errors", ())
    return errors[0] if errors else reply.error  # type: ignore[no-any-return]


@pytest.mark.parametrize("request_name", CONSUMER_RESPONSES)
@pytest.mark.parametrize("column", range(len(CONSUMER_COLUMNS)))
def test_documented_response_is_the_response(request_name: str, column: int) -> None:
    harness = ConsumerHarness()
    if column > 0:
        harness.join("A", "t", instance_id="i")
    if column == 1:
        harness.leave("A")
    ask = REQUESTS[request_name]
    first_word = CONSUMER_RESPONSES[request_name][column].split()[0].rstrip(",;:")
    assert error_of(ask(harness)) == ErrorCode.__members__.get(first_word, ErrorCode.NONE)
