"""Three members of one kind share a topic, and continue after one of them is killed."""

from __future__ import annotations

import time

import pytest

from interop.checker import judge, repeated
from interop.client_kinds import KINDS
from interop.members import SHORT_SESSION_MS, Peer, Team, produce
from interop.peers.server import BrokerProcess
from interop.range_oracle import range_assignment

pytestmark = pytest.mark.interop

NAMES = ("m0", "m1", "m2")
RECORDS = 240

#: Partage uses its own default; the others use an assignor that all of them have.
ASSIGNORS = {"partage": "cooperative-sticky"}

#: Half of the killed member's session: its last heartbeat may be old on a busy machine.
SILENT_S = SHORT_SESSION_MS / 2000


@pytest.mark.parametrize("kind", KINDS)
def test_three_members_share_a_topic_and_survive_a_kill(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], kind: str
) -> None:
    assignor = ASSIGNORS.get(kind, "range")

    def check_shares(members: list[Peer]) -> None:
        owned = {member.history.name: member.history.owned_now() for member in members}
        if assignor == "range":
            assert owned == expected(tuple(owned), topic, len(partitions))
        else:
            assert {len(each) for each in owned.values()} == {len(partitions) // len(members)}

    with Team(broker.bootstrap, topic) as team:
        short = {"session_timeout_ms": SHORT_SESSION_MS}
        members = [
            team.join(kind, name, assignor=assignor, **(short if name == NAMES[0] else {}))
            for name in NAMES
        ]
        team.wait_until_shared(partitions)
        check_shares(members)
        before = produce(kind, broker.bootstrap, topic, RECORDS)
        team.wait_until_consumed(before)
        assert repeated(team.histories) == set()

        killed, *survivors = members
        killed.kill()
        began = time.monotonic()
        after = produce(kind, broker.bootstrap, topic, RECORDS, start=RECORDS)
        team.wait_until_shared(partitions)
        taken_over_after = time.monotonic() - began
        team.wait_until_consumed(before | after)
        check_shares(survivors)
        # A member that is silent for less than its session timeout stays in the group.
        assert taken_over_after > SILENT_S
        team.end()
    assert judge(team.histories, before | after) == []


def expected(names: tuple[str, ...], topic: str, size: int) -> dict[str, set[tuple[str, int]]]:
    """Return range by client id: a member id starts with it, so both sort alike."""
    return range_assignment({name: [topic] for name in names}, {topic: size})
