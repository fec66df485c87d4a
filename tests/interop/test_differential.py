"""Both brokers are asked the same; each answers as it is written down, cell by cell.

Apache Kafka's answers are checked against the file that is kept of them, ours against that file
and the list of differences. So each broker can be asked without the other.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from interop.members import fresh_name
from interop.oracle import table
from interop.oracle.differences import kafka_says, we_say
from interop.partage_broker import PartageBroker
from interop.peers.server import BrokerProcess

pytestmark = pytest.mark.interop

NAMES = list(dict.fromkeys(name for name, _ in table.cells()))

#: For a second look at what was not as expected: a busy machine may have been slow to answer.
PATIENCE_S = 3.0


class Asked:
    """All that one broker answered, and what it was expected to."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.expected = we_say() if isinstance(broker, PartageBroker) else kafka_says()
        topic = fresh_name("oracle")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
        self.said = table.run(broker.bootstrap, topic)
        for cell, said in self.said.items():
            if said != self.expected.get(cell):
                again = table.run(broker.bootstrap, topic, [cell], patience_s=PATIENCE_S)
                self.said[cell] = again[cell]


@pytest.fixture(scope="module")
def asked(broker: BrokerProcess) -> Asked:
    """Every question, asked once of each broker."""
    return Asked(broker)


@pytest.mark.parametrize("name", NAMES)
def test_the_broker_answers_as_it_is_written_down(asked: Asked, name: str) -> None:
    cells = [cell for cell in table.cells() if cell[0] == name]
    assert {cell: asked.said[cell] for cell in cells} == {
        cell: asked.expected.get(cell) for cell in cells
    }
