"""Time until a broker serves again after kill -9.

Commits: a million, sent to the broker, of 240,000 partitions in 4,800 groups. The time counts from
the start of the process until one group of each partition of ``__consumer_offsets`` gets its
offsets. Topics: 1 GB in four partitions, until the last partition returns its end offset. The start
time of an empty broker (interpreter and imports, or JVM) is subtracted. The files are in the page
cache.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

from bench.brokers import KAFKA, OURS, Broker, Host, kafka_host, ours_host
from bench.figures import Figure, number
from bench.load import Caller, call, connect
from bench.machine import LOAD_CORE
from bench.members import retry_until_ok, wait_for_coordinator
from bench.topics import create_topic, end_offsets, produce
from bench.worker_process import WorkerProcess
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


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure commits with either decoder, then topics."""
    groups, rounds = (480, 2) if is_quick else (4_800, 4)
    size = (64 if is_quick else 1024) << 20
    hosts = [("native", ours_host), ("plain", ours_host)]
    if with_kafka:
        hosts.append(("", kafka_host))
    seen: dict[str, Took] = {}
    for decoder, make_host in hosts:
        with make_host(sync="os") as host, WorkerProcess(LOAD_CORE) as load, _decoder(decoder):
            seen[decoder] = _measure_reload(host, load, groups, rounds)
    records = f"{groups * rounds * _PARTITIONS + groups * _PARTITIONS // 6:,}"
    for decoder, wanted in (("native", 3.0), ("plain", 12.0)):
        yield Figure(
            what=f"loading {records} commits of {groups * _PARTITIONS:,} partitions, {decoder}",
            **_common_fields(seen[decoder], seen.get("")),
            wanted=wanted,
        )
    recovered: dict[tuple[str, str], Took] = {}
    for sync in ("disk", "os"):
        for make_host in [ours_host, kafka_host] if with_kafka else [ours_host]:
            with make_host(sync=sync) as host, WorkerProcess(LOAD_CORE) as load:
                recovered[host.name, sync] = _measure_recovery(host, load, size)
    for sync, how in (("disk", "synced"), ("os", "not synced")):
        yield Figure(
            what=f"recovering {size >> 20} MB of topics, {how}",
            **_common_fields(recovered[OURS, sync], recovered.get((KAFKA, sync))),
            wanted=2.0,
        )


class Took(NamedTuple):
    """The time in addition to the start of an empty broker."""

    seconds: float
    cpu_s: float

    def more_than(self, other: Took) -> Took:
        """Return the difference."""
        return Took(self.seconds - other.seconds, self.cpu_s - other.cpu_s)


def _common_fields(mine: Took, its: Took | None) -> dict[str, Any]:
    """Return the fields that all figures of this benchmark have in common."""
    note = f"without an empty start; CPU {number(mine.cpu_s)} s"
    return {
        "unit": "s",
        "ours": mine.seconds,
        "peer_name": KAFKA if its else "",
        "peer": its.seconds if its else None,
        "less_is_better": True,
        "note": note + (f", Kafka's {number(its.cpu_s)} s" if its else ""),
    }


@contextmanager
def _decoder(name: str) -> Iterator[None]:
    """Let brokers that start in this context use this record decoder."""
    os.environ["PARTAGE_DECODER"] = name
    try:
        yield
    finally:
        del os.environ["PARTAGE_DECODER"]


# Commits.


def _measure_reload(host: Host, load: WorkerProcess, groups: int, rounds: int) -> Took:
    """Return the time that loading adds to a start."""
    _time_until_loaded(host, load)  # the first start creates the data directory
    empty = _time_until_loaded(host, load)
    broker = host.start()
    load.run(commit_many, broker, groups, rounds)
    host.kill()
    return _time_until_loaded(host, load).more_than(empty)


def _time_until_loaded(host: Host, load: WorkerProcess) -> Took:
    """Start the broker, wait until every shard answers, and kill it."""
    began = time.perf_counter()
    broker = host.start()
    load.run(wait_until_loaded, broker)
    took = Took(time.perf_counter() - began, broker.cpu_s())
    host.kill()
    return took


def _group_id(number: int) -> str:
    return f"group-{number}"


async def commit_many(broker: Broker, groups: int, rounds: int) -> None:
    """Commit all partitions of all groups ``rounds`` times, and a sixth of the groups once more."""
    await create_topic(broker.address, _TOPIC, _PARTITIONS)
    await wait_for_coordinator(broker.address, _group_id(0))
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


async def wait_until_loaded(broker: Broker) -> None:
    """Wait until a group of every shard gets its offsets."""
    group_by_shard: dict[int, str] = {}
    for group_id in map(_group_id, count()):
        group_by_shard.setdefault(shard_of(group_id, _SHARDS), group_id)
        if len(group_by_shard) == _SHARDS:
            break
    await wait_for_coordinator(broker.address, group_by_shard[0])
    callers = await connect(broker.address, _SHARDS)

    async def loaded(caller: Caller, group_id: str) -> None:
        request = OffsetFetchRequest(group_id=group_id, topics=[])
        await retry_until_ok(lambda: call(caller, OFFSET_FETCH, 7, request), 0.02)

    await asyncio.gather(*map(loaded, callers, group_by_shard.values()))
    for caller in callers:
        caller.close()


# Topics.


def _measure_recovery(host: Host, load: WorkerProcess, size: int) -> Took:
    """Return the time that recovery adds to a start."""
    broker = host.start()
    load.run(create_topic, broker.address, _TOPIC, 4)
    host.kill()
    empty = _time_until_recovered(host, load)
    broker = host.start()
    load.run(produce, broker.address, _TOPIC, size, 4)
    host.kill()
    return _time_until_recovered(host, load).more_than(empty)


def _time_until_recovered(host: Host, load: WorkerProcess) -> Took:
    """Start the broker, wait until every partition answers, and kill it."""
    began = time.perf_counter()
    broker = host.start()
    load.run(end_offsets, broker.address, _TOPIC, 4)
    took = Took(time.perf_counter() - began, broker.cpu_s())
    host.kill()
    return took
