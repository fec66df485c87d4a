"""Each kind of client alone: it consumes what it produces, and resumes from its commits."""

from __future__ import annotations

import pytest

from interop.checker import judge, repeated
from interop.client_kinds import KINDS, PRODUCERS
from interop.committed_offsets import committed_offsets
from interop.members import Team, produce
from interop.peers.server import BrokerProcess
from interop.record_sets import ends, without_gaps

pytestmark = pytest.mark.interop

RECORDS = 240


@pytest.mark.parametrize("kind", KINDS)
def test_next_consumer_resumes_from_commits(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]], kind: str
) -> None:
    produced = produce(kind, broker.bootstrap, topic, RECORDS)
    assert produced == without_gaps(produced)

    with Team(broker.bootstrap, topic) as team:
        first = team.join(kind, "m0", max=RECORDS // 3)
        first.check_orderly_end()
        # kafkajs still processes fetched records after a request to stop.
        stopped_after = len(first.of("record"))
        assert RECORDS // 3 <= stopped_after < RECORDS
        stopped_at = committed_offsets(broker.bootstrap, team.group, partitions)
        assert sum(stopped_at.values()) == stopped_after

        second = team.join(kind, "m1")
        team.wait_until_consumed(produced)
        second.terminate()
        second.check_orderly_end()
        assert committed_offsets(broker.bootstrap, team.group, partitions) == ends(produced)
        assert judge(team.histories, produced) == []
        assert repeated(team.histories) == set()


@pytest.mark.parametrize("kind", PRODUCERS)
def test_acks_1_returns_offsets(broker: BrokerProcess, topic: str, kind: str) -> None:
    first = produce(kind, broker.bootstrap, topic, 30, acks="1")
    more = produce(kind, broker.bootstrap, topic, 30, start=30, acks="1")
    assert first.isdisjoint(more)
    assert first | more == without_gaps(first | more)
