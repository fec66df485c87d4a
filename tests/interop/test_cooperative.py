"""Java's, librdkafka's and our consumers in one group under cooperative-sticky (KIP-429)."""

from __future__ import annotations

import pytest

from interop.checker import Tenure, judge, repeated, tenures_of
from interop.committed import committed_offsets, protocol_of
from interop.kinds import COOPERATIVE
from interop.members import Peer, Team, produce
from interop.peers.server import BrokerProcess
from interop.record_sets import Record, ends

pytestmark = pytest.mark.interop

RECORDS = 60


@pytest.mark.parametrize("leader", COOPERATIVE)
def test_members_come_and_go_and_are_killed(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], leader: str
) -> None:
    """Records are written all the while; who was there first leads, and is the one to be killed."""
    produced: set[Record] = set()
    with Team(broker.bootstrap, topic) as team:

        def settle() -> None:
            """Write while the group rebalances; everything is read, and every partition owned."""
            wave = produce("confluent", broker.bootstrap, topic, RECORDS, start=len(produced))
            produced.update(wave)
            team.wait_until_shared(partitions)
            team.wait_until_consumed(produced)

        def join(kind: str) -> Peer:
            member = team.join(kind, f"m{len(team.members)}", assignor="cooperative-sticky")
            settle()
            return member

        first = join(leader)
        second, third = (join(kind) for kind in COOPERATIVE if kind != leader)
        moved = {p for p in partitions if len(tenures(team, p)) > 1}
        assert len(moved) < len(partitions), "what need not move stays where it is"
        assert repeated(team.histories) == set()

        second.terminate()
        second.check_orderly_end()
        settle()
        back = join(second.kind)
        assert repeated(team.histories) == set()

        first.kill()
        settle()
        # What the killed one had not committed is read again, nothing else.
        owned_last = {t.partition for t in tenures_of(first.history)[0] if t.until == killed(first)}
        assert {record[:2] for record in repeated(team.histories)} <= owned_last
        for member in (third, back):
            assert member.history.owned_now()
        team.wait_until_committed(produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(produced)
    assert judge(team.histories, produced) == []


@pytest.mark.parametrize("leader", ["java", "confluent"])
def test_a_member_hands_over_what_others_are_ready_to_take(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], leader: str
) -> None:
    """Whoever leads; the others own nothing more until the one that drains has revoked it."""
    produced: set[Record] = set()
    slow = {"heartbeat_interval_ms": 1500}
    with Team(broker.bootstrap, topic) as team:

        def settle() -> None:
            wave = produce("confluent", broker.bootstrap, topic, RECORDS, start=len(produced))
            produced.update(wave)
            team.wait_until_shared(partitions)
            team.wait_until_consumed(produced)

        def join(kind: str, **options: object) -> Peer:
            how = {"assignor": "cooperative-sticky", **slow, **options}
            member = team.join(kind, f"m{len(team.members)}", **how)
            settle()
            return member

        join(leader)
        going = join("partage", drains=1)
        owned = going.history.owned_now()
        assert owned
        going.terminate()
        going.check_orderly_end()
        settle()
        assert [len(revoked["partitions"]) for revoked in going.of("revoked")] == [len(owned)]
        team.wait_until_committed(produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(produced)
    assert judge(team.histories, produced) == []
    assert repeated(team.histories) == set()


def tenures(team: Team, partition: tuple[str, int]) -> list[Tenure]:
    return [
        tenure
        for history in team.histories
        for tenure in tenures_of(history)[0]
        if tenure.partition == partition
    ]


def killed(member: Peer) -> float | None:
    return member.history.killed_at


#: The double rolling bounce: what each member offers at first, in between and at last.
BOUNCES = ("range", "cooperative-sticky,range", "cooperative-sticky")


def test_a_group_goes_from_range_to_cooperative_without_a_stop(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    """The double rolling bounce. librdkafka refuses assignors of both protocols, and stays away."""
    produced: set[Record] = set()
    with Team(broker.bootstrap, topic) as team:

        def start(kind: str, assignor: str) -> Peer:
            member = team.join(kind, f"m{len(team.members)}", assignor=assignor)
            wave = produce("confluent", broker.bootstrap, topic, RECORDS, start=len(produced))
            produced.update(wave)
            team.wait_until_shared(partitions)
            return member

        members = [start(kind, BOUNCES[0]) for kind in ("java", "partage", "partage")]
        for assignor in BOUNCES[1:]:
            for place, member in enumerate(list(members)):
                member.terminate()
                member.check_orderly_end()
                members[place] = start(member.kind, assignor)
        team.wait_until_consumed(produced)
        assert protocol_of(broker.bootstrap, team.group) == "cooperative-sticky"
        team.wait_until_committed(produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(produced)
    assert judge(team.histories, produced) == []
    assert repeated(team.histories) == set()
