"""The options of one world, drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

import msgspec

RECIPES: Final = ("election", "pool", "single_writer", "processor", "membership")


class RecipeScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one world.

    Attributes:
        seed: Determines everything random.
        recipe: One of `RECIPES`.
        brokers: The number of brokers; several share a ZooKeeper.
        processes: The number of processes with the recipe.
        session_timeout_ms: The session timeout of all members.
        heartbeat_interval_ms: Their interval of heartbeats.
        rebalance_timeout_ms: Time for which their group waits for a member; not of a processor.
        stop_ms: Time that work gets to stop; None for the recipe's default.
        cleanup_share: The longest time that work takes to stop, as a share of this time.
        step_s: The longest time of one step of the work, in seconds.
        failure_share: The share of steps in which the user's code raises, during the faults.
        rebalance_delay_ms: Time for which a pool waits for a lost worker.
        units: The number of units, or of partitions of each topic.
        is_static: The members of a `Membership` have instance ids.
        faults: The number of faults that the world draws.
        session_pauses: The number of pauses and cuts for about the session timeout.
        departures: How often a process leaves and comes back.
        broker_kills: The number of short restarts of a broker.
        connection_faults: The number of faults of single connections.
        late_responses: How often a process is suspended while a response is on its way, and cut off
            when it continues.
        session_faults: The number of faults of a coordinator's session in ZooKeeper.
        within_s: The time in which faults begin, in seconds.
    """

    seed: int
    recipe: str
    brokers: int
    processes: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    stop_ms: int | None
    cleanup_share: float
    step_s: float
    failure_share: float
    rebalance_delay_ms: int
    units: int
    is_static: bool
    faults: int
    session_pauses: int
    departures: int
    broker_kills: int
    connection_faults: int
    late_responses: int
    session_faults: int
    within_s: float

    @property
    def session_s(self) -> float:
        """The session timeout in seconds."""
        return self.session_timeout_ms / 1000

    @property
    def stop_s(self) -> float:
        """The time that work gets to stop, in seconds."""
        return (self.heartbeat_interval_ms if self.stop_ms is None else self.stop_ms) / 1000

    @property
    def cleanup_s(self) -> float:
        """The longest time that work takes to stop, in seconds."""
        return self.cleanup_share * self.stop_s

    @property
    def member_options(self) -> dict[str, Any]:
        """The options of a member of the group."""
        return {
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "request_timeout_ms": 3_000 if self.seed % 2 else 30_000,
        }

    @property
    def group_options(self) -> dict[str, Any]:
        """The options of a recipe whose group has its own rebalance timeout."""
        return {**self.member_options, "rebalance_timeout_ms": self.rebalance_timeout_ms}


def draw_scenario(seed: int, changes: Mapping[str, Any] | None = None) -> RecipeScenario:
    """Return the world of a seed; the recipes take turns.

    Args:
        seed: The seed.
        changes: Fields of the scenario to replace.
    """
    rng = Random(f"recipes {seed}")
    session_ms = rng.choice((3_000, 6_000, 10_000))
    heartbeat_ms = rng.choice((500, 1_000))
    stop_ms = rng.choice((None, None, 200, session_ms // 6))
    # Members learn of a rebalance within one heartbeat interval, and the leases outlast it.
    shortest_ms = 2 * heartbeat_ms + (stop_ms or heartbeat_ms) + 1_000
    is_calm = rng.random() < 0.1
    brokers = rng.choice((1, 1, 1, 3))
    scenario = RecipeScenario(
        seed=seed,
        recipe=RECIPES[seed % len(RECIPES)],
        brokers=brokers,
        processes=rng.choice((2, 3, 3, 4)),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        rebalance_timeout_ms=rng.choice((shortest_ms, session_ms, 20_000, 60_000)),
        stop_ms=stop_ms,
        cleanup_share=rng.choice((0.0, 0.5, 0.9)),
        step_s=rng.choice((0.05, 0.2, 0.7)),
        failure_share=rng.choice((0.0, 0.0, 0.003, 0.02)),
        rebalance_delay_ms=rng.choice((0, 2_000, 10_000)),
        units=rng.choice((1, 3, 6)),
        is_static=rng.random() < 0.25,
        faults=0 if is_calm else rng.choice((0, 3, 8)),
        session_pauses=0 if is_calm else rng.choice((0, 3, 8)),
        departures=rng.choice((0, 3, 8)),
        broker_kills=0 if is_calm else rng.choice((0, 0, 2, 5)),
        connection_faults=0 if is_calm else rng.choice((0, 0, 6)),
        session_faults=0 if is_calm or brokers == 1 else rng.choice((1, 4)),
        late_responses=0 if is_calm else rng.choice((0, 3)),
        within_s=40.0,
    )
    return msgspec.structs.replace(scenario, **(changes or {}))
