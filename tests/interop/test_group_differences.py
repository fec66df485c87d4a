"""The differences of consumer groups: both brokers give the responses that are listed for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.conftest import BROKERS, OVERRIDES, grouped_brokers
from interop.consumer_groups import differences
from interop.consumer_groups.script import ConsumerGroupScript
from interop.members import fresh_name
from interop.oracle.connection import Connection
from interop.peers.server import BrokerProcess
from scenario_text import replay

pytestmark = pytest.mark.interop

BIDIRECTIONAL = {**OVERRIDES, "group.consumer.migration.policy": "bidirectional"}
SCRIPTS = {path.stem: path for path in differences.SCRIPTS}


def check_script(broker: BrokerProcess, kind: str, path: Path) -> None:
    expected = differences.responses(path.read_text(), kind)
    with Connection(broker.bootstrap, "script") as connection:
        script = ConsumerGroupScript(connection, fresh_name("script") + "-")
        assert replay(expected, script.run) == expected


@pytest.fixture(scope="module", params=grouped_brokers("differences"))
def kind_and_broker(
    request: pytest.FixtureRequest, peers: None
) -> Iterator[tuple[str, BrokerProcess]]:
    """A running broker that allows upgrades and downgrades, and its kind."""
    with BROKERS[request.param](overrides=BIDIRECTIONAL) as running:
        yield request.param, running


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in differences.OVERRIDES])
def test_difference_has_listed_responses(
    kind_and_broker: tuple[str, BrokerProcess], name: str
) -> None:
    kind, broker = kind_and_broker
    check_script(broker, kind, SCRIPTS[name])


@pytest.mark.parametrize("name", list(differences.OVERRIDES))
@pytest.mark.parametrize("kind", BROKERS)
def test_difference_with_settings_has_listed_responses(peers: None, kind: str, name: str) -> None:
    overrides = {**BIDIRECTIONAL, **differences.OVERRIDES[name]}
    with BROKERS[kind](overrides=overrides) as broker:
        check_script(broker, kind, SCRIPTS[name])
