"""Java, librdkafka and Partage consumers in one group with cooperative-sticky (KIP-429)."""

from __future__ import annotations

import pytest

from interop.checker import Tenure, judge, repeated, tenures_of
from interop.client_kinds import COOPERATIVE
from interop.committed_offsets import committed_offsets, protocol_of
from interop.members import SHORT_SESSION_MS, Peer, Team, produce
from interop.peers.server import BrokerProcess
from interop.record_sets import Record, ends

pytestmark = pytest.mark.interop

RECORDS = 60


@pytest.mark.parametrize("leader", COOPERATIVE)
def test_members_join_leave_and_are_killed(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], leader: str
) -> None:
    """Records arrive all the time; the first member leads and is killed."""
    produced: set[Record] = set()
    with Team(broker.bootstrap, topic) as team:

        def settle() -> None:
            """Produce during the rebalance; wait until all records are read and all partitions
            owned.
            """
            wave = produce("confluent", broker.bootstrap, topic, RECORDS, start=len(produced))
            produced.update(wave)
            team.wait_until_shared(partitions)
            team.wait_until_consumed(produced)

        def join(kind: str, **options: object) -> Peer:
            how = {"assignor": "cooperative-sticky", **options}
            member = team.join(kind, f"m{len(team.members)}", **how)
            settle()
            return member

        first = join(leader, session_timeout_ms=SHORT_SESSION_MS)
        second, third = (join(kind) for kind in COOPERATIVE if kind != leader)
        moved = {p for p in partitions if len(tenures(team, p)) > 1}
        assert len(moved) < len(partitions), "partitions moved unnecessarily"
        assert repeated(team.histories) == set()

        second.terminate()
        second.check_orderly_end()
        settle()
        back = join(second.kind)
        assert repeated(team.histories) == set()

        first.kill()
        settle()
        # Only records that the killed member had not committed are read again.
        owned_last = {t.partition for t in tenures_of(first.history)[0] if t.until == killed(first)}
        assert {record[:2] for record in repeated(team.histories)} <= owned_last
        for member in (third, back):
            assert member.history.owned_now()
        team.wait_until_committed(produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(produced)
    assert judge(team.histories, produced) == []


@pytest.mark.parametrize("leader", ["java", "confluent"])
def test_draining_member_revokes_its_partitions_once(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], leader: str
) -> None:
    """With any leader, the others get no more partitions until the draining member revokes them."""
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


#: Double rolling bounce: the assignors of each member at first, in between and at last.
BOUNCES = ("range", "cooperative-sticky,range", "cooperative-sticky")


def test_group_upgrades_from_range_to_cooperative(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    """The double rolling bounce, without librdkafka, which rejects assignors of both protocols."""
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
