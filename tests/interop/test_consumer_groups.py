"""Groups with the consumer protocol (KIP-848), with both brokers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from interop.checker import judge, repeated
from interop.committed_offsets import committed_offsets
from interop.conftest import PARTITIONS
from interop.consumer_groups.script import ConsumerGroupScript
from interop.group_configs import shorten_sessions
from interop.members import SESSION_MS, Team, fresh_name, produce
from interop.oracle.connection import Connection
from interop.peers.server import BrokerProcess
from interop.peers.tools import tool
from interop.record_sets import ends
from interop.settling import Settling
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.testing import ThreadedBroker
from polled_conditions import eventually
from scenario_text import replay

pytestmark = pytest.mark.interop

SCRIPTS = sorted((Path(__file__).parent / "consumer_groups").glob("*.txt"))
#: Kinds of clients that have the protocol.
KINDS = ("confluent", "java", "franz-go", "partage")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_gives_stored_responses(broker: BrokerProcess, path: Path) -> None:
    """The files have Apache Kafka's responses; ours are the same."""
    with Connection(broker.bootstrap, "script") as connection:
        expected = path.read_text()
        script = ConsumerGroupScript(connection, fresh_name("script") + "-")
        actual = replay(expected, script.run)
    assert actual == expected


@pytest.mark.parametrize("kind", KINDS)
def test_members_join_leave_and_are_killed(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], kind: str
) -> None:
    check_group(broker, topic, partitions, kind, KINDS[KINDS.index(kind) - 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broker", ["partage"], indirect=True)
def test_members_of_one_kind_join_leave_and_are_killed(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], kind: str
) -> None:
    check_group(broker, topic, partitions, kind, kind)


def check_group(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], kind: str, other: str
) -> None:
    """Let members of two kinds join, leave and be killed; no record is lost."""
    with Team(broker.bootstrap, topic) as team:
        group = Settling(team, partitions)
        first = group.join(kind)
        second = group.join(other)
        group.join(kind)
        assert {len(each.history.owned_now()) for each in team.members} == {4}
        assert repeated(team.histories) == set()

        group.leave(second)
        group.settle()
        shorten_sessions(broker.bootstrap, team.group)
        # Each member gives up partitions, so it sends a heartbeat after the change.
        group.join(other)
        assert repeated(team.histories) == set()

        first.kill()
        group.settle()
        team.wait_until_committed(group.produced)
        team.end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(group.produced)
    assert judge(team.histories, group.produced) == []


def test_static_member_returns_to_its_partitions(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    with Team(broker.bootstrap, topic) as team:
        group = Settling(team, partitions)
        first = group.join("confluent", instance_id="i-0")
        group.join("confluent", instance_id="i-1")
        group.join("partage", instance_id="i-2")  # the group is full
        owned = first.history.owned_now()
        group.leave(first)
        back = group.join("confluent", instance_id="i-0")
        assert back.history.owned_now() == owned
        team.end()
    assert judge(team.histories, group.produced) == []


@pytest.mark.partage_broker(
    {"group.initial.rebalance.delay.ms": 0, "group.consumer.session.timeout.ms": SESSION_MS}
)
def test_java_consumer_sends_topic_ids(peers: None, partage_broker: ThreadedBroker) -> None:
    """It sends OffsetCommit and OffsetFetch v10, and resumes after its commits."""
    versions: dict[str, set[int]] = {}

    def record_version(handler: Handler) -> Handler:
        def handle(inbound: InboundRequest) -> None:
            versions.setdefault(inbound.api.name, set()).add(inbound.version)
            handler(inbound)

        return handle

    partage_broker.create_topic("t", partitions=2)
    partage_broker.broker.server.intercept(record_version)
    partitions = {("t", 0), ("t", 1)}
    with Team(partage_broker.bootstrap_servers, "t") as team:
        group = Settling(team, partitions)
        first = group.join("java")
        team.wait_until_committed(group.produced)
        group.leave(first)
        group.join("java")
        team.end()
    assert repeated(team.histories) == set()
    assert judge(team.histories, group.produced) == []
    assert versions["OffsetCommit"] == {10}
    assert 10 in versions["OffsetFetch"]


def test_tools_describe_members_and_state(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    at = broker.bootstrap
    with Team(at, topic) as team:
        group = Settling(team, partitions)
        group.join("confluent")
        group.join("confluent")
        listed = tool("groups", at, "--list", "--group-type", "consumer")
        assert re.search(rf"{team.group}\s+Consumer\s+consumer", listed)
        state = tool("consumer-groups", at, "--describe", "--group", team.group, "--state")
        assert re.search(rf"{team.group}\s.*\suniform\s+Stable\s+2\b", state)
        members = tool(
            *("consumer-groups", at, "--describe", "--group", team.group),
            *("--members", "--verbose"),
        )
        assert sorted(re.findall(r"\s(m[01])\s+(\d+)", members)) == [("m0", "6"), ("m1", "6")]
        refused = tool("consumer-groups", at, "--delete", "--group", team.group)
        assert "The group is not empty" in refused
        team.end()
    tool("consumer-groups", at, "--delete", "--group", team.group)
    assert team.group not in tool("consumer-groups", at, "--list").split()


def test_tool_describes_lag_and_epochs(broker: BrokerProcess, topic: str) -> None:
    at, group = broker.bootstrap, fresh_name("lag")
    found = ends(produce("confluent", at, topic, 60))
    end_offsets = {number: found.get((topic, number), 0) for number in range(PARTITIONS)}
    committed = {number: min(number, end_offsets[number]) for number in range(PARTITIONS - 1)}
    last = PARTITIONS - 1  # without a commit

    def describe(*options: str) -> list[list[str]]:
        described = tool("consumer-groups", at, "--describe", "--group", group, *options)
        return [line.split() for line in described.splitlines() if line.startswith(group)]

    def commits(*member: str) -> list[list[str]]:
        """Return the row of each partition with a commit."""
        return [
            [group, topic, *map(str, (number, offset, end, end - offset)), *member]
            for number, offset in committed.items()
            for end in [end_offsets[number]]
        ]

    consumer = Consumer(
        {
            "bootstrap.servers": at,
            "group.id": group,
            "group.protocol": "consumer",
            "client.id": "m0",
            "enable.auto.commit": False,
        }
    )

    def has_assignment() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == PARTITIONS

    try:
        consumer.subscribe([topic])
        eventually(has_assignment)
        offsets = [TopicPartition(topic, *commit) for commit in committed.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        member = [consumer.memberid(), "/127.0.0.1", "m0"]
        rest = [group, topic, str(last), "-", str(end_offsets[last]), "-", *member]
        assert describe() == [*commits(*member), rest]
        ((*_, strategy, state, epoch, target_epoch, count),) = describe("--state", "--verbose")
        assert (strategy, state, epoch, target_epoch, count) == ("uniform", "Stable", "2", "2", "1")
        every = f"{topic}:{','.join(map(str, range(PARTITIONS)))}"
        assert describe("--members", "--verbose") == [
            [group, *member, str(PARTITIONS), "2", every, "2", every]
        ]
    finally:
        consumer.close()
    assert describe() == commits("-", "-", "-")
