"""Groups that change their protocol online (KIP-848), with both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.conftest import BROKERS, OVERRIDES
from interop.consumer_groups.script import ConsumerGroupScript
from interop.members import fresh_name
from interop.oracle.connection import Connection
from interop.peers.server import BrokerProcess
from scenario_text import replay

pytestmark = pytest.mark.interop

SCRIPTS = Path(__file__).parent / "consumer_groups" / "migration"
POLICY = "group.consumer.migration.policy"


@pytest.fixture(scope="module", params=BROKERS)
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
