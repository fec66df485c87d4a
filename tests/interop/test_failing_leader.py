"""A Partage leader whose assignor raises, in a group with Java's consumer."""

from __future__ import annotations

import threading

import pytest

from interop.members import Team, fresh_name
from interop.peers.server import BrokerProcess
from partage.assignors import Range
from partage.client.consumer import AssignmentFailedError
from partage.sync import Consumer, GenerationMembers, Membership
from polled_conditions import PATIENCE_S

pytestmark = pytest.mark.interop

PATIENCE_MS = int(PATIENCE_S * 1000)


class Failing(Range):
    """Range that raises if the group has another member, until ``is_mended`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_mended = threading.Event()

    def assign(self, members, topics):
        if len(members) > 1 and not self.is_mended.is_set():
            raise KeyError("oops")
        return super().assign(members, topics)


def test_failed_assignment_is_reported_to_all_members(broker: BrokerProcess) -> None:
    """With coordinators that accept the leader's error and with others."""
    is_mended = threading.Event()

    def assign(meeting: GenerationMembers) -> dict[str, object]:
        if len(meeting.members) > 1 and not is_mended.is_set():
            raise KeyError("oops")
        return {peer.member_id: len(meeting.members) for peer in meeting.members}

    def joined() -> Membership:
        return Membership(broker.bootstrap, fresh, "crew", {}, assign=assign)

    fresh = fresh_name("group")
    with joined() as leader:
        assert leader.assignment(timeout_ms=PATIENCE_MS).state == 1
        with joined() as other:
            for member in (leader, other):
                with pytest.raises(AssignmentFailedError, match="KeyError: 'oops'"):
                    member.assignment(after=1, timeout_ms=PATIENCE_MS)
            is_mended.set()
            for member in (leader, other):
                assert state_of(member, 2) == 2


def state_of(member: Membership, wanted: object) -> object:
    """Return the member's state when it equals ``wanted``, or after a minute without a change."""
    last = -1
    while True:
        try:
            standing = member.assignment(after=last, timeout_ms=PATIENCE_MS)
        except AssignmentFailedError:
            continue
        last = standing.generation
        if standing.state == wanted:
            return standing.state


def test_failing_leader_ends_no_member_and_recovers(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    failing = Failing()
    with (
        Team(broker.bootstrap, topic) as team,
        Consumer(
            broker.bootstrap, group_id=team.group, partition_assignment_strategy=[failing]
        ) as leader,
    ):
        heard: list[str] = []

        def poll() -> None:
            try:
                leader.poll(20)
            except AssignmentFailedError as error:
                heard.append(str(error))

        leader.subscribe([topic])
        while leader.assignment() != partitions:
            poll()
        other = team.join("java", "m0")

        def failed() -> bool:
            poll()
            return len(heard) >= 3

        team.wait_until(failed, "the leader fails for the third time", PATIENCE_S)
        assert set(heard) == {"KeyError: 'oops'"}
        failing.is_mended.set()

        def shared() -> bool:
            poll()
            mine, its = leader.assignment(), other.history.owned_now()
            return mine | its == partitions and not mine & its and len(mine) == len(its)

        team.wait_until(shared, "the two share the topic", PATIENCE_S)
        other.terminate()
        other.check_orderly_end()
