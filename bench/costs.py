"""The CPU of a Heartbeat and of an OffsetCommit, from socket to socket, step by step.

Servers with more and more of the broker get the same requests: a server that returns each frame
unchanged, the broker's connections with a handler that always succeeds, and the whole broker. The
difference between two servers is the cost of the part that only one of them has. Two parts of the
broker are measured without sockets: the state machine, and the encoding of a batch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from bench.brokers import BARE, ECHO, OURS, Broker, bare_echo, bare_handler, ours
from bench.commits import commit_clients
from bench.figures import Figure
from bench.heartbeats import heartbeat_clients
from bench.load import Caller, closed_loop, connect
from bench.machine import BROKER_CORE, LOAD_CORE
from bench.members import TOPIC
from bench.topics import create_topic
from bench.worker_process import WorkerProcess
from partage.coordinator.events import (
    Commit,
    Heartbeat,
    Join,
    OffsetToCommit,
    Protocol,
    Sync,
    Ticket,
    TimerFired,
)
from partage.coordinator.shard import Shard
from partage.coordinator.timers import JoinTimer
from partage.model.settings import GroupSettings
from partage.runtime.driver import Driver
from partage.store.embedded_protocol import KafkaEmbeddedProtocol
from partage.store.shard_log import encode_records, subscribed_topics

TITLE = "CPU of one request, from socket to socket"

_CLIENTS: Final = 100
_SYNCED: Final = "partage, synced"
_CALLS: Final = 100  # of one measurement without sockets
_REPETITIONS: Final = 9
_TICKET: Final = Ticket("the only request")


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure a Heartbeat and an OffsetCommit."""
    rounds, seconds = (1, 1.0) if is_quick else (5, 3.0)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ours(sync="os")),
            stack.enter_context(bare_handler()),
            stack.enter_context(bare_echo()),
            stack.enter_context(ours())._replace(name=_SYNCED),
        ]
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        seen = load.run(socket_costs, servers, rounds, seconds)
    with WorkerProcess(BROKER_CORE) as process:
        machine = process.submit(machine_costs).result()
    for what, costs in seen.items():
        yield from _steps(what, costs, machine[what])


def _steps(what: str, costs: dict[str, float], machine: dict[str, float]) -> Iterator[Figure]:
    """Yield the cost of each step, and the sum."""
    steps = {
        "kernel and uvloop: receive and send": costs[ECHO],
        "connection: frame, request and response": costs[BARE] - costs[ECHO],
        **machine,
    }
    total = costs[OURS]
    rest = "event, reply and timers" + (", append to the log's file" if _SYNCED in costs else "")
    steps[rest] = total - sum(steps.values())
    if _SYNCED in costs:
        steps["fsync"] = costs[_SYNCED] - total
        total = costs[_SYNCED]
    for step, cost_us in steps.items():
        yield Figure(what=f"{what}: {step}", unit="µs", ours=cost_us, less_is_better=True)
    yield Figure(what=f"{what}: sum", unit="µs", ours=total, less_is_better=True)


# Over sockets.


async def socket_costs(
    servers: list[Broker], rounds: int, seconds: float
) -> dict[str, dict[str, float]]:
    """Return µs of CPU for each response by request and server: medians of rounds in turns."""
    found: dict[str, dict[str, float]] = {}
    for what in ("Heartbeat", "OffsetCommit"):
        targets: dict[str, tuple[Broker, list[Caller], list[bytes]]] = {}
        frames: list[bytes] = []
        for server in servers:
            if server.name in (BARE, ECHO):
                callers = await connect(server.address, _CLIENTS)
            elif what == "Heartbeat":
                if server.name == _SYNCED:
                    continue
                callers, frames = await heartbeat_clients(server, what)
            else:
                await create_topic(server.address, TOPIC, _CLIENTS)
                callers, frames = await commit_clients(server, 1, what)
            targets[server.name] = (server, callers, frames)
        for _, callers, frames in targets.values():
            await closed_loop(callers, frames, 1.0)
        costs: dict[str, list[float]] = {name: [] for name in targets}
        for _ in range(rounds):
            for name, (server, callers, frames) in targets.items():
                before = server.cpu_s()
                load = await closed_loop(callers, frames, seconds)
                costs[name].append((server.cpu_s() - before) / load.responses * 1e6)
        found[what] = {name: statistics.median(of) for name, of in costs.items()}
        for _, callers, _ in targets.values():
            for caller in callers:
                caller.close()
    return found


