"""The processes of a simulated world."""

from __future__ import annotations

from collections.abc import Hashable

from partage.proposals.designs.catalog import find_design
from partage.proposals.join_group.settings import CoordinatorSettings, MemberSettings
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


def test_timer_that_is_cancelled_at_its_deadline_does_not_fire() -> None:
    design = find_design("broker-side")(CoordinatorSettings(), MemberSettings(group_id="g"))
    world = World(design, WorldOptions(topics={"t": 1}), seed=1)
    process = CancellingProcess(world)
    world.run(20)
    assert process.fired == ["first"]
