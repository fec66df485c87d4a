"""Observes the transitions of state machines in simulated worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from partage.proposals import machine
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.processes import DesignMemberProcess
from partage.proposals.simulation.world import DesignWorld, WorldOptions
from partage.proposals.state_table import SESSION_OVER, TransitionKey, effect_names, event_name

#: A disturbance of a world.
Disturbance = Callable[[DesignWorld, Random], None]
_SUBSCRIPTIONS = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}))
_STEPS = 40
_MEMBERS_MAX = 3
Transitions = dict[TransitionKey, set[str]]


class ObservedMachine:
    """A state machine that notes its transitions.

    Args:
        inner: The state machine.
        seen: Gets the transitions.
        state: Returns the state.
        name_event: Returns the name of an event, before it is handled.
    """

    def __init__(
        self,
        inner: Any,
        seen: Transitions,
        state: Callable[[Any], str],
        name_event: Callable[[Any, machine.Event], str],
    ) -> None:
        self._inner = inner
        self._seen = seen
        self._state = state
        self._name_event = name_event
        self._last = ("", "")  # the state and event of the current step
        self._effects: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def handle(self, event: machine.Event) -> Any:
        """Handle an event. The positions of a commit belong to the event that requested them."""
        if not isinstance(event, machine.PositionsTaken):
            self._last = (self._state(self._inner), self._name_event(self._inner, event))
            self._effects = frozenset()
        outcome = self._inner.handle(event)
        self._effects |= effect_names(outcome)
        actions = getattr(outcome, "actions", ())
        if not any(isinstance(each, machine.CommitDue) for each in actions):
            before, name = self._last
            after = self._state(self._inner)
            if before == after and f"{name} error" in self._effects:
                name = f"{name} refused"
            if before != after or self._effects:
                self._seen.setdefault((before, name, after), set()).update(self._effects)
        return outcome


def run_world(design: Design, seed: int, disturbances: Sequence[Disturbance]) -> None:
    """Run a world through many disturbances, one of each kind as often as another.

    Slow networks show the states in which a process waits for a message.
    """
    random = Random(f"transitions {seed}")
    options = WorldOptions(
        topics={"t": 2, "u": 1},
        delay_max_ms=random.choice((2, 400, 3_000)),
        failover_ms=random.choice((10, 3_000, 60_000)),
        stale_metadata_ms=random.choice((0, 20_000)),
    )
    world = DesignWorld(design, options, seed)
    for _ in range(_STEPS):
        world.run(random.choice((1, 3, 10, 300, 3_000, 20_000)))
        random.choice((*_DISTURBANCES, *disturbances))(world, random)
        if len(world.live_members) < 2:
            join(world, random)
        elif len(world.live_members) > _MEMBERS_MAX:
            leave(world, random)
    world.network.heal()
    world.run(60_000)


def deliver(process: DesignMemberProcess, event: machine.Event) -> None:
    """Let a member handle an event when it is awake."""
    process.when_awake(lambda: process.handle(event))


def join(world: DesignWorld, random: Random) -> None:
    """Start a member."""
    topics = random.choice(_SUBSCRIPTIONS)
    world.start_member(MemberTemplate(name=f"m{len(world.members)}", topics=topics))


def leave(world: DesignWorld, random: Random) -> None:
    """Close a member."""
    for process in pick(world, random):
        deliver(process, machine.LeaveRequested(at_ms=0))


def crash(world: DesignWorld, random: Random) -> None:
    """Kill a member, with or without its machine."""
    for process in pick(world, random):
        process.crash(silently=random.random() < 0.5)


def pause(world: DesignWorld, random: Random) -> None:
    """Stop a member for a time."""
    for process in pick(world, random):
        process.pause(random.choice((1_000, 20_000, 100_000)))


def cut(world: DesignWorld, random: Random) -> None:
    """Cut a member off from the coordinator for a time."""
    for process in pick(world, random):
        world.network.cut(process.name, random.choice((1_000, 20_000, 100_000)))


def change_subscription(world: DesignWorld, random: Random) -> None:
    """Subscribe a member to other topics."""
    for process in pick(world, random):
        topics = random.choice(_SUBSCRIPTIONS)
        deliver(process, machine.SubscriptionChanged(at_ms=0, topics=topics))


def add_partition(world: DesignWorld, random: Random) -> None:
    """Add a partition to a topic."""
    world.add_partitions(random.choice(("t", "u")), 1)


def crash_coordinator(world: DesignWorld, random: Random) -> None:
    """Kill the coordinator."""
    world.crash_coordinator()


def pause_coordinator(world: DesignWorld, random: Random) -> None:
    """Stop the coordinator for a time."""
    if world.coordinator is not None:
        world.coordinator.pause(random.choice((3_000, 20_000, 60_000)))


def pick(world: DesignWorld, random: Random) -> list[DesignMemberProcess]:
    """Return one of the live members, or none if there is none."""
    return random.sample(world.live_members, min(1, len(world.live_members)))


_DISTURBANCES = (
    join,
    leave,
    crash,
    pause,
    cut,
    change_subscription,
    add_partition,
    crash_coordinator,
    pause_coordinator,
)


def observe(
    design: Any,
    coordinators: Transitions,
    members: Transitions,
    coordinator_state: Callable[[Any], str],
) -> None:
    """Let a design create observed state machines."""
    new_coordinator, new_member = design.coordinator, design.member

    def name_member_event(member: Any, event: machine.Event) -> str:
        is_over = member.is_session_over(event.at_ms)
        return SESSION_OVER if is_over else event_name(event)

    design.coordinator = lambda: ObservedMachine(
        new_coordinator(), coordinators, coordinator_state, lambda _, event: event_name(event)
    )
    design.member = lambda template: ObservedMachine(
        new_member(template), members, lambda member: str(member.state), name_member_event
    )
