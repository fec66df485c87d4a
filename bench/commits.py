"""OffsetCommits per second that are acknowledged after they are on disk.

100 members with one connection each commit one partition repeatedly. Each member sends the next
commit when it gets a response. The limit is the disk's fdatasync, which is printed with the figure.
One sync serves about half of the clients: the other half sends its commits during the sync.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bench.brokers import KAFKA, KFAKE, OURS, Broker, starts
from bench.figures import Figure, figures_of_rounds
from bench.load import Caller, closed_loop, encoded, percentile
from bench.machine import LOAD_CORE, fdatasync_time
from bench.members import TOPIC, connect_group, form
from bench.topics import create_topic
from bench.worker_process import WorkerProcess
from partage.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

TITLE = "Commits"

_CLIENTS = 100
_VERSION = 8


class CommitRound(NamedTuple):
    """One round."""

    per_s: float
    cpu_us: float  # of the broker, per commit
    p99_ms: float


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure with and without sync, for one group and for many."""
    for sync in ("disk", "os"):
        yield from _compared(sync, is_quick, with_kafka)


async def commit_load(
    broker: Broker, groups: int, tag: str, warm_up_s: float, seconds: float
) -> CommitRound:
    """Let the members of ``groups`` groups commit."""
    if tag == "0":
        await create_topic(broker.address, TOPIC, _CLIENTS)
    callers, frames = await commit_clients(broker, groups, f"committing-{groups}-{tag}")
    if warm_up_s:
        await closed_loop(callers, frames, warm_up_s)
    cpu = broker.cpu_s()
    load = await closed_loop(callers, frames, seconds)
    cpu = broker.cpu_s() - cpu
    for caller in callers:
        caller.close()
    return CommitRound(
        load.per_s, cpu / load.responses * 1e6, percentile(load.latencies_s, 0.99) * 1e3
    )


async def commit_clients(
    broker: Broker, groups: int, prefix: str
) -> tuple[list[Caller], list[bytes]]:
    """Form groups; return the connections of their 100 members, and a commit for each."""
    callers: list[Caller] = []
    frames: list[bytes] = []
    for number in range(groups):
        group = await connect_group(
            broker.address, f"{prefix}-{number}", _CLIENTS // groups, heartbeat_interval_s=0.05
        )
        await form(group)
        for member in group.members:
            member.stop_heartbeats()
            partition = OffsetCommitPartition(
                partition_index=len(callers), committed_offset=42, committed_metadata=""
            )
            request = OffsetCommitRequest(
                group_id=group.group_id,
                generation_id_or_member_epoch=member.generation,
                member_id=member.member_id,
                topics=[OffsetCommitTopic(name=TOPIC, partitions=[partition])],
            )
            callers.append(member.caller)
            frames.append(encoded(OFFSET_COMMIT, _VERSION, request))
    return callers, frames


def _compared(sync: str, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    rounds, seconds = (1, 2.0) if is_quick else (5, 3.0)
    warm_up = {OURS: 1.0, KAFKA: 2.0 if is_quick else 15.0, KFAKE: 1.0}
    is_synced = sync == "disk"
    seen: dict[tuple[str, int], list[CommitRound]] = {}
    syncs_ms = []
    with ExitStack() as stack:
        load = stack.enter_context(WorkerProcess(LOAD_CORE))
        started = starts(with_kafka, sync=sync, with_kfake=True)
        brokers = [stack.enter_context(broker) for broker in started]
        for turn in range(rounds):
            for groups in (1, _CLIENTS):
                syncs_ms.append(fdatasync_time().median_ms)
                for broker in brokers:
                    first = warm_up[broker.name] if not turn else 0.5
                    seen.setdefault((broker.name, groups), []).append(
                        load.run(commit_load, broker, groups, str(turn), first, seconds)
                    )
    sync_ms = statistics.median(syncs_ms)
    how = "synced" if is_synced else "not synced"
    for groups in (1, _CLIENTS):
        of_groups = {broker.name: seen[broker.name, groups] for broker in brokers}
        p99_ms = (
            f"{name} {statistics.median(one.p99_ms for one in rounds):.1f} ms"
            for name, rounds in of_groups.items()
        )
        many = "one group" if groups == 1 else f"{groups} groups"
        yield from figures_of_rounds(
            f"commits, {_CLIENTS} members of {many}, {how}",
            "/s",
            {name: [one.per_s for one in rounds] for name, rounds in of_groups.items()},
            ratios_wanted={KAFKA: 1.0},
            note=(f"the disk's fdatasync takes {sync_ms:.2f} ms; " if is_synced else "")
            + f"p99: {', '.join(p99_ms)}",
        )
        yield from figures_of_rounds(
            "the same: CPU for each commit",
            "µs",
            {name: [one.cpu_us for one in rounds] for name, rounds in of_groups.items()},
            less_is_better=True,
        )
