"""How long until a broker serves again after kill -9?

Commits: a million, made through the broker, of 240,000 partitions in 4,800 groups. The clock runs
from the start of the process until a group of each partition of ``__consumer_offsets`` gets its
offsets. Topics: 1 GB in four partitions, until the last of them says where it ends. What an empty
broker takes for the same (the interpreter and its imports, or the JVM) is taken off. What was
written is in the page cache.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from bench.apart import Apart
from bench.brokers import KAFKA, OURS, Broker, Host, kafka_hosted, ours_hosted
from bench.figures import Figure, number
from bench.load import Caller, call, connect
from bench.machine import LOAD_CORE
from bench.members import coordinated, until_no_error
from bench.topics import create_topic, ends_of, produce
from partage.store.shard_log import shard_of
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest

TITLE = "Start after kill -9"

_SHARDS = 50
_TOPIC, _PARTITIONS = "committed", 50


def ask(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Commits with either decoder, and topics."""
    groups, rounds = (480, 2) if is_quick else (4_800, 4)
    size = (64 if is_quick else 1024) << 20
    hosted = [("native", ours_hosted), ("plain", ours_hosted)]
    if with_kafka:
        hosted.append(("", kafka_hosted))
    seen: dict[str, Took] = {}
    for decoder, made in hosted:
        with made(sync="os") as host, Apart(LOAD_CORE) as load, _decoder(decoder):
            seen[decoder] = _reloading(host, load, groups, rounds)
    records = f"{groups * rounds * _PARTITIONS + groups * _PARTITIONS // 6:,}"
    for decoder, wanted in (("native", 3.0), ("plain", 12.0)):
        yield Figure(
            what=f"loading {records} commits of {groups * _PARTITIONS:,} partitions, {decoder}",
            **_beside(seen[decoder], seen.get("")),
            wanted=wanted,
        )
    recovered: dict[tuple[str, str], Took] = {}
    for sync in ("disk", "os"):
        for made in [ours_hosted, kafka_hosted] if with_kafka else [ours_hosted]:
            with made(sync=sync) as host, Apart(LOAD_CORE) as load:
                recovered[host.name, sync] = _recovering(host, load, size)
    for sync, how in (("disk", "synced"), ("os", "not synced")):
        yield Figure(
            what=f"recovering {size >> 20} MB of topics, {how}",
            **_beside(recovered[OURS, sync], recovered.get((KAFKA, sync))),
            wanted=2.0,
        )


class Took(NamedTuple):
    """What came on top of an empty broker's start."""

    seconds: float
    cpu_s: float

    def more_than(self, other: Took) -> Took:
        """The difference."""
        return Took(self.seconds - other.seconds, self.cpu_s - other.cpu_s)


def _beside(mine: Took, its: Took | None) -> dict[str, Any]:
    """What all figures of this question have in common."""
    said = f"without an empty start; CPU {number(mine.cpu_s)} s"
    return {
        "unit": "s",
        "ours": mine.seconds,
        "peer_name": KAFKA if its else "",
        "peer": its.seconds if its else None,
        "less_is_better": True,
        "note": said + (f", Kafka's {number(its.cpu_s)} s" if its else ""),
    }


@contextmanager
def _decoder(name: str) -> Iterator[None]:
    """Have brokers that are started use this record decoder."""
    os.environ["PARTAGE_DECODER"] = name
    try:
        yield
    finally:
        del os.environ["PARTAGE_DECODER"]


# Commits.


def _reloading(host: Host, load: Apart, groups: int, rounds: int) -> Took:
    """What loading adds to a start."""
    _started(host, load)  # the first start of all has to make a directory
    empty = _started(host, load)
    broker = host.start()
    load.run(commit_much, broker, groups, rounds)
    host.kill()
    return _started(host, load).more_than(empty)


def _started(host: Host, load: Apart) -> Took:
    """From the start until every shard answers; it is killed then."""
    began = time.perf_counter()
    broker = host.start()
    load.run(until_loaded, broker)
    took = Took(time.perf_counter() - began, broker.cpu_s())
    host.kill()
    return took


def _group_id(number: int) -> str:
    return f"group-{number}"


async def commit_much(broker: Broker, groups: int, rounds: int) -> None:
    """Commit all partitions of all groups, some times over, and a sixth once more."""
    await create_topic(broker.address, _TOPIC, _PARTITIONS)
    await coordinated(broker.address, _group_id(0))
    todo = iter([*(n for _ in range(rounds) for n in range(groups)), *range(0, groups, 6)])

    async def commit_on(caller: Caller) -> None:
        for group in todo:
            partitions = [
                OffsetCommitPartition(
                    partition_index=n, committed_offset=1_000_000 + n, committed_metadata=""
                )
                for n in range(_PARTITIONS)
            ]
            request = OffsetCommitRequest(
                group_id=_group_id(group),
                member_id="",
                topics=[OffsetCommitTopic(name=_TOPIC, partitions=partitions)],
            )
            response = await call(caller, OFFSET_COMMIT, 8, request)
            errors = {p.error_code for p in response.topics[0].partitions}
            assert errors == {0}, f"OffsetCommit was answered {errors}"

    callers = await connect(broker.address, 20)
    await asyncio.gather(*map(commit_on, callers))
    for caller in callers:
        caller.close()


async def until_loaded(broker: Broker) -> None:
    """Return once a group of every shard gets its offsets."""
    a_group_of: dict[int, str] = {}
    for group_id in map(_group_id, count()):
        a_group_of.setdefault(shard_of(group_id, _SHARDS), group_id)
        if len(a_group_of) == _SHARDS:
            break
    await coordinated(broker.address, a_group_of[0])
    callers = await connect(broker.address, _SHARDS)

    async def loaded(caller: Caller, group_id: str) -> None:
        request = OffsetFetchRequest(group_id=group_id, topics=[])
        await until_no_error(lambda: call(caller, OFFSET_FETCH, 7, request), 0.02)

    await asyncio.gather(*map(loaded, callers, a_group_of.values()))
    for caller in callers:
        caller.close()


# Topics.


def _recovering(host: Host, load: Apart, size: int) -> Took:
    """What recovery adds to a start."""
    broker = host.start()
    load.run(create_topic, broker.address, _TOPIC, 4)
    host.kill()
    empty = _recovered(host, load)
    broker = host.start()
    load.run(produce, broker.address, _TOPIC, size, 4)
    host.kill()
    return _recovered(host, load).more_than(empty)


def _recovered(host: Host, load: Apart) -> Took:
    """From the start until every partition answers; it is killed then."""
    began = time.perf_counter()
    broker = host.start()
    load.run(ends_of, broker.address, _TOPIC, 4)
    took = Took(time.perf_counter() - began, broker.cpu_s())
    host.kill()
    return took
