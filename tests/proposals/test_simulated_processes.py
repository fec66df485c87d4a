"""The processes of a simulated world."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from partage.lab.environment.clock import START_MS
from partage.proposals import machine
from partage.proposals.designs.catalog import find_design
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.processes import Process
from partage.proposals.simulation.world import World, WorldOptions


class CancellingProcess(Process):
    """A process whose first timer cancels the second one."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fired: list[Hashable] = []
        self._set_timers([("first", 10), ("second", 10)])

    def _fire(self, key: Hashable) -> None:
        self.fired.append(key)
        self._set_timers([("second", None)])


class RecordingProcess(Process):
    """A process that records its timers and calls."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.heard: list[tuple[Hashable, int]] = []
        self._set_timers([("timer", 10)])

    def _fire(self, key: Hashable) -> None:
        self.hear(key)

    def hear(self, what: Hashable) -> None:
        self.heard.append((what, self.world.clock.now_ms - START_MS))


@pytest.fixture
def world() -> World:
    """A world of the accepted design with one topic."""
    design = find_design("two-phase-eager")(CoordinatorSettings(), MemberSettings(group_id="g"))
    return World(design, WorldOptions(topics={"t": 1}), seed=1)


def test_timer_that_is_cancelled_at_its_deadline_does_not_fire(world: World) -> None:
    process = CancellingProcess(world)
    world.run(20)
    assert process.fired == ["first"]


def test_paused_process_hears_everything_in_order_afterwards(world: World) -> None:
    process = RecordingProcess(world)
    process.pause(50)
    process.when_awake(lambda: process.hear("first"))
    world.run(30)
    process.when_awake(lambda: process.hear("second"))
    process.pause(10)  # a shorter pause does not end the longer one
    assert process.heard == []
    world.run(30)
    assert process.heard == [("first", 50), ("timer", 50), ("second", 50)]


def test_dead_process_hears_nothing(world: World) -> None:
    process = RecordingProcess(world)
    process.is_alive = False
    process.when_awake(lambda: process.hear("call"))
    world.run(20)
    assert process.heard == []


def test_crashed_coordinator_handles_no_event(world: World) -> None:
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
