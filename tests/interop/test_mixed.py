"""All kinds of clients in one group with range."""

from __future__ import annotations

import pytest

from interop.checker import judge
from interop.client_kinds import KINDS
from interop.committed_offsets import committed_offsets
from interop.members import SHORT_SESSION_MS, Team, produce
from interop.peers.server import BrokerProcess
from interop.range_oracle import range_assignment
from interop.record_sets import Record, ends

pytestmark = pytest.mark.interop

RECORDS = 60

#: The first member leads and computes the assignment of all members.
LEADERS = ("java", "kafkajs")


@pytest.mark.parametrize("leader", LEADERS)
def test_all_kinds_share_a_topic_and_leave_in_turn(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], leader: str
) -> None:
    produced: set[Record] = set()
    with Team(broker.bootstrap, topic) as team:

        def settle() -> None:
            """Wait until members own what range gives them and consume new records."""
            team.wait_until_shared(partitions)
            names = [member.history.name for member in team.running]
            owned = {member.history.name: member.history.owned_now() for member in team.running}
            assert owned == range_assignment(
                {name: [topic] for name in names}, {topic: len(partitions)}
            )
            kind = KINDS[len(names) % len(KINDS)]
            produced.update(produce(kind, broker.bootstrap, topic, RECORDS, start=len(produced)))
            team.wait_until_consumed(produced)

        kinds = [leader, *(kind for kind in KINDS if kind != leader)]
        first = team.join(kinds[0], "m0", session_timeout_ms=SHORT_SESSION_MS)
        team.wait_until_shared(partitions)
        for place, kind in enumerate(kinds[1:], start=1):
            team.join(kind, f"m{place}")
        settle()

        first.kill()
        settle()
        for member in team.members[1:-1]:
            member.terminate()
            member.check_orderly_end()
            settle()
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(produced)
    assert judge(team.histories, produced) == []
