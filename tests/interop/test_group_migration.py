"""Groups that change their protocol online (KIP-848), with both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.group_requests import describe_group, leave
from broker.raw_client import RawClient
from broker.requests import NOW_MS, produce
from interop.conftest import BROKERS, OVERRIDES, grouped_brokers
from interop.consumer_groups.script import ConsumerGroupScript
from interop.members import fresh_name
from interop.oracle.connection import Connection
from interop.peers.kafka import ApacheKafka
from interop.peers.server import BrokerProcess
from partage.coordinator.records import GroupRecord, MemberRecord
from partage.store.shard_log import encode_records, shard_of
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from polled_conditions import eventually
from scenario_text import replay

pytestmark = pytest.mark.interop

SCRIPTS = Path(__file__).parent / "consumer_groups" / "migration"
POLICY = "group.consumer.migration.policy"
#: The client id with which Apache Kafka accepts records for its internal topics.
ADMIN_CLIENT = "__admin_client"
FIND = FindCoordinatorRequest(key="g")


@pytest.fixture(scope="module", params=grouped_brokers("migration"))
def migrating_broker(request: pytest.FixtureRequest, peers: None) -> Iterator[BrokerProcess]:
    """A broker that allows upgrades and downgrades, which is the default."""
    overrides = {name: value for name, value in OVERRIDES.items() if name != POLICY}
    with BROKERS[request.param](overrides=overrides) as running:
        yield running


def check_script(broker: BrokerProcess, name: str) -> None:
    """The file has Apache Kafka's responses; those of the broker are the same."""
    expected = (SCRIPTS / f"{name}.txt").read_text()
    with Connection(broker.bootstrap, "script") as connection:
        script = ConsumerGroupScript(connection, fresh_name("script") + "-")
        actual = replay(expected, script.run)
    assert actual == expected


@pytest.mark.parametrize("name", ["bidirectional", "static"])
def test_migration_script_gives_stored_responses(
    migrating_broker: BrokerProcess, name: str
) -> None:
    check_script(migrating_broker, name)


@pytest.mark.parametrize("policy", ["upgrade", "downgrade"])
@pytest.mark.parametrize("kind", BROKERS)
def test_policy_script_gives_stored_responses(peers: None, kind: str, policy: str) -> None:
    # A consumer group may have three members, a classic group one.
    with BROKERS[kind](overrides={**OVERRIDES, POLICY: policy, "group.max.size": "1"}) as broker:
        check_script(broker, policy)


def test_apache_kafka_loads_group_record_without_leader(peers: None) -> None:
    """Our broker stores a downgraded group without a leader until the next join phase."""
    members = tuple(
        MemberRecord(
            member_id=member_id,
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=45_000,
            subscription=encode_subscription(Subscription(topics=["t"])),
            assignment=encode_assignment(Assignment(assigned_partitions=[])),
        )
        for member_id in ("a", "b")
    )
    record = GroupRecord(
        group_id="g",
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader=None,
        since_ms=NOW_MS,
        members=members,
    )
    with ApacheKafka() as broker:
        with RawClient(broker.bootstrap, client_id=ADMIN_CLIENT) as raw:
            eventually(lambda: not raw.request(FIND_COORDINATOR, FIND, 2).error_code)
            (batch,) = encode_records([record], NOW_MS)
            shard = shard_of("g", 8)
            eventually(
                lambda: not produce(raw, "__consumer_offsets", batch, partition=shard).error_code
            )
        broker.stop()
        broker.start()
        with RawClient(broker.bootstrap) as raw:
            expected = {"a", "b"}
            eventually(lambda: {m.member_id for m in describe_group(raw, "g").members} == expected)
            heartbeat = HeartbeatRequest(group_id="g", generation_id=7, member_id="a")
            # It starts no join phase, unlike our broker.
            assert raw.request(HEARTBEAT, heartbeat).error_code == 0
            for member_id in ("a", "b"):
                assert leave(raw, "g", member_id) == 0
            assert describe_group(raw, "g").group_state == "Empty"


@pytest.mark.parametrize("kind", BROKERS)
def test_mixed_group_keeps_its_members_when_migration_is_disabled(peers: None, kind: str) -> None:
    """The line ``restart`` restarts the broker with the policy ``disabled``."""
    expected = (SCRIPTS / "disabled.txt").read_text()
    overrides = {**OVERRIDES, POLICY: "bidirectional"}
    with BROKERS[kind](overrides=overrides) as broker, ExitStack() as connections:

        def connect() -> Connection:
            return connections.enter_context(Connection(broker.bootstrap, "script"))

        script = ConsumerGroupScript(connect(), fresh_name("script") + "-")

        def run(line: str) -> list[str]:
            if line != "restart":
                return script.run(line)
            broker.stop()
            broker.override(POLICY, "disabled")
            broker.start()
            script.reconnect(connect())
            return []

        assert replay(expected, run) == expected
