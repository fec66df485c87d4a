"""Checks of groups without faults: rates, answers, a restart of a broker, and of a member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

from partage.client.connection import Connection
from partage.client.options import ClientOptions
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules
from partage.testing.shell_worlds.fetch_retry_rules import FetchRetryRules
from partage.testing.shell_worlds.reader import ITERATION_S, Reader
from partage.testing.shell_worlds.scenario import ReaderPlan, ShellScenario
from partage.testing.shell_worlds.wire_watch import WireWatch
from partage.testing.world.errors import WaitTimeoutError
from partage.testing.world.world import PartageWorld
from partage.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from partage.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.consumer_protocol import decode_assignment

CALM_S: Final = 12.0
#: Requests that a member of a stable group does not send.
_NEEDLESS: Final = (
    "JoinGroup",
    "SyncGroup",
    "FindCoordinator",
    "LeaveGroup",
    "ListOffsets",
    "OffsetFetch",
)
#: The most requests of a reader in a second of calm.
_RATE_MAX: Final = {"Heartbeat": 1.5, "ConsumerGroupHeartbeat": 2.5, "Fetch": 25, "Metadata": 2}
#: The longest time between two heartbeats; members send one each second.
_BEAT_GAP_S: Final = 1.3
_PROBE_S: Final = 5.0
#: The most requests for offsets when a consumer is asked for all that it knows.
_OFFSET_REQUESTS: Final = 4
_BROKER_DOWN_S: Final = (0.1, 0.8)
#: The time in which readers and writers continue after a restart of the broker.
_RECONNECT_S: Final = 3.0
_ATTEMPTS_MAX: Final = 25
#: Resets of connections without another failure: the time until the next fetch does not grow.
_RESETS: Final = 5
_RESET_S: Final = 0.45
_LATENCY_S: Final = 0.01
_SHORT_WAIT_S: Final = 0.5
#: Connections of the member, of the fetcher, and of the first request for metadata.
_CONNECTIONS_MAX: Final = 3
#: A member learns of a rebalance by a heartbeat, and acts on it when its user polls.
_HEARTBEAT_S: Final = 1.0
_REBALANCE_S: Final = 1.5
#: With the cooperative and the consumer protocol, a partition moves in two steps.
_STEPS: Final = 2
#: The most JoinGroups of a member for the leave or the join of another one.
_JOINS_MAX: Final = 2
PORT: Final = 9092


class StableGroups:
    """The groups of one world after all faults.

    Args:
        world: The world.
        scenario: Its options.
        watch: The requests.
        rules: What the readers own and read.
        fetch_rules: Checks their fetches.
        readers: The reader processes, by name.
        rng: Draws actions.
        partition_counts: The number of partitions of each topic.
    """

    def __init__(
        self,
        world: PartageWorld,
        scenario: ShellScenario,
        watch: WireWatch,
        rules: DeliveryRules,
        fetch_rules: FetchRetryRules,
        readers: Mapping[str, Reader],
        rng: Random,
        partition_counts: Mapping[str, int],
    ) -> None:
        self._partition_counts = partition_counts
        self._world = world
        self._scenario = scenario
        self._watch = watch
        self._rules = rules
        self._fetch_retry_rules = fetch_rules
        self._readers = readers
        self._rng = rng

    def plans(self, group: str) -> dict[str, ReaderPlan]:
        """Return the readers of a group, by name."""
        plans = self._scenario.readers
        return {name: plan for name, plan in plans.items() if plan.group == group}

    @property
    def _groups(self) -> list[str]:
        return sorted({plan.group for plan in self._scenario.readers.values()})

    def _partitions(self, names: Collection[str]) -> set[TopicPartition]:
        """Return the partitions that readers subscribe to."""
        topics = {topic for name in names for topic in self._readers[name].topics}
        counts = self._partition_counts.items()
        return {TopicPartition(t, n) for t, count in counts if t in topics for n in range(count)}

    def _owners(self, names: Collection[str]) -> dict[TopicPartition, list[str]]:
        owners: dict[TopicPartition, list[str]] = {}
        for name in names:
            for partition in self._rules.owned(name):
                owners.setdefault(partition, []).append(name)
        return owners

    def is_assigned(self, names: Collection[str]) -> bool:
        """True if each partition has one owner, and the owners are these readers."""
        owners = self._owners(names)
        is_unique = all(len(each) == 1 for each in owners.values())
        return is_unique and owners.keys() == self._partitions(names)

    # Rates

    async def check_rates(self) -> None:
        """Watch the requests of a calm time."""
        self._watch.reset_counts()
        begin_s = self._world.elapsed_s
        await asyncio.sleep(CALM_S)
        for name in self._readers:
            self._check_requests(name)
            self._check_heartbeats(name, begin_s)
            self._check_connections(name)

    def counts(self, name: str) -> dict[str, int]:
        """Return the numbers of requests of a reader, by API."""
        counts = self._watch.requests_by.items()
        return {api: count for (process, api), count in counts if process == name}

    def _check_requests(self, name: str) -> None:
        counts = self.counts(name)
        for api in _NEEDLESS:
            if counts.get(api, 0):
                self._world.break_rule("calm", f"{name} sent {counts[api]} {api} requests")
        plan = self._scenario.readers[name]
        # for each topic, for the subscription, and for the assignment of a leader
        refreshes = 1_250 * (2 + len(self._readers[name].topics))
        refreshes /= plan.options["metadata_max_age_ms"]
        rates = {**_RATE_MAX, "Metadata": max(_RATE_MAX["Metadata"], refreshes)}
        if plan.commits == "auto":
            rates["OffsetCommit"] = 1_250 / plan.options["auto_commit_interval_ms"]
        for api, rate in rates.items():
            if counts.get(api, 0) > rate * CALM_S * len(self._world.brokers):
                self._world.break_rule(
                    "calm", f"{name} sent {counts[api]} {api} requests in {CALM_S:g} s"
                )
        if counts.get("ApiVersions", 0) and not counts.get("Metadata", 0):
            self._world.break_rule("calm", f"{name} opened a connection")

    def _check_heartbeats(self, name: str, begin_s: float) -> None:
        times = [begin_s, *self._watch.beats_s[name], self._world.elapsed_s]
        gap_s = max(later - earlier for earlier, later in pairwise(times))
        if gap_s > _BEAT_GAP_S:
            self._world.break_rule("calm", f"{name} sent no heartbeat for {gap_s:.2f} s")

    def _check_connections(self, name: str) -> None:
        count = self._world.connection_count(name)
        if count > _CONNECTIONS_MAX + 2 * (len(self._world.brokers) - 1):
            self._world.break_rule("calm", f"{name} has {count} open connections")

    # Answers

    async def check_answers(self) -> None:
        """Ask the consumers and the coordinator about the groups, and compare the answers."""
        for name, reader in self._readers.items():
            reader.is_probed = False
            try:
                await self._world.until(
                    partial(_is_probed, reader),
                    timeout_s=self._probe_s(self._scenario.readers[name]),
                )
            except WaitTimeoutError:
                self._world.break_rule("answers", f"{name} did not answer")
        for group in self._groups:
            names = self.plans(group)
            if not self.is_assigned(names):
                self._world.break_rule("answers", f"{group} has the owners {self._owners(names)}")
            await self._describe(group)

    def _probe_s(self, plan: ReaderPlan) -> float:
        # requests for offsets wait behind a fetch on their connection
        waits_s = _OFFSET_REQUESTS * plan.options["fetch_max_wait_ms"] / 1000
        return _PROBE_S + self._turn_s(plan.group) + float(waits_s)

    async def _describe(self, group: str) -> None:
        plans = self.plans(group)
        coordinator = self._world.coordinator(group)
        assert coordinator is not None, "the group has a coordinator"
        connection = await Connection.open(Address(coordinator, PORT), ClientOptions())
        try:
            listed = await connection.send(LIST_GROUPS, ListGroupsRequest())
            entry = next((each for each in listed.groups if each.group_id == group), None)
            if entry is None or entry.group_state != "Stable":
                self._world.break_rule("answers", f"ListGroups returns {entry} for {group}")
                return
            if entry.group_type.lower() == "consumer":
                found = await self._describe_consumer(connection, group)
            else:
                found = await self._describe_classic(connection, group)
        finally:
            connection.close()
        expected = {name: set(self._rules.owned(name)) for name in plans}
        if found != expected:
            self._world.break_rule(
                "answers", f"the description of {group} is {found}, but members own {expected}"
            )

    async def _describe_classic(
        self, connection: Connection, group: str
    ) -> dict[str, set[TopicPartition]]:
        request = DescribeGroupsRequest(groups=[group])
        (described,) = (await connection.send(DESCRIBE_GROUPS, request)).groups
        if described.group_state != "Stable" or described.error_code:
            self._world.break_rule("answers", f"DescribeGroups returns {described}")
        self._check_instances(
            group,
            {
                each.client_host.removeprefix("/"): each.group_instance_id
                for each in described.members
            },
        )
        return {
            each.client_host.removeprefix("/"): {
                TopicPartition(topic.topic, number)
                for topic in decode_assignment(each.member_assignment).assigned_partitions
                for number in topic.partitions
            }
            for each in described.members
        }

    async def _describe_consumer(
        self, connection: Connection, group: str
    ) -> dict[str, set[TopicPartition]]:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        (described,) = (await connection.send(CONSUMER_GROUP_DESCRIBE, request)).groups
        is_current = described.group_epoch == described.assignment_epoch
        if described.group_state != "Stable" or described.error_code or not is_current:
            self._world.break_rule("answers", f"ConsumerGroupDescribe returns {described}")
        self._check_instances(
            group,
            {each.client_host.removeprefix("/"): each.instance_id for each in described.members},
        )
        for each in described.members:
            topics = self._readers[each.client_host.removeprefix("/")].topics
            is_expected = sorted(each.subscribed_topic_names) == sorted(topics)
            if not is_expected or each.member_epoch != described.group_epoch:
                self._world.break_rule("answers", f"ConsumerGroupDescribe has the member {each}")
        return {
            each.client_host.removeprefix("/"): {
                TopicPartition(topic.topic_name, number)
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            }
            for each in described.members
        }

    def _check_instances(self, group: str, found: dict[str, str | None]) -> None:
        plans = self.plans(group).items()
        expected = {name: plan.options.get("group_instance_id") for name, plan in plans}
        if found != expected:
            self._world.break_rule("answers", f"{group} has the instances {found}")

    # Restarts

    async def restart_broker(self) -> None:
        """Restart a broker: readers connect again soon, keep their partitions, and do not join."""
        world, watch = self._world, self._watch
        owned = {name: set(self._rules.owned(name)) for name in self._readers}
        attempts = {name: world.connection_attempts(name) for name in self._readers}
        world.kill(world.broker)
        await asyncio.sleep(self._rng.uniform(*_BROKER_DOWN_S))
        world.restart(world.broker)
        watch.reset_counts()
        # the lookup of the coordinator may wait behind a fetch on its connection
        waits_ms = [plan.options["fetch_max_wait_ms"] for plan in self._scenario.readers.values()]
        limit_s = _RECONNECT_S + max(waits_ms, default=0) / 1000
        await asyncio.sleep(limit_s)
        for name, reader in self._readers.items():
            counts = self.counts(name)
            if not watch.beats_s[name]:
                world.break_rule("reconnect", f"{name} sent no heartbeat in {limit_s:g} s")
            is_busy = reader.is_behind or reader.owns_nothing
            if not counts.get("Fetch") and not is_busy:
                world.break_rule("reconnect", f"{name} sent no Fetch in {limit_s:g} s")
            if counts.get("JoinGroup"):
                world.break_rule("reconnect", f"{name} joined after a restart of the broker")
            count = world.connection_attempts(name) - attempts[name]
            if count > _ATTEMPTS_MAX:
                world.break_rule("reconnect", f"{name} tried to connect {count} times")
            self._check_connections(name)
            if set(self._rules.owned(name)) != owned[name]:
                world.break_rule("reconnect", f"{name} lost partitions with a broker restart")

    async def reset_connections(self) -> None:
        """Reset all connections of the readers several times: each time they connect soon.

        A fetch must succeed between two resets. Otherwise the second one is a repeated failure, and
        its back-off is longer.
        """
        plans = self._scenario.readers.values()
        wait_s = max(plan.options["fetch_max_wait_ms"] for plan in plans) / 1000
        if wait_s > _SHORT_WAIT_S:
            return  # each lookup of the coordinator would wait behind a fetch until the next reset
        owned = {name: set(self._rules.owned(name)) for name in self._readers}
        for _ in range(_RESETS):
            # a reader without records to deliver always has a fetch under way
            fetching = {name for name, reader in self._readers.items() if not reader.is_behind}
            for name in self._readers:
                self._fetch_retry_rules.on_reset(name)
                self._world.reset_connections(name)
            await asyncio.sleep(_LATENCY_S)
            self._watch.reset_counts()
            await asyncio.sleep(_RESET_S)
            for name, reader in self._readers.items():
                is_busy = reader.is_behind or reader.owns_nothing
                if name in fetching and not self.counts(name).get("Fetch") and not is_busy:
                    self._world.break_rule(
                        "reconnect", f"{name} sent no Fetch within {_RESET_S:g} s after a reset"
                    )
            await asyncio.sleep(wait_s)
        await asyncio.sleep(_RECONNECT_S)
        for name in self._readers:
            if self.counts(name).get("JoinGroup") or set(self._rules.owned(name)) != owned[name]:
                self._world.break_rule("reconnect", f"{name} joined after a reset")
            if not self._watch.beats_s[name]:
                self._world.break_rule("reconnect", f"{name} sent no heartbeat after a reset")
            self._check_connections(name)

    def _turn_s(self, group: str) -> float:
        """Return the longest time between the end of a poll and that of the next one."""
        return max(
            plan.work_s + (ITERATION_S if plan.iterates else plan.poll_timeout_ms / 1000)
            for plan in self.plans(group).values()
        )

    def rebalance_s(self, group: str) -> float:
        """Return the longest time of a rebalance without faults."""
        delay_ms = self._scenario.settings["group.initial.rebalance.delay.ms"]
        step_s = _HEARTBEAT_S + self._turn_s(group)
        # The leader's Metadata request waits behind a fetch on the same connection.
        waits_ms = (plan.options["fetch_max_wait_ms"] for plan in self.plans(group).values())
        wait_s: float = (int(delay_ms) + max(waits_ms, default=0)) / 1000
        return _STEPS * step_s + wait_s + _REBALANCE_S

    async def restart_member(self, write_burst: Callable[[], None]) -> None:
        """Let one reader leave and join: its group soon has owners again, with few joins.

        Args:
            write_burst: Called before the reader joins: it then finds new records.
        """
        name = self._rng.choice(sorted(self._readers))
        plan, reader = self._scenario.readers[name], self._readers[name]
        others = [each for each in self.plans(plan.group) if each != name]
        is_static = "group_instance_id" in plan.options
        limit_s = self.rebalance_s(plan.group)
        self._watch.reset_counts()
        reader.is_stopped = True
        await self._world.until(lambda: not self._world.is_running(name), timeout_s=30)
        if others and not is_static:
            await self.wait_until_assigned(others, f"{name} left", limit_s)
        reader.is_stopped = False
        self.check_joins(others, f"{name} left", 0 if is_static else _JOINS_MAX)
        write_burst()
        self._world.restart(name)
        await self.wait_until_assigned([*others, name], f"{name} joined", limit_s)
        await asyncio.sleep(limit_s)
        self.check_joins(others, f"{name} joined", 0 if is_static else 2 * _JOINS_MAX)

    async def wait_until_assigned(self, names: list[str], after: str, limit_s: float) -> None:
        """Wait until each partition has one owner, and check that this does not take too long."""
        try:
            await self._world.until(lambda: self.is_assigned(names), timeout_s=limit_s)
        except WaitTimeoutError:
            self._world.break_rule(
                "rebalance", f"{limit_s:.1f} s after {after}, the owners are {self._owners(names)}"
            )

    def check_joins(self, names: list[str], after: str, joins_max: int) -> None:
        """Check that readers have not joined more often since `WireWatch.reset_counts`."""
        for name in names:
            count = self.counts(name).get("JoinGroup", 0)
            if count > joins_max:
                self._world.break_rule("rebalance", f"{name} joined {count} times after {after}")


def _is_probed(reader: Reader) -> bool:
    return reader.is_probed
