"""Worlds with random faults: one seed gives one plan, one history and one verdict."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.world import World, WorldOptions

_TOPICS: Final = {"t": 7, "u": 3}
_SUBSCRIPTIONS: Final = (frozenset({"t"}), frozenset({"t", "u"}), frozenset({"u"}))
_STEPS_MAX: Final = 12
_GAP_MAX_MS: Final = 20_000
_HEAL_MS: Final = 300_000


class FaultVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one world; ``rule`` is None if no rule was broken.

    ``faults`` are the steps that were taken, in order.
    """

    seed: int
    rule: str | None
    description: str
    faults: tuple[str, ...]


class FaultTrial:
    """A world under faults that are drawn from a seed.

    Args:
        design: Creates the design.
        seed: The seed.
        has_mixed_subscriptions: True if members subscribe to different topics.
    """

    def __init__(
        self, design: Callable[[], Design], seed: int, *, has_mixed_subscriptions: bool = True
    ) -> None:
        self._rng = Random(f"trial {seed}")
        self._seed = seed
        self._has_mixed_subscriptions = has_mixed_subscriptions
        self._started = 0
        options = WorldOptions(
            topics=dict(_TOPICS),
            delay_max_ms=self._rng.choice((2, 50, 400)),
            disk_delay_ms=self._rng.choice((1, 30)),
            failover_ms=self._rng.choice((10, 3_000, 60_000)),
            stale_metadata_ms=self._rng.choice((0, 20_000)),
        )
        self.world = World(design(), options, seed)

    def run(self) -> FaultVerdict:
        """Run the world, heal all faults, and check the rules."""
        world, rng = self.world, self._rng
        taken: list[str] = []
        rule, description = None, ""
        try:
            for _ in range(rng.randint(1, 4)):
                self.join()
            for _ in range(rng.randint(1, _STEPS_MAX)):
                world.run(rng.randrange(_GAP_MAX_MS))
                name = rng.choice(list(FAULTS))
                if FAULTS[name](self):
                    taken.append(name)
            self._heal()
            if not world.run_until_stable(_HEAL_MS):
                rule = "convergence"
                description = f"partitions without a reader: {world.readers.unread}"
        except AssertionError as error:
            rule, description = "invariant", str(error)
        known = {
            each
            for finding in world.design.findings
            if not set(finding.faults).isdisjoint(taken)
            for each in finding.rules
        }
        for broken in world.broken_rules:
            if broken.rule not in known:
                rule, description = broken.rule, broken.description
                break
        return FaultVerdict(
            seed=self._seed, rule=rule, description=description, faults=tuple(taken)
        )

    def _heal(self) -> None:
        """End all faults, and start a member that subscribes to every topic."""
        self.world.network.heal()
        self._start(_SUBSCRIPTIONS[1])

    def _start(self, topics: frozenset[str]) -> None:
        self._started += 1
        self.world.start_member(MemberTemplate(name=f"m{self._started}", topics=topics))

    # Faults: each returns False if it is not possible now

    def join(self) -> bool:
        """Start a member."""
        subscriptions = _SUBSCRIPTIONS if self._has_mixed_subscriptions else _SUBSCRIPTIONS[1:2]
        self._start(self._rng.choice(subscriptions))
        return True

    def leave(self) -> bool:
        """Close a member."""
        live = self.world.live_members
        if live:
            self.world.stop_member(self._rng.choice(live))
        return bool(live)

    def crash(self) -> bool:
        """Kill a member, with or without its machine."""
        live = self.world.live_members
        if live:
            self._rng.choice(live).crash(silently=self._rng.random() < 0.5)
        return bool(live)

    def pause(self) -> bool:
        """Stop a member for a time."""
        live = self.world.live_members
        if live:
            self._rng.choice(live).pause(self._rng.choice((1_000, 20_000, 100_000)))
        return bool(live)

    def cut(self) -> bool:
        """Cut a member off from the coordinator for a time."""
        live = self.world.live_members
        if live:
            name = self._rng.choice(live).name
            self.world.network.cut(name, self._rng.choice((1_000, 20_000, 100_000)))
        return bool(live)

    def crash_coordinator(self) -> bool:
        """Kill the coordinator."""
        if self.world.coordinator is None:
            return False
        self.world.crash_coordinator()
        return True

    def add_partitions(self) -> bool:
        """Add a partition to a topic."""
        self.world.add_partitions(self._rng.choice(list(_TOPICS)), 1)
        return True


#: The faults, by name.
FAULTS: Final[dict[str, Callable[[FaultTrial], bool]]] = {
    "join": FaultTrial.join,
    "leave": FaultTrial.leave,
    "crash": FaultTrial.crash,
    "pause": FaultTrial.pause,
    "cut": FaultTrial.cut,
    "coordinator crash": FaultTrial.crash_coordinator,
    "new partition": FaultTrial.add_partitions,
}
