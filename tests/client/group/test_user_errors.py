"""Messages for user errors name the member or address concerned and the action to take."""

from __future__ import annotations

import socket

import pytest

from partage.client import BrokersUnreachableError
from partage.client.consumer import AssignmentFailedError, MemberFailedError
from partage.sync import Membership

from .test_group_members import shared, until


@pytest.fixture
def closed_port():
    """Address of a closed port."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_closed_port_raises_each_poll(closed_port):
    from partage.sync import Consumer

    with Consumer(closed_port, group_id="g", retry_backoff_ms=5) as one:
        one.subscribe(["t"])
        for _ in range(2):  # it is retried and raised again
            with pytest.raises(
                BrokersUnreachableError, match=f"{closed_port}.*Is one running there"
            ):
                until(lambda: False, one)


def test_membership_closed_port_raises(closed_port):
    with (
        Membership(closed_port, "g", "crew", {}, retry_backoff_ms=5) as member,
        pytest.raises(BrokersUnreachableError, match=closed_port),
    ):
        member.assignment(timeout_ms=30_000)


def test_member_with_foreign_metadata_is_named(member_of, servers, topic):
    """Its metadata cannot be decoded: the leader names the member and continues without it."""
    one = member_of()
    one.subscribe([topic])
    until(lambda: shared(one), one)
    group = one._engine.options.group_id
    stranger = Membership(
        servers,
        group,
        "consumer",
        b"\xff\xff no subscription",
        protocol="cooperative-sticky",
        assign=lambda meeting: {},
        client_id="stranger",
    )
    said = r"'stranger-.* is no consumer subscription"
    with stranger, pytest.raises(AssignmentFailedError, match=said):
        until(lambda: False, one)
    is_over = False
    while not is_over:
        try:
            until(lambda: shared(one), one)
            is_over = True
        except AssignmentFailedError:  # raised once more before the foreign member had left
            pass


def test_other_protocol_type_is_fatal(member_of, servers, topic):
    one = member_of()
    group = one._engine.options.group_id
    with Membership(servers, group, "crew", {}) as other:
        other.assignment(timeout_ms=30_000)
        one.subscribe([topic])
        with pytest.raises(MemberFailedError, match="The group has another protocol type"):
            until(lambda: False, one)
