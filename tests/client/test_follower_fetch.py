"""Reads from the follower that the leader prefers (KIP-392): a consumer and a range of Spark."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import partage
from partage.client import (
    ClientOptions,
    Cluster,
    FetchOptions,
    RetryPolicy,
    TopicPartition,
    decode_fetched,
    fetch_range,
)
from partage.model.errors import ErrorCode
from partage.wire.records.encoder import SimpleRecord, encode_batch

from .scripted_broker import CLOSE, ScriptedBroker, fetched

T0 = TopicPartition("t", 0)
PATIENT = 10_000
QUICK = RetryPolicy(backoff_ms=1, backoff_max_ms=5)
COUNT = 6
LEADER, FOLLOWER = 1, 2


class Replica:
    """A script that serves one batch of two records in each Fetch response.

    ``preferred`` is the replica that it names instead, to readers in the rack "b".
    """

    def __init__(self, preferred=-1, **answers):
        self.preferred = preferred
        #: Responses to the first fetches at an offset, by offset.
        self.answers = {int(offset[1:]): list(given) for offset, given in answers.items()}
        self.offsets = []
        self.racks = set()

    def __call__(self, asked):
        if asked.api.name != "Fetch":
            return None
        self.racks.add(asked.message.rack_id)
        offset = asked.message.topics[0].partitions[0].fetch_offset
        if self.preferred >= 0 and asked.message.rack_id == "b":
            self.offsets.append((offset, "redirected"))
            return fetched(asked, preferred_replica=self.preferred)
        self.offsets.append(offset)
        if self.answers.get(offset):
            answer = self.answers[offset].pop(0)
            return answer(asked) if callable(answer) else answer
        if offset >= COUNT:
            return fetched(asked, end=COUNT)
        values = [SimpleRecord(None, b"%d" % (offset + n)) for n in range(2)]
        return fetched(asked, encode_batch(values, base_offset=offset), end=COUNT)


@asynccontextmanager
async def two_brokers(leader, follower):
    """Yield the bootstrap address of a leader with a follower."""
    async with ScriptedBroker(leader) as first, ScriptedBroker(follower) as second:
        first.replica_ids = second.replica_ids = [LEADER, FOLLOWER]
        second.node_id = FOLLOWER
        first.peers, second.peers = [second], [first]
        yield str(first.address)


async def consumed(servers, rack):
    options = {
        "auto_offset_reset": "none",
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "fetch_max_wait_ms": 10,
    }
    async with partage.Consumer(servers, client_rack=rack, **options) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        found = []
        while len(found) < COUNT:
            found += [record.offset for record in await consumer.poll(PATIENT)]
        return found


async def fetched_range(servers, rack):
    found = []
    options = FetchOptions(rack=rack, max_wait_ms=10)
    async with Cluster(servers, ClientOptions(retries=QUICK)) as cluster:
        async for answer in fetch_range(cluster, T0, 0, COUNT, options):
            for columns in decode_fetched(answer):
                found += memoryview(columns.offset).cast("q").tolist()
    return found


def run(read, leader, follower, rack="b"):
    async def main():
        async with two_brokers(leader, follower) as servers:
            return await read(servers, rack)

    assert asyncio.run(main()) == list(range(COUNT))


def stop_preferring(leader, answer):
    """Return a follower's response after which the leader prefers no replica."""

    def respond(asked):
        leader.preferred = -1
        return answer(asked) if callable(answer) else answer

    return respond


readers = pytest.mark.parametrize("read", [consumed, fetched_range])


@readers
def test_records_come_from_preferred_follower(read):
    leader, follower = Replica(preferred=FOLLOWER), Replica()
    run(read, leader, follower)
    assert leader.offsets == [(0, "redirected")]
    assert follower.offsets[:3] == [0, 2, 4]
    assert leader.racks == follower.racks == {"b"}


@readers
def test_reader_without_rack_reads_from_leader(read):
    leader, follower = Replica(preferred=FOLLOWER), Replica()
    run(read, leader, follower, rack=None)
    assert leader.offsets[:3] == [0, 2, 4]
    assert leader.racks == {""}
    assert follower.offsets == []


@readers
@pytest.mark.parametrize(
    "failure",
    [
        CLOSE,
        lambda asked: fetched(asked, error=ErrorCode.OFFSET_OUT_OF_RANGE),
        lambda asked: fetched(asked, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        lambda asked: fetched(asked, error=ErrorCode.REPLICA_NOT_AVAILABLE),
        lambda asked: fetched(asked, error=ErrorCode.FENCED_LEADER_EPOCH),
    ],
    ids=["close", "out-of-range", "not-leader", "not-available", "fenced"],
)
def test_failed_follower_is_replaced_by_leader(read, failure):
    leader = Replica(preferred=FOLLOWER)
    follower = Replica(_2=[stop_preferring(leader, failure)])
    run(read, leader, follower)
    assert follower.offsets == [0, 2]
    assert leader.offsets[:3] == [(0, "redirected"), 2, 4]


def test_range_is_read_from_leader_if_follower_stopped_replicating():
    """The leader would name this follower again to a reader in its rack."""
    leader = Replica(preferred=FOLLOWER)
    follower = Replica(_2=[lambda asked: fetched(asked, end=2)] * 1_000)
    run(fetched_range, leader, follower)
    assert follower.offsets == [0, 2, 2]
    assert leader.offsets == [(0, "redirected"), 2, 4]
    assert leader.racks == {"b", ""}


@readers
def test_leader_may_prefer_same_follower_again(read):
    leader = Replica(preferred=FOLLOWER)
    refused = [lambda asked: fetched(asked, error=ErrorCode.OFFSET_OUT_OF_RANGE)] * 2
    follower = Replica(_2=refused)
    run(read, leader, follower)
    assert follower.offsets[:5] == [0, 2, 2, 2, 4]
    assert leader.offsets == [(0, "redirected"), (2, "redirected"), (2, "redirected")]


@readers
def test_unknown_preferred_replica_is_dropped(read):
    leader = Replica(preferred=7)
    follower = Replica()

    def stop(asked):
        if asked.api.name == "Metadata" and leader.offsets:
            leader.preferred = -1
        return leader(asked)

    run(read, stop, follower)
    assert leader.offsets[0] == (0, "redirected")
    assert [offset for offset in leader.offsets if isinstance(offset, int)][:3] == [0, 2, 4]
    assert follower.offsets == []
