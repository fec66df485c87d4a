"""Several cores: the most that a second broker process could gain on this machine.

A broker process group would keep shards and partitions in separate processes behind one address.
Separate brokers that share nothing are its upper limit. So two brokers are compared with one. In
both cases two load generators have 100 clients each in a closed loop, and all processes may use all
cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.brokers import Broker, ours_host
from bench.commits import commit_load
from bench.figures import Figure, figures_of_rounds
from bench.heartbeats import heartbeat_clients
from bench.load import closed_loop
from bench.members import TOPIC
from bench.topics import create_topic
from bench.worker_process import WorkerProcess

TITLE = "Several cores"

_TWO, _ONE = "two processes", "one process"
_LOADS: Final = 2
_ALL_CORES: Final = os.sched_getaffinity(0)
_CLIENTS = 100
_RATIO_WANTED: Final = 1.6


class _Client(NamedTuple):
    """A load generator, its broker, and a prefix for new groups."""

    broker: Broker
    load: WorkerProcess
    prefix: str


#: Applies the load of a client; returns the requests per second.
_Load = Callable[[_Client], float]


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure heartbeats and commits."""
    rounds, seconds = (1, 1.0) if is_quick else (5, 3.0)

    def heartbeats(client: _Client) -> float:
        return client.load.run(heartbeat_load, client.broker, client.prefix, seconds)

    def commits(client: _Client) -> float:
        load = client.load.run(commit_load, client.broker, 1, client.prefix, 1.0, seconds)
        return load.per_s

    yield from _compared("Heartbeats", heartbeats, rounds)
    yield from _compared("commits, not synced", commits, rounds)


async def heartbeat_load(broker: Broker, prefix: str, seconds: float) -> float:
    """Let the members of ten groups send heartbeats; return the number per second."""
    callers, frames = await heartbeat_clients(broker, prefix)
    await closed_loop(callers, frames, 0.5)
    load = await closed_loop(callers, frames, seconds)
    for caller in callers:
        caller.close()
    return load.per_s


def _compared(what: str, load: _Load, rounds: int) -> Iterator[Figure]:
    seen: dict[str, list[float]] = {_TWO: [], _ONE: []}
    with ExitStack() as stack:
        loads = [stack.enter_context(WorkerProcess(_ALL_CORES)) for _ in range(_LOADS)]
        hosts = [ours_host(sync="os", cores=_ALL_CORES) for _ in range(_LOADS)]
        brokers = [stack.enter_context(host).start() for host in hosts]
        for broker in brokers:
            loads[0].run(create_topic, broker.address, TOPIC, _CLIENTS)
        threads = stack.enter_context(ThreadPoolExecutor(_LOADS))
        for turn in range(rounds):
            for name, of_load in ((_TWO, brokers), (_ONE, brokers[:1] * _LOADS)):
                prefixes = (f"{name}-{turn}-{number}" for number in range(_LOADS))
                clients = map(_Client, of_load, loads, prefixes)
                seen[name].append(sum(threads.map(load, clients)))
    yield from figures_of_rounds(
        f"{what}: two broker processes that share nothing, on {len(_ALL_CORES)} cores",
        "/s",
        seen,
        ratios_wanted={_ONE: _RATIO_WANTED},
        note=f"{_LOADS} load generators with {_CLIENTS} clients each use the same cores",
    )
