"""The demo's group of processes, on a small topic."""

from collections import Counter

import pytest
from aiokafka.partitioner import murmur2

from partage.demo.flights import PARTITIONS, FlightRecord
from partage.demo.group import Group, GroupTrouble
from partage.demo.loading import create_topics, load

NAMES = ("a", "b", "c")


def rows(first, last):
    return [FlightRecord(b"%d" % n, b"x", n) for n in range(first, last)]


def test_a_member_is_killed_and_nothing_is_lost(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topics(servers, ["t"])
    with Group(servers, "g", "t", PARTITIONS, session_timeout_ms=1000) as group:
        for name in NAMES:
            group.start(name)
        before = group.settle(within_s=30)
        assert sorted(map(len, before.values())) == [4, 4, 4]
        assert load(servers, "t", rows(0, 500), lambda handed: None) == 500
        group.kill("b")
        assert load(servers, "t", rows(500, 1000), lambda handed: None) == 500
        rebalance = group.watch(before, within_s=30)
        assert rebalance.before == before
        assert rebalance.after.keys() == {"a", "c"}
        # Cooperative: what a survivor had it keeps.
        assert all(set(before[name]) <= set(rebalance.after[name]) for name in "ac")
        group.drain(ends(servers), within_s=30)
        group.leave()
        tally = group.coverage.tally(ends(servers))
    assert tally.records == 1000
    assert tally.missed == 0
    assert group.coverage.reads == tally.records + tally.again


def ends(servers):
    import asyncio

    from partage.client import LATEST, Cluster, list_offsets

    async def main():
        async with Cluster(servers) as cluster:
            topic = (await cluster.topics(["t"]))["t"]
            found = await list_offsets(cluster, dict.fromkeys(topic.topic_partitions, LATEST))
        return {partition.partition: at.offset for partition, at in found.items()}

    return asyncio.run(main())


def test_a_member_that_ends_by_itself_is_told(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topics(servers, ["t"])
    # The broker refuses sessions of 6 ms.
    with Group(servers, "g", "t", PARTITIONS, session_timeout_ms=6) as group:
        group.start("a")
        with pytest.raises(GroupTrouble, match="a ended with code 1"):
            group.settle(within_s=30)


def test_a_group_that_does_not_settle_is_told(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topics(servers, ["t"])
    with Group(servers, "g", "t", PARTITIONS + 1, session_timeout_ms=1000) as group:
        group.start("a")
        with pytest.raises(GroupTrouble, match="after 1 s the group has not settled"):
            group.settle(within_s=1)


def test_keys_are_placed_as_java_places_them(partage_broker):
    servers = partage_broker.bootstrap_servers
    create_topics(servers, ["t"])
    load(servers, "t", rows(0, 300), lambda handed: None)
    wanted = Counter((murmur2(b"%d" % n) & 0x7FFFFFFF) % PARTITIONS for n in range(300))
    assert ends(servers) == wanted
