"""The processes of a simulated world."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from partage.lab.environment.clock import START_MS
from partage.proposals import machine
from partage.proposals.comparison.cell import CellRun, Workload
from partage.proposals.designs.catalog import DESIGNS, find_design
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.processes import Process
from partage.proposals.simulation.world import DesignWorld, WorldOptions


class CancellingProcess(Process):
    """A process whose first timer cancels the second one."""

    def __init__(self, world: DesignWorld) -> None:
        super().__init__(world)
        self.fired: list[Hashable] = []
        self._set_timers([("first", 10), ("second", 10)])

    def _fire(self, key: Hashable) -> None:
        self.fired.append(key)
        self._set_timers([("second", None)])


class RecordingProcess(Process):
    """A process that records its timers and calls."""

    def __init__(self, world: DesignWorld) -> None:
        super().__init__(world)
        self.heard: list[tuple[Hashable, int]] = []
        self._set_timers([("timer", 10)])

    def _fire(self, key: Hashable) -> None:
        self.hear(key)

    def hear(self, what: Hashable) -> None:
        self.heard.append((what, self.world.clock.now_ms - START_MS))


class NumberingMachine:
    """A coordinator that stores a number for each event."""

    def __init__(self) -> None:
        self.events = 0

    def handle(self, event: machine.Event) -> machine.CoordinatorOutcome[Any, int]:
        outcome = machine.CoordinatorOutcome[Any, int](event.at_ms)
        outcome.records.append(self.events)
        self.events += 1
        return outcome


def new_world(seed: int = 1, disk_delay_ms: int = 2) -> DesignWorld:
    design = find_design("two-phase-eager")(
        CoordinatorSettings(), DesignMemberSettings(group_id="g")
    )
    options = WorldOptions(topics={"t": 1}, disk_delay_ms=disk_delay_ms)
    return DesignWorld(design, options, seed)


@pytest.fixture
def world() -> DesignWorld:
    """A world of the accepted design with one topic."""
    return new_world()


def test_timer_that_is_cancelled_at_its_deadline_does_not_fire(world: DesignWorld) -> None:
    process = CancellingProcess(world)
    world.run(20)
    assert process.fired == ["first"]


def test_paused_process_hears_everything_in_order_afterwards(world: DesignWorld) -> None:
    process = RecordingProcess(world)
    process.pause(50)
    process.when_awake(lambda: process.hear("first"))
    world.run(30)
    process.when_awake(lambda: process.hear("second"))
    process.pause(10)  # a shorter pause does not end the longer one
    assert process.heard == []
    world.run(30)
    assert process.heard == [("first", 50), ("timer", 50), ("second", 50)]


def test_dead_process_hears_nothing(world: DesignWorld) -> None:
    process = RecordingProcess(world)
    process.is_alive = False
    process.when_awake(lambda: process.hear("call"))
    world.run(20)
    assert process.heard == []


def test_crashed_coordinator_handles_no_event(world: DesignWorld) -> None:
    crashed = world.coordinator
    assert crashed is not None
    world.start_member(MemberTemplate(name="m", topics=frozenset({"t"})))
    assert world.run_until_settled(60_000)
    events: list[machine.Event] = []
    coordinator: Any = crashed.machine
    coordinator.handle = events.append
    world.crash_coordinator()
    assert not crashed.is_alive
    assert world.run_until_settled(180_000)
    assert events == []
    assert world.coordinator not in (None, crashed)


def test_crash_loses_the_last_of_the_records_that_are_not_durable() -> None:
    found = set()
    for seed in range(20):
        world = new_world(seed, disk_delay_ms=10)
        coordinator: Any = world.coordinator
        coordinator.machine = NumberingMachine()
        for _ in range(4):
            coordinator._handle(machine.ConnectionLost(at_ms=0, connection=ConnectionId(1)))
            world.run(6)
        world.crash_coordinator()  # 24 ms after the first record
        found.add(tuple(world._records))
        world.run(100)
        assert tuple(world._records) in found  # a dead process writes nothing
    assert found == {(0, 1, 2), (0, 1, 2, 3)}


def connected_world() -> tuple[DesignWorld, Any, list[machine.Event]]:
    """Return a world with a member, and the events of its coordinator from now on."""
    world = new_world()
    member: Any = world.start_member(MemberTemplate(name="m", topics=frozenset({"t"})))
    assert world.run_until_settled(60_000)
    events: list[machine.Event] = []
    coordinator: Any = world.coordinator
    handle = coordinator.machine.handle
    coordinator.machine.handle = lambda event: events.append(event) or handle(event)
    return world, member, events


def test_lost_connection_loses_messages_and_both_sides_notice() -> None:
    world, member, events = connected_world()
    world.network.delay_max_ms = 50
    while not member.machine._waiting:
        events.clear()
        world.run(1)
    assert events == []  # the heartbeat is under way
    lost = member._link
    member.lose_connection()
    world.run(50)
    assert type(events[0]) is machine.ConnectionLost
    assert member._link is not lost
    assert world.run_until_settled(60_000)
    assert world.readers.stats.stopped == 0  # the session continues on another connection


def test_expired_coordinator_is_silent_until_its_connections_close() -> None:
    world, member, events = connected_world()
    world.crash_coordinator(close_after_ms=10_000)
    world.run(9_000)  # another coordinator has taken over
    assert world.coordinator is not None
    assert member._link is not None
    assert events == []
    old = member._link
    world.run(2_000)
    assert member._link is not old
    assert world.run_until_settled(60_000)


def test_paused_coordinator_answers_later() -> None:
    world, _, events = connected_world()
    coordinator: Any = world.coordinator
    coordinator.pause(10_000)
    world.run(9_900)
    assert events == []
    world.run(200)
    assert machine.MessageReceived in {type(each) for each in events}
    assert world.run_until_settled(60_000)
    assert world.readers.stats.stopped == 0


@pytest.mark.parametrize("design", DESIGNS)
def test_durable_records_do_not_accumulate(design: str) -> None:
    workload = Workload(design=design, members=4, phases=())
    run = CellRun(workload, lambda: 0)
    run.run()
    counts = []
    for _ in range(3):
        for member in run.world.live_members[:2]:
            run.world.stop_member(member)
        run.start_members(2)
        run.world.run(120_000)
        counts.append(len(list(run.world._records)))
    # The consumer protocol keeps records of members, also of those that have left.
    assert design == "consumer-protocol" or counts[0] == counts[1] == counts[2]
    read_before = {each.name: each.reading for each in run.world.live_members}
    run.world.crash_coordinator(loses_writes=False)
    assert run.world.run_until_settled(300_000)
    assert sum(map(len, read_before.values())) == 8
    assert sum(len(each.reading) for each in run.world.live_members) == 8
    assert not run.world.broken_rules
