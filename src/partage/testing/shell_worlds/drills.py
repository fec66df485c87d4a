"""Disturbances of stable groups, one at a time, with the rules of a world without faults.

- ``grow``: a topic gets a partition while a member polls late.
- ``busy_cut``: a member does not poll while its group rebalances and its session ends.
- ``overlap``: a user commits again while the coordinator does not answer a commit.
- ``late_start``: a consumer starts before its broker, and polls again after it.
- ``api_gap``: brokers offer no JoinGroup on new connections for a while, as behind a proxy to an
  older broker.
- ``short_close``: all consumers close with a short timeout, and the coordinator is slow; the runner
  does this at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from partage.testing.shell_worlds.delivery_rules import DeliveryRules
from partage.testing.shell_worlds.reader import Reader
from partage.testing.shell_worlds.scenario import ShellScenario
from partage.testing.shell_worlds.stable_groups import StableGroups
from partage.testing.shell_worlds.wire_watch import WireWatch
from partage.testing.world.errors import WaitTimeoutError
from partage.testing.world.world import PartageWorld
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.offset_commit import OFFSET_COMMIT

_METADATA_S: Final = 2.0
#: Longer than a short request timeout and a refresh of topics, less than the poll interval.
_BUSY_S: Final = 5.4
#: Longer than a turn of a reader.
_TURN_S: Final = 2.0
_REACTION_S: Final = 1.5
#: Longer than the timeout of calls, less than the poll interval.
_HELD_S: Final = 4.0
_OVERLAP_S: Final = 40.0
_STOP_S: Final = 30.0
#: A consumer does not poll for this time; meanwhile, a lookup fails and a later one succeeds.
_START_S: Final = 6.0
_DOWN_S: Final = 1.0
_LOOKUP_S: Final = 2.6
_GAP_S: Final = 2.0
_BACKOFF_S: Final = 3.0


class Drills:
    """The drills of one world.

    Args:
        world: The world.
        scenario: Its options.
        watch: The requests.
        rules: What the readers own and read.
        readers: The reader processes, by name.
        groups: Checks their groups.
        is_leader: Returns True if a reader leads its group.
        grow_topic: Adds a partition to the topic that all readers read.
        holds: The times for which requests of a process wait at brokers, by process and API.
    """

    def __init__(
        self,
        world: PartageWorld,
        scenario: ShellScenario,
        watch: WireWatch,
        rules: DeliveryRules,
        readers: Mapping[str, Reader],
        groups: StableGroups,
        is_leader: Callable[[str], bool],
        grow_topic: Callable[[], Awaitable[None]],
        holds: dict[tuple[str, int], float],
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._watch = watch
        self._rules = rules
        self._readers = readers
        self._groups = groups
        self._is_leader = is_leader
        self._grow_topic = grow_topic
        self._holds = holds
        self._rng = Random(f"drills {scenario.seed}")

    async def run(self) -> None:
        """Run the drills that the world has drawn."""
        for drill in self._scenario.drills:
            match drill:
                case "grow" if len(self._world.brokers) == 1:
                    await self._grow()
                case "busy_cut":
                    await self._busy_cut()
                case "overlap":
                    await self._overlap()
                case "late_start" if len(self._world.brokers) == 1:
                    await self._late_start()
                case "api_gap":
                    await self._api_gap()

    def _limit_s(self) -> float:
        """Return the longest time of a rebalance in any group."""
        return max(self._groups.rebalance_s(plan.group) for plan in self._scenario.readers.values())

    async def _wait_until_assigned(self, after: str, limit_s: float) -> None:
        for group in sorted({plan.group for plan in self._scenario.readers.values()}):
            await self._groups.wait_until_assigned([*self._groups.plans(group)], after, limit_s)

    async def _grow(self) -> None:
        """Add a partition: each group rebalances once, although one member polls late."""
        # The leader would notice the partition, but not join before it polls.
        names = [name for name in sorted(self._readers) if not self._is_leader(name)]
        name = self._rng.choice(names or sorted(self._readers))
        reader = self._readers[name]
        reader.busy_s = _BUSY_S
        # its time without polls begins before the rebalance, and ends before its timeout
        await self._wait_for(lambda: not reader.busy_s, f"{name} takes no turn", _STOP_S)
        self._watch.reset_counts()
        await self._grow_topic()
        limit_s = _METADATA_S + _TURN_S + _BUSY_S + self._limit_s()
        await self._wait_until_assigned("a topic got a partition", limit_s)
        await asyncio.sleep(_METADATA_S + self._limit_s())
        for each, plan in self._scenario.readers.items():
            strategies = plan.options.get("partition_assignment_strategy", ("",))
            joins_max = 2 if strategies[0] == "cooperative-sticky" else 1
            self._groups.check_joins([each], "a topic got a partition", joins_max)

    async def _busy_cut(self) -> None:
        """Cut a member off that has to revoke partitions, and does not poll: it loses them."""
        name = self._eager_member()
        if name is None:
            return
        plan, reader = self._scenario.readers[name], self._readers[name]
        other = self._rng.choice([each for each in self._groups.plans(plan.group) if each != name])
        session_s = plan.options["session_timeout_ms"] / 1000
        self._rules.may_lose, self._rules.is_healthy = True, False
        reader.busy_s = session_s + 2 * _TURN_S + 2 * _REACTION_S
        await asyncio.sleep(_TURN_S)
        self._readers[other].is_stopped = True
        await asyncio.sleep(_REACTION_S)
        for broker in self._world.brokers:
            self._world.cut(name, broker, session_s + _REACTION_S)
        await asyncio.sleep(session_s + 3 * _TURN_S)
        self._readers[other].is_stopped = False
        if not self._world.is_running(other):
            self._world.restart(other)
        await self._settle(f"{name} was cut off")

    def _eager_member(self) -> str | None:
        """Return a member of a group that gives up all in a rebalance, and may poll late."""
        found = [
            name
            for name, plan in self._scenario.readers.items()
            if plan.options.get("partition_assignment_strategy") == ["range"]
            and plan.options["max_poll_interval_ms"] > plan.options["session_timeout_ms"] * 2
            and plan.commits != "auto"
            and len(self._groups.plans(plan.group)) > 1
            and self._rules.owned(name)
        ]
        return self._rng.choice(found) if found else None

    async def _overlap(self) -> None:
        """Let the coordinator answer the commits of a member late, while it commits twice."""
        names = [name for name in sorted(self._readers) if self._rules.owned(name)]
        name = self._rng.choice(names)
        reader = self._readers[name]

        def hold() -> None:  # not earlier: another commit of the reader may be on its way
            self._holds[name, OFFSET_COMMIT.key] = _HELD_S

        reader.before_overlap = hold
        await self._wait_for(
            lambda: reader.before_overlap is None, "commits do not end", _OVERLAP_S
        )
        self._holds.pop((name, OFFSET_COMMIT.key), None)
        await asyncio.sleep(_HELD_S + 1)

    async def _late_start(self) -> None:
        """Start a consumer without a broker: its first polls fail, but none after the start."""
        # A pattern is matched, and a protocol chosen, before a poll can begin to join.
        plans = self._scenario.readers.items()
        names = [
            name
            for name, plan in plans
            if not plan.has_pattern and plan.options.get("group_protocol") != "auto"
        ]
        if not names:
            return
        name = self._rng.choice(names)
        reader, world = self._readers[name], self._world
        self._rules.may_lose, self._rules.is_healthy = True, False
        await self._stop(name)
        world.kill(world.broker)
        world.restart(name)
        await asyncio.sleep(_DOWN_S)
        reader.busy_s = _START_S
        await asyncio.sleep(_LOOKUP_S)
        self._watch.reset_counts()
        world.restart(world.broker)
        await self._wait_for(lambda: self._has_joined(name), f"{name} does not join", _BACKOFF_S)
        reader.is_connected = True
        await asyncio.sleep(_START_S)
        reader.is_connected = False
        await self._settle(f"{name} started without a broker")

    def _has_joined(self, name: str) -> bool:
        counts = self._groups.counts(name)
        return bool(counts.get("JoinGroup") or counts.get("ConsumerGroupHeartbeat"))

    async def _api_gap(self) -> None:
        """Let a member start while new connections do not offer JoinGroup."""
        plans = self._scenario.readers.items()
        names = [name for name, plan in plans if "session_timeout_ms" in plan.options]
        if not names:
            return
        name = self._rng.choice(names)
        await self._stop(name)
        self._watch.hidden_apis[name] = JOIN_GROUP.key
        self._world.restart(name)
        await asyncio.sleep(_GAP_S)
        del self._watch.hidden_apis[name]
        await asyncio.sleep(_BACKOFF_S)
        await self._settle(f"{name} found no JoinGroup")

    async def _stop(self, name: str) -> None:
        reader = self._readers[name]
        reader.is_stopped = True
        await self._wait_for(
            lambda: not self._world.is_running(name), f"{name} does not end", _STOP_S
        )
        reader.is_stopped = False

    async def _settle(self, after: str) -> None:
        """Wait until each partition has an owner; then the rules without faults apply again."""
        await self._wait_until_assigned(after, self._limit_s() + _TURN_S)
        await asyncio.sleep(self._limit_s())
        self._rules.may_lose, self._rules.is_healthy = False, True

    async def _wait_for(self, condition: Callable[[], bool], problem: str, limit_s: float) -> None:
        try:
            await self._world.until(condition, timeout_s=limit_s)
        except WaitTimeoutError:
            self._world.break_rule("rebalance", problem)
