"""The pytest plugin, which is installed with the package and active in every test run.

``partage_broker`` is a broker in the test's process, on a free port, empty in every test::

    def test_it(partage_broker):
        producer = Producer({"bootstrap.servers": partage_broker.bootstrap_servers})

Broker settings for one test, by Kafka's names::

    @pytest.mark.partage_broker({"auto.create.topics.enable": "false"})
    def test_strict(partage_broker): ...

``partage_broker_process`` is a broker in a child process with a real disk, which can be killed and
restarted. The marker applies to it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from partage.testing.broker import ThreadedBroker
    from partage.testing.process import BrokerProcess


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "partage_broker(overrides): broker settings for one test, by Kafka's names"
    )


@pytest.fixture
def partage_broker(request: pytest.FixtureRequest) -> Iterator[ThreadedBroker]:
    """Yield a Kafka-compatible broker for one test; see `partage.testing.ThreadedBroker`."""
    # Imported here, so that test runs without this fixture do not load the broker.
    from partage.testing.broker import ThreadedBroker

    with ThreadedBroker(_overrides(request)) as broker:
        yield broker


@pytest.fixture
def partage_broker_process(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """Yield a broker process that can be killed; see `partage.testing.BrokerProcess`."""
    from partage.testing.broker import TEST_OVERRIDES
    from partage.testing.process import BrokerProcess

    with BrokerProcess(overrides={**TEST_OVERRIDES, **_overrides(request)}) as broker:
        yield broker


def _overrides(request: pytest.FixtureRequest) -> dict[str, str]:
    marker = request.node.get_closest_marker("partage_broker")
    return dict(marker.args[0]) if marker is not None and marker.args else {}
