"""A group whose state is larger than a ZooKeeper packet, joined over the wire."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from broker.group_requests import (
    describe_group,
    describe_when_loaded,
    heartbeat_request,
    join_request,
    sync_request,
)
from broker.raw_client import RawClient
from partage.broker.cluster.kazoo_session import KazooSession
from partage.store.zk_schema import ZkPaths
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupResponse
from partage.wire.apis.sync_group import SYNC_GROUP
from polled_conditions import eventually

from .brokers import PATIENCE_S, brokers
from .group_client import GroupClient
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

MEMBERS = 5000
#: ZooKeeper's default limit for a packet (``jute.maxbuffer``).
PACKET_BYTES = 0xFFFFF
METADATA_BYTES = 200
PATH = "/tests/large-group"
OVERRIDES = {
    # The delay restarts with each new member, so all have joined when the first rebalance ends.
    "group.initial.rebalance.delay.ms": "3000",
    "offsets.topic.num.partitions": "2",
    "zookeeper.session.timeout.ms": "6000",
}


@contextmanager
def connections(address: str, count: int) -> Iterator[list[RawClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RawClient(address, timeout_s=PATIENCE_S)) for _ in range(count)]


def all_joined(members: Sequence[RawClient], group: str) -> list[JoinGroupResponse]:
    """Let all members join one generation, each with different metadata."""
    chance = random.Random(MEMBERS)
    options = [
        {
            "session_timeout_ms": 300_000,
            "rebalance_timeout_ms": 120_000,
            "protocols": [JoinGroupProtocol(name="p", metadata=chance.randbytes(METADATA_BYTES))],
        }
        for _ in members
    ]
    for raw, own in zip(members, options, strict=True):
        raw.send(JOIN_GROUP, join_request(group, **own))
    given = [raw.receive() for raw in members]
    assert {each.error_code for each in given} == {79}
    for raw, own, each in zip(members, options, given, strict=True):
        raw.send(JOIN_GROUP, join_request(group, each.member_id, **own))
    joined = [raw.receive() for raw in members]
    assert {(each.error_code, each.generation_id) for each in joined} == {(0, 1)}
    return joined


def assign(members: Sequence[RawClient], group: str, joined: Sequence[JoinGroupResponse]) -> None:
    """The leader assigns, and each member gets its assignment."""
    (leader,) = [each for each in joined if each.members]
    assert len(leader.members) == len(joined)
    shares = {each.member_id: each.member_id.encode() for each in joined}
    for raw, each in zip(members, joined, strict=True):
        raw.send(SYNC_GROUP, sync_request(group, each, shares if each is leader else {}))
    for raw, each in zip(members, joined, strict=True):
        assert raw.receive().assignment == shares[each.member_id]


def beats(raw: RawClient, group: str, joined: Sequence[JoinGroupResponse]) -> set[int]:
    """Return the error codes of a heartbeat of each member, sent on one connection."""
    for each in joined:
        raw.send(HEARTBEAT, heartbeat_request(group, each))
    return {raw.receive().error_code for _ in joined}


def bytes_in_chunks(servers: str) -> int:
    """Return the size of all chunks, which exist because a packet is too small."""

    async def reading() -> int:
        session = await KazooSession.begin(servers, 10_000, PATIENCE_S)
        tree, total = ZkPaths(PATH), 0
        for shard in range(2):
            parent = tree.chunks(shard)
            for name in await session.children(parent):
                node = await session.read(f"{parent}/{name}")
                total += 0 if node is None else len(node.data)
        await session.end()
        return total

    return asyncio.run(reading())


def test_failover_of_5000_members_keeps_generation(zookeeper: Ensemble, tmp_path: Path) -> None:
    servers = zookeeper.connect_string
    with (
        brokers(tmp_path, servers, PATH, ids=(1, 2), overrides=OVERRIDES) as cluster,
        GroupClient(list(cluster.values()), "large") as asking,
    ):
        owner, address = asking.find()
        with connections(address, MEMBERS) as members:
            joined = all_joined(members, "large")
            assign(members, "large", joined)
            before = describe_group(members[0], "large")
        assert bytes_in_chunks(servers) > PACKET_BYTES
        cluster[owner].kill()
        eventually(lambda: asking.find()[0] != owner)
        with RawClient(asking.coordinator(), timeout_s=PATIENCE_S) as raw:
            after = describe_when_loaded(raw, "large")
            assert (after.error_code, after.group_state, len(after.members)) == (
                0,
                "Stable",
                MEMBERS,
            )
            assert after == before
            assert beats(raw, "large", joined) == {0}
