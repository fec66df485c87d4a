"""Rolling upgrades of member processes, replaced one by one while records are produced."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from client.confluent_admin import create_topic
from interop.checker import judge, repeated
from interop.committed_offsets import committed_offsets, protocol_of
from interop.members import Team
from interop.record_sets import ends

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PARTITIONS = 6
EVERYTHING = {("t", number) for number in range(PARTITIONS)}
RECORDS = 30
PATIENCE_S = 60


class Bounced:
    """A group of three members that are replaced, and all records produced for it."""

    def __init__(self, servers, team):
        self.servers = servers
        self.team = team
        self.members = []
        self.produced = set()

    def begin(self, assignor):
        """Start all members with these assignors."""
        for place in range(3):
            self.members.append(self.join(assignor, f"m{place}"))
        self.settle()

    def join(self, assignor, name):
        return self.team.join("partage", name, assignor=assignor, heartbeat_interval_ms=100)

    def replace(self, place, assignor):
        """Restart one member with other assignors; return the assignors that all have in common."""
        self.members[place].terminate()
        self.members[place].check_orderly_end()
        self.members[place] = self.join(assignor, f"m{place}")
        self.settle()
        return self.protocol

    @property
    def protocol(self):
        """The selected assignor. While the group rebalances again, it has none."""
        found = []

        def is_selected():
            found.append(protocol_of(self.servers, self.team.group))
            return bool(found[-1])

        self.team.wait_until(is_selected, "the group has selected an assignor", PATIENCE_S)
        return found[-1]

    def settle(self):
        """Produce records during a rebalance, and wait until each partition has an owner."""
        self.produced |= written(self.servers, RECORDS)
        self.team.wait_until_shared(EVERYTHING, PATIENCE_S)

    def end(self):
        """Stop all members; every record was read once and is committed."""
        self.team.wait_until_consumed(self.produced, PATIENCE_S)
        self.team.wait_until_committed(self.produced, PATIENCE_S)
        self.team.end()
        offsets = committed_offsets(self.servers, self.team.group, EVERYTHING)
        assert offsets == ends(self.produced)
        assert judge(self.team.histories, self.produced) == []
        assert repeated(self.team.histories) == set()


def written(servers, count):
    told = []
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, record: told.append((error, record)),
        )
    assert producer.flush(60) == 0
    assert [error for error, _ in told if error] == []
    return {(record.topic(), record.partition(), record.offset()) for _, record in told}


@pytest.fixture
def bounced(partage_broker):
    create_topic(partage_broker.bootstrap_servers, "t", PARTITIONS)
    with Team(partage_broker.bootstrap_servers, "t") as team:
        yield Bounced(partage_broker.bootstrap_servers, team)


def test_four_phase_upgrade_and_downgrade(bounced):
    """Each version of an assignor is a protocol; the group uses the newest common one."""
    bounced.begin("mine@0")
    assert bounced.protocol == "mine"
    assert [bounced.replace(place, "mine@1+0") for place in range(3)] == ["mine", "mine", "mine-v1"]
    assert bounced.replace(0, "mine@0") == "mine"
    bounced.end()


def test_downgrade_from_cooperative_to_eager(bounced):
    """KIP-429: a downgraded member leaves and joins again as a new, eager one."""
    bounced.begin("cooperative-sticky")
    stray = bounced.join("range", "stray")
    stray.wait(PATIENCE_S)
    assert "INCONSISTENT_GROUP_PROTOCOL" in stray.diagnosis()
    bounced.team.members.remove(stray)
    stray.close()
    both = [bounced.replace(place, "cooperative-sticky,range") for place in range(3)]
    assert both == ["cooperative-sticky"] * 3, "eager and cooperative members, side by side"
    assert [bounced.replace(place, "range") for place in range(3)] == ["range"] * 3
    bounced.end()