# Without sockets.


def machine_costs() -> dict[str, dict[str, float]]:
    """Return µs of CPU of the state machine and of the log's batch, by request and step."""
    driver, shard, generation = _shard_with_member()
    heartbeat = Heartbeat(
        at_ms=0, reply_to=_TICKET, group_id="group", generation=generation, member_id="member"
    )
    offset = OffsetToCommit(topic=TOPIC, partition=0, offset=42, leader_epoch=-1, metadata="")
    commit = Commit(
        at_ms=0,
        reply_to=_TICKET,
        group_id="group",
        generation=generation,
        member_id="member",
        offsets=(offset,),
    )
    records = shard.handle(commit).records
    assert len(records) == 1, "the commit was refused"
    # About half of the clients are answered in one turn of the loop.
    per_turn = _CLIENTS // 2
    batch = records * per_turn
    ends = list(range(1, len(batch) + 1))

    def handle(event: Heartbeat | Commit) -> float:
        return _cost_us(lambda: shard.handle(event), per_turn)

    def drive(event: Heartbeat | Commit) -> float:
        return _cost_us(lambda: _drive(driver, event, per_turn)) / per_turn - handle(event)

    driver_step = "driver: timers, and replies until their records are durable"
    return {
        "Heartbeat": {"state machine": handle(heartbeat), driver_step: drive(heartbeat)},
        "OffsetCommit": {
            "state machine": handle(commit),
            driver_step: drive(commit),
            f"its part of a record batch with {per_turn} commits": _cost_us(
                lambda: encode_records(batch, 0, event_ends=ends)
            )
            / per_turn,
        },
    }


def _drive(driver: Driver, event: Heartbeat | Commit, count: int) -> None:
    """Handle an event several times, as in one turn of the loop."""
    for _ in range(count):
        driver.handle(event)
    if driver.unsent:
        driver.on_durable(driver.pop_unsent()[1])
    assert len(driver.pop_ready(count)) == count


def _shard_with_member() -> tuple[Driver, Shard, int]:
    """Return a shard with a stable group of one member, its driver, and the group's generation."""
    shard = Shard(GroupSettings(), subscribed_topics, KafkaEmbeddedProtocol())
    driver = Driver()
    driver.activate(shard, 0)
    join = Join(
        at_ms=0,
        reply_to=_TICKET,
        group_id="group",
        member_id="",
        generated_member_id="member",
        client_id="bench",
        client_host="/127.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol(name="range", metadata=b""),),
        must_rejoin_with_id=False,
    )
    for key, deadline_ms in shard.handle(join).timers:
        if isinstance(key, JoinTimer) and deadline_ms is not None:
            shard.handle(TimerFired(at_ms=deadline_ms, key=key))
    generation = shard.groups["group"].generation
    sync = Sync(
        at_ms=0,
        reply_to=_TICKET,
        group_id="group",
        generation=generation,
        member_id="member",
        assignments={"member": b""},
    )
    assert shard.handle(sync).records, "the group has no assignment"
    return driver, shard, generation


def _cost_us(call: Callable[[], object], count: int = 1) -> float:
    """Return the µs of CPU of a call: the best of several times ``count`` hundred calls."""
    times = []
    for _ in range(_REPETITIONS):
        began = time.process_time()
        for _ in range(_CALLS * count):
            call()
        times.append(time.process_time() - began)
    return min(times) / (_CALLS * count) * 1e6
