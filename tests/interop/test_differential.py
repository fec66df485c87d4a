"""Both brokers get the same requests; each must give its stored responses, cell by cell.

Apache Kafka's responses are compared with the stored file. Ours are compared with that file plus
the list of differences. So each broker can be tested without the other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.conftest import grouped_brokers
from interop.members import fresh_name
from interop.oracle import table
from interop.oracle.differences import kafka_says, we_say
from interop.partage_broker import PartageBroker
from interop.peers.server import BrokerProcess
from polled_conditions import PATIENCE_S

pytestmark = pytest.mark.interop

NAMES = list(dict.fromkeys(name for name, _ in table.cells()))

#: For retries of unexpected responses, one cell at a time: a busy machine may have been slow. The
#: sessions and timeouts of the stories grow in proportion.
LONGER_PATIENCE_S = (3.0, 6.0)


class Asked:
    """All responses of one broker, and the expected ones."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.expected = we_say() if isinstance(broker, PartageBroker) else kafka_says()
        topic = fresh_name("oracle")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(PATIENCE_S)
        self.said = table.run(broker.bootstrap, topic)
        for patience_s in LONGER_PATIENCE_S:
            for cell, said in self.said.items():
                if said != self.expected.get(cell):
                    self.said |= table.run(broker.bootstrap, topic, [cell], patience_s=patience_s)


@pytest.fixture(scope="module", params=grouped_brokers("differential"))
def asked(request: pytest.FixtureRequest, running_broker: Callable[[str], BrokerProcess]) -> Asked:
    """All responses, requested once from each broker."""
    return Asked(running_broker(request.param))


@pytest.mark.parametrize("name", NAMES)
def test_broker_gives_the_stored_responses(asked: Asked, name: str) -> None:
    cells = [cell for cell in table.cells() if cell[0] == name]
    assert {cell: asked.said[cell] for cell in cells} == {
        cell: asked.expected.get(cell) for cell in cells
    }
