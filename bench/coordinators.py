"""The coordinators of all designs of consumer groups, each with 5,000 members on one core.

The simulator runs a group of each design and records the events of its coordinator: the group
forms, then it is stable for half a minute. A new coordinator in the same process then handles the
recorded events. So its time includes neither the simulated members nor the network.

Not included: sockets, frames and the storage of records. Members have two partitions and commit
every 5 s.
"""

from __future__ import annotations

import gc
import pickle
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench.figures import Figure
from bench.machine import BROKER_CORE
from bench.worker_process import WorkerProcess
from partage.proposals import machine
from partage.proposals.comparison.cell import CellRun, Workload
from partage.proposals.designs.catalog import DESIGNS, find_design
from partage.proposals.designs.two_phase import TwoPhaseEager
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings

TITLE = "Coordinators of the designs"

_PEER = TwoPhaseEager.name
_FORM_MS = 10_000
_STEADY_MS = 30_000
_BATCH = 1_000
_ROUNDS = 3


class Recording(NamedTuple):
    """The events of a coordinator, each encoded: while the group forms, and after that."""

    form: list[bytes]
    steady: list[bytes]


class CoordinatorCost(NamedTuple):
    """The cost of one coordinator.

    ``worst_s`` is the CPU time of the event that takes longest, ``worst_event`` its description.
    """

    form_s: float
    steady_share: float
    worst_s: float
    worst_event: str
    memory_bytes: int


class _Recorder:
    """A coordinator that records its events."""

    def __init__(self, coordinator: Any, events: list[bytes]) -> None:
        self._coordinator = coordinator
        self._events = events

    def handle(self, event: machine.Event) -> Any:
        self._events.append(pickle.dumps(event))
        return self._coordinator.handle(event)

    def apply(self, record: Any) -> None:
        self._coordinator.apply(record)


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure all designs, and compare them with the accepted one."""
    members = 200 if is_quick else 5_000
    costs = {}
    for name in DESIGNS:
        with WorkerProcess(BROKER_CORE) as process:
            costs[name] = process.submit(measure_coordinator, name, members).result()

    yield from compare(costs, members)


def compare(costs: dict[str, CoordinatorCost], members: int) -> Iterator[Figure]:
    """Return the figures of coordinators, by the name of the design."""

    def figures(what: str, unit: str, field: str, factor: float) -> Iterator[Figure]:
        for name, cost in costs.items():
            yield Figure(
                what=f"{name}: {what}",
                unit=unit,
                ours=getattr(cost, field) * factor,
                peer_name="" if name == _PEER else _PEER,
                peer=None if name == _PEER else getattr(costs[_PEER], field) * factor,
                less_is_better=True,
                note=cost.worst_event if field == "worst_s" else "",
            )

    yield from figures(f"{members:,} members form a group", "s CPU", "form_s", 1)
    yield from figures("heartbeats or pings, and commits", "% of a core", "steady_share", 100)
    yield from figures("the longest event", "ms CPU", "worst_s", 1e3)
    yield from figures("memory for each member", "KB", "memory_bytes", 1e-3 / members)


def measure_coordinator(design: str, members: int) -> CoordinatorCost:
    """Measure the coordinator of one design."""
    recording = record_events(design, members)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)  # as in the broker
    totals = [_replay_batches(design, recording) for _ in range(_ROUNDS)]
    longest = [_longest_event(design, recording) for _ in range(_ROUNDS)]
    worst_s, worst_event = sorted(longest)[_ROUNDS // 2]
    return CoordinatorCost(
        form_s=statistics.median(form_s for form_s, _ in totals),
        steady_share=statistics.median(steady_s for _, steady_s in totals) / (_STEADY_MS / 1e3),
        worst_s=worst_s,
        worst_event=worst_event,
        memory_bytes=_memory(design, recording),
    )


def record_events(design: str, members: int) -> Recording:
    """Run a group in the simulator, and return the events of its coordinator."""
    run = CellRun(Workload(design=design, members=members, phases=()), lambda: 0)
    world = run.world
    events: list[bytes] = []
    process = world.coordinator
    assert process is not None, "a new world has a coordinator"
    if world.design.watches_topics:  # the coordinator was elected before this recording
        events.append(pickle.dumps(machine.Elected(at_ms=0, topics=dict(world.topics))))
    process.machine = _Recorder(process.machine, events)
    world.count_message = lambda message: None  # type: ignore[method-assign]  # saves the encoding
    run.start_members(members)
    world.run(_FORM_MS)
    assert world.is_stable, f"{design} did not become stable in {_FORM_MS} ms"
    formed = len(events)
    world.run(_STEADY_MS)
    return Recording(events[:formed], events[formed:])


def new_coordinator(design: str) -> Any:
    """Return a new coordinator of a design."""
    settings = DesignMemberSettings(group_id="compared")
    return find_design(design)(CoordinatorSettings(), settings).coordinator()


def _replay_batches(design: str, recording: Recording) -> tuple[float, float]:
    """Return the CPU time of both parts in s."""
    coordinator = new_coordinator(design)
    formed, steady = recording
    return _replay(coordinator, formed), _replay(coordinator, steady)


def _replay(coordinator: Any, events: list[bytes]) -> float:
    spent_ns = 0
    handle = coordinator.handle
    for begin in range(0, len(events), _BATCH):
        batch = [pickle.loads(each) for each in events[begin : begin + _BATCH]]
        begin_ns = time.thread_time_ns()
        for event in batch:
            handle(event)
        spent_ns += time.thread_time_ns() - begin_ns
    return spent_ns / 1e9


def _longest_event(design: str, recording: Recording) -> tuple[float, str]:
    """Return the CPU time of the longest event in s, with its description."""
    coordinator = new_coordinator(design)
    longest_ns, longest = 0, None
    for event in _decoded(recording):
        begin_ns = time.thread_time_ns()
        coordinator.handle(event)
        spent_ns = time.thread_time_ns() - begin_ns
        if spent_ns > longest_ns:
            longest_ns, longest = spent_ns, event
    return longest_ns / 1e9, _describe(longest)


def _describe(event: Any) -> str:
    match event:
        case machine.MessageReceived(message=message):
            return type(message).__name__
        case machine.TimerFired(key=key):
            return type(key).__name__
        case _:
            return type(event).__name__


def _decoded(recording: Recording) -> Iterable[Any]:
    for events in recording:
        for each in events:
            yield pickle.loads(each)


def _memory(design: str, recording: Recording) -> int:
    """Return the memory that the coordinator keeps, with the requests that it refers to."""
    tracemalloc.start()
    coordinator = new_coordinator(design)
    for event in _decoded(recording):
        coordinator.handle(event)
    del event
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept
