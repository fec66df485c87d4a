"""Runs one world: changes and faults, recovery, a last burst of records, and the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.result import ShellResult, judge_world
from partage.testing.topic_worlds.author import Author
from partage.testing.topic_worlds.scenario import SHARED_INSTANCE_ID, TopicScenario
from partage.testing.topic_worlds.topic_contents import TopicContents
from partage.testing.topic_worlds.topic_member import TopicMember
from partage.testing.topic_worlds.topic_rules import TopicRules
from partage.testing.world.world import PartageWorld

_WARM_UP_S: Final = 4.0
#: Longer than the default session of a member that was killed, and a rebalance, and longer than a
#: commit that fails after ``default_api_timeout_ms``.
_SETTLE_S: Final = 75.0
_CHECK_S: Final = 0.25
_DELIVERY_S: Final = 60.0
_FRESH_S: Final = 20.0
_CLOSE_S: Final = 30.0
#: Longer than the longest interval of auto commits.
_COMMITTED_S: Final = 8.0
_PROBED_S: Final = 10.0


def run_topic_world(scenario: TopicScenario) -> ShellResult:
    """Run one world in this process."""
    with TemporaryDirectory(prefix="partage-topics-") as directory:
        world = PartageWorld(
            scenario.seed, Path(directory), scenario.settings, brokers=scenario.brokers
        )
        run = _TopicWorld(world, scenario)
        rule, description = judge_world(world, run.main)
    return ShellResult(
        seed=scenario.seed,
        rule=rule,
        description=description,
        records=run.contents.record_count,
        reads=run.rules.read_count,
        faults=[str(fault) for fault in world.plan],
        story=world.story,
    )


class _TopicWorld:
    """One world while it runs."""

    def __init__(self, world: PartageWorld, scenario: TopicScenario) -> None:
        self._world = world
        self._scenario = scenario
        self.contents = TopicContents()
        options = next(iter(scenario.readers.values())).options
        self.rules = TopicRules(
            self.contents,
            lambda: world.elapsed_s,
            world.break_rule,
            self._committed,
            may_repeat=scenario.may_repeat,
            is_committed_only=options["isolation_level"] == "read_committed",
            resets_to_end=options["auto_offset_reset"] == "latest",
        )
        self._author = Author(world, scenario, self.contents)
        self._readers: dict[str, TopicMember] = {}

    def _committed(self, partition: TopicPartition) -> int | None:
        try:
            return self._world.committed(self._scenario.group).get(partition)
        except RuntimeError:  # no broker coordinates the group now
            return None

    async def main(self) -> None:
        """The test of the world."""
        world, scenario = self._world, self._scenario
        world.allow("duplicate", "commit_ahead")
        for topic, count in scenario.partitions.items():
            await self._author.create(topic, count)
        for name, plan in scenario.readers.items():
            reader = TopicMember(name, scenario.group, plan, self.rules, world, scenario.seed)
            self._readers[name] = reader
            world.process(reader.main, name=name)
        await asyncio.sleep(_WARM_UP_S)
        world.draw_faults(scenario.faults, within_s=scenario.within_s)
        await self._author.run()
        await asyncio.sleep(1)
        await self._recover()
        await self._check_fresh()
        await self._close()

    async def _recover(self) -> None:
        world = self._world
        await asyncio.sleep(max(0, _WARM_UP_S + self._scenario.within_s - world.elapsed_s))
        world.heal()
        twins = [
            name
            for name, plan in self._scenario.readers.items()
            if plan.options.get("group_instance_id") == SHARED_INSTANCE_ID
        ]
        for name in twins[1:]:
            self._readers[name].is_stopped = True
        for name, reader in self._readers.items():
            reader.is_calm = True
            if not reader.is_stopped and not world.is_running(name):
                world.restart(name)
        await asyncio.sleep(_SETTLE_S)

    @property
    def _topics(self) -> set[str]:
        return {
            topic
            for reader in self._readers.values()
            if not reader.is_stopped
            for topic in reader.topics
        }

    async def _check_fresh(self) -> None:
        """Check that all records are read, and new ones soon."""
        begins: dict[TopicPartition, int] = {}
        partitions = [p for p in self.contents.partitions() if p.topic in self._topics]
        if self._resets_to_end:
            begins = self.rules.ends(partitions)
        await self._wait_for_delivery(begins, _DELIVERY_S)
        owned = self.rules.owned(self._topics)
        if missing := [str(p) for p in partitions if p not in owned]:
            self._world.break_rule("delivery", f"partitions without an owner: {missing}")
        for partition in partitions:
            await self._author.write(partition)
        await self._wait_for_delivery(begins, _FRESH_S)
        await asyncio.sleep(_COMMITTED_S)
        readers = [reader for reader in self._readers.values() if not reader.is_stopped]
        for reader in readers:
            reader.is_probed = False
        await self._world.until(
            lambda: all(reader.is_probed for reader in readers), timeout_s=_PROBED_S
        )

    @property
    def _resets_to_end(self) -> bool:
        plans = self._scenario.readers.values()
        return any(plan.options["auto_offset_reset"] == "latest" for plan in plans)

    async def _wait_for_delivery(self, begins: dict[TopicPartition, int], timeout_s: float) -> None:
        read, read_s = -1, self._world.elapsed_s
        while unread := self.rules.unread(self._topics, begins):
            now_s = self._world.elapsed_s
            if self.rules.read_count > read:
                read, read_s = self.rules.read_count, now_s
            if now_s > read_s + timeout_s:
                text = f"no record in {timeout_s:g} s; unread: {unread[:5]}"
                self._world.break_rule("delivery", text)
                await asyncio.Event().wait()
            await asyncio.sleep(_CHECK_S)

    async def _close(self) -> None:
        for reader in self._readers.values():
            reader.is_stopped = True
        await self._world.until(
            lambda: not any(map(self._world.is_running, self._readers)), timeout_s=_CLOSE_S
        )
