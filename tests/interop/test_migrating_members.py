"""Real clients with both group protocols in one group (KIP-848), with both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from group_descriptions import describe_group
from interop.checker import judge, repetitions
from interop.committed_offsets import committed_offsets
from interop.conftest import BROKERS, OVERRIDES, grouped_brokers
from interop.group_configs import shorten_sessions
from interop.members import SHORT_SESSION_MS, Peer, Team
from interop.peers.server import BrokerProcess
from interop.record_sets import ends
from interop.settling import Settling
from polled_conditions import PATIENCE_S

pytestmark = pytest.mark.interop

#: Each kind with the classic protocol, and a kind with the consumer protocol that joins it.
PAIRS = (
    ("confluent", "franz-go"),
    ("java", "partage"),
    ("kafka_python", "java"),
    ("aiokafka", "confluent"),
    ("kafkajs", "partage"),
    ("franz-go", "java"),
    ("partage", "confluent"),
    ("kcat", "partage"),
)

#: Assignor, three classic members, the members that replace them, and those of the rollback.
UPGRADES = (
    (
        "range",
        ("kafka_python", "aiokafka", "kafkajs"),
        ("java", "confluent", "partage"),
        ("kafkajs", "kafka_python", "aiokafka"),
    ),
    (
        "cooperative-sticky",
        ("confluent", "java", "partage"),
        ("partage", "franz-go", "java"),
        ("java", "partage", "confluent"),
    ),
)


@pytest.fixture(scope="module", params=grouped_brokers("migrating"))
def broker(request: pytest.FixtureRequest, peers: None) -> Iterator[BrokerProcess]:
    """A broker on disk that allows upgrades and downgrades."""
    overrides = {**OVERRIDES, "group.consumer.migration.policy": "bidirectional"}
    with BROKERS[request.param](overrides=overrides) as running:
        yield running


class MigratingGroup(Settling):
    """A group whose members have one or the other protocol."""

    def join_classic(self, kind: str, assignor: str = "range", **options: object) -> Peer:
        """Start a member with the classic protocol, and wait until the group is settled."""
        return self.join(kind, group_protocol="classic", assignor=assignor, **options)

    def leave_at_last_epoch(self, member: Peer) -> None:
        """Stop a member after all members have reached the epoch of the group.

        If it is the last one with the consumer protocol, both brokers refuse the commits of a
        classic member that has an earlier epoch (script bidirectional.txt). The next reader of its
        partitions then reads records again.
        """
        self.wait_for_last_epoch()
        self.leave(member)

    def wait_for_last_epoch(self) -> None:
        """Wait until all members have reached the epoch of the group."""
        self.team.wait_until(self._is_stable, "all members reach the last epoch", PATIENCE_S)

    def _is_stable(self) -> bool:
        return describe_group(self.team.bootstrap, self.team.group).state == "Stable"


def group_type(team: Team) -> str:
    """Return ``CLASSIC`` or ``CONSUMER``: the protocol of the group at the moment."""
    return (describe_group(team.bootstrap, team.group).type or "").upper()


@pytest.mark.parametrize(
    ("assignor", "old", "new", "rolled_back"), UPGRADES, ids=[each[0] for each in UPGRADES]
)
def test_rolling_upgrade_and_rollback_lose_and_repeat_nothing(
    broker: BrokerProcess,
    topic: str,
    partitions: set[tuple[str, int]],
    assignor: str,
    old: tuple[str, ...],
    new: tuple[str, ...],
    rolled_back: tuple[str, ...],
) -> None:
    with Team(broker.bootstrap, topic) as team:
        group = MigratingGroup(team, partitions)
        for kind in old:
            group.join_classic(kind, assignor)
        for kind in new:
            group.leave(team.running[0])
            # Apache Kafka converts no group whose assignments have user data, and those of a
            # librdkafka leader may have it. So another member must lead first.
            group.settle()
            group.join(kind)
            assert group_type(team) == "CONSUMER"
        assert repetitions(team.histories) == []
        team.wait_until_committed(group.produced)

        for number, kind in enumerate(rolled_back, start=1):
            group.leave_at_last_epoch(team.running[0])
            group.join_classic(kind, assignor)
            is_last = number == len(rolled_back)
            assert group_type(team) == ("CLASSIC" if is_last else "CONSUMER")
        assert repetitions(team.histories) == []
        team.wait_until_committed(group.produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(group.produced)
    assert judge(team.histories, group.produced) == []


@pytest.mark.parametrize(("classic", "consumer"), PAIRS, ids=[each[0] for each in PAIRS])
def test_mixed_group_survives_members_that_leave_and_are_killed(
    broker: BrokerProcess,
    topic: str,
    partitions: set[tuple[str, int]],
    classic: str,
    consumer: str,
) -> None:
    with Team(broker.bootstrap, topic) as team:
        group = MigratingGroup(team, partitions)
        first = group.join_classic(classic, session_timeout_ms=SHORT_SESSION_MS)
        upgrading = group.join(consumer)
        second = group.join_classic(classic)
        assert group_type(team) == "CONSUMER"

        group.leave_at_last_epoch(upgrading)
        group.settle()
        assert group_type(team) == "CLASSIC"
        returned = group.join(consumer)
        assert repetitions(team.histories) == []

        first.kill()
        group.settle()
        assert taken_over_at(first, [second, returned]) > first_expiry(first)
        group.join_classic(classic)
        assert group_type(team) == "CONSUMER"
        team.wait_until_committed(group.produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(group.produced)
    assert judge(team.histories, group.produced) == []


def test_killed_consumer_member_leaves_a_classic_group(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    with Team(broker.bootstrap, topic) as team:
        group = MigratingGroup(team, partitions)
        shorten_sessions(broker.bootstrap, team.group)
        first = group.join_classic("confluent")
        killed = group.join("franz-go")
        second = group.join_classic("kafka_python")
        assert group_type(team) == "CONSUMER"
        group.wait_for_last_epoch()

        killed.kill()
        group.settle()
        assert taken_over_at(killed, [first, second]) > first_expiry(killed)
        assert group_type(team) == "CLASSIC"
        group.join("java")
        assert group_type(team) == "CONSUMER"
        team.wait_until_committed(group.produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(group.produced)
    assert judge(team.histories, group.produced) == []


def first_expiry(killed: Peer) -> float:
    """Return a time at which the session has not expired, with a late last heartbeat."""
    assert killed.history.killed_at is not None
    return killed.history.killed_at + SHORT_SESSION_MS / 2000


def taken_over_at(killed: Peer, others: list[Peer]) -> float:
    """Return the first time at which another member got a partition of a killed one."""
    assert killed.history.killed_at is not None
    orphans = killed.history.owned_now()
    return min(
        event["at"]
        for member in others
        for event in member.of("assigned")
        if event["at"] > killed.history.killed_at
        and orphans & {(name, number) for name, number in event["partitions"]}
    )


def test_static_members_keep_their_partitions_in_a_rolling_upgrade(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    with Team(broker.bootstrap, topic) as team:
        group = MigratingGroup(team, partitions)
        old = [group.join_classic("confluent", instance_id=f"i-{number}") for number in range(2)]
        for number, (kind, member) in enumerate(zip(("partage", "java"), old, strict=True)):
            owned = member.history.owned_now()
            group.leave(member)
            new = group.join(kind, instance_id=f"i-{number}")
            assert new.history.owned_now() == owned
            assert group_type(team) == "CONSUMER"
        team.wait_until_committed(group.produced)
        team.end()
        assert repetitions(team.histories) == []
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(group.produced)
    assert judge(team.histories, group.produced) == []


def test_mixed_group_goes_on_after_kill_of_the_broker(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    with Team(broker.bootstrap, topic) as team:
        # No session may expire while the broker cannot be reached. The group would become a
        # classic group, and the member of Java would end.
        group = MigratingGroup(team, partitions)
        classic = group.join_classic("confluent", "cooperative-sticky")
        group.join_classic("partage", "cooperative-sticky")
        group.leave(classic)
        group.join("java")
        team.wait_until_committed(group.produced)

        broker.kill()
        broker.start()
        group.settle()
        assert group_type(team) == "CONSUMER"
        group.leave(team.running[0])
        group.join("confluent")
        team.wait_until_committed(group.produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(group.produced)
    assert judge(team.histories, group.produced) == []
