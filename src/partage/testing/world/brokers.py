"""The brokers of a world: how they run, and what they store.

One broker keeps all state on its disk. Several brokers are a cluster with the simulated ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from partage.broker.broker import Broker
from partage.broker.cluster.facade import ClusterJoinError
from partage.broker.cluster.state_address import StateAddress
from partage.broker.overrides import apply_overrides
from partage.lab.environment.disk import CrashDisk
from partage.log.disk import Disk
from partage.log.memory_disk import MemoryDisk
from partage.log.results import Refusal
from partage.model.settings import BrokerSettings, GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import shard_of
from partage.store.zk_schema import ClusterDoc, ShardDoc, ZkPaths, decode
from partage.testing.broker_state import find_topic, read_committed, read_offsets, read_records
from partage.testing.settings import Settings, to_texts
from partage.testing.world.loop_clock import LoopClock
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world.zookeeper import ZOOKEEPER, WorldZooKeeper

if TYPE_CHECKING:
    from partage.client.consumer.records import Record

#: Lag reports and group events would only lengthen the story.
_OVERRIDES: Final = {"partage.group.events.enable": "false", "offsets.topic.num.partitions": "4"}
#: Each shard of a cluster is a node in ZooKeeper.
_CLUSTER_OVERRIDES: Final = {"transaction.state.log.num.partitions": "4"}
_PORT: Final = 9092
_STATE: Final = StateAddress(servers=f"{ZOOKEEPER}:2181", path="/partage")
_PATHS: Final = ZkPaths(_STATE.path)


def check_settings(settings: Settings) -> None:
    """Raise `ValueError` or `TypeError` if a setting of a broker is unknown or invalid."""
    apply_overrides(BrokerSettings(), to_texts(settings))


class WorldBrokers:
    """The brokers of a world.

    Args:
        count: the number of brokers.
        settings: the settings of each broker, by Kafka's names.
        zookeeper: ZooKeeper, which several brokers need.
        on_started: called with a broker and its disk when it accepts requests, in its process.
        power_rng: draws what the disk of a killed broker keeps of unsynced data; None if it keeps
            all.

    Attributes:
        names: the names of the brokers, which are also their hosts.
        broker_class: the class of the brokers that start from now on.
    """

    def __init__(
        self,
        count: int,
        settings: Settings,
        zookeeper: WorldZooKeeper | None,
        on_started: Callable[[Broker, Disk], None],
        power_rng: Random | None = None,
    ) -> None:
        self.names = tuple(f"broker-{number}" for number in range(1, count + 1))
        overrides = _OVERRIDES if zookeeper is None else {**_OVERRIDES, **_CLUSTER_OVERRIDES}
        self.broker_class = Broker
        self._settings = apply_overrides(BrokerSettings(), {**overrides, **to_texts(settings)})
        self._zookeeper = zookeeper
        self._on_started = on_started
        self._power_rng = power_rng
        make_disk = MemoryDisk if power_rng is None else CrashDisk
        self._disks: dict[str, Disk] = {name: make_disk() for name in self.names}
        self._running: dict[str, Broker] = {}
        self._latest: dict[str, Broker] = {}  # also those that have ended

    @property
    def offsets_retention_s(self) -> float:
        """The time for which offsets of empty groups are kept, in seconds."""
        return self._settings.groups.offsets_retention_ms / 1000

    @property
    def group_settings(self) -> GroupSettings:
        """The settings of groups."""
        return self._settings.groups

    @property
    def addresses(self) -> str:
        """The addresses of all brokers, for clients."""
        return ",".join(f"{name}:{_PORT}" for name in self.names)

    def main(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return the main coroutine function of a broker's process."""
        return partial(self._serve, name)

    async def _serve(self, name: str) -> None:
        disk, settings = self._disks[name], self._settings
        clock = LoopClock(cast(VirtualLoop, asyncio.get_running_loop()))
        if self._zookeeper is not None:
            settings = msgspec.structs.replace(settings, node_id=self.names.index(name) + 1)
            broker = await self.broker_class.start(
                disk,
                settings,
                host=name,
                port=_PORT,
                state=_STATE,
                begin_session=self._zookeeper.begin_session,
                clock=clock,
            )
        else:
            broker = await self.broker_class.start(
                disk, settings, host=name, port=_PORT, clock=clock
            )
        self._running[name] = self._latest[name] = broker
        self._on_started(broker, disk)
        fault = await broker.wait_failed()
        await broker.stop()
        raise fault

    def on_end(self, name: str) -> None:
        """Forget a broker that was killed or has failed; its disk stays."""
        self._running.pop(name, None)

    def lose_power(self, name: str) -> None:
        """Drop unsynced data of a killed broker, if the power fails in this world."""
        disk = self._disks.get(name)
        if isinstance(disk, CrashDisk):
            assert self._power_rng is not None
            disk.io_errors.clear()
            disk.crash(self._power_rng)

    def fail_disk(self, name: str, operation: str, code: int) -> None:
        """Let the operations of a kind fail on a broker's disk.

        Args:
            name: the broker.
            operation: ``write``, ``sync`` or ``read``.
            code: the error number.
        """
        disk = self._disks[name]
        assert isinstance(disk, CrashDisk), "only a disk that loses power can fail"
        disk.io_errors[operation] = code

    def repair_disks(self) -> None:
        """Let all operations on the disks succeed again."""
        for disk in self._disks.values():
            if isinstance(disk, CrashDisk):
                disk.io_errors.clear()

    @property
    def has_started(self) -> bool:
        """True if all brokers accept requests.

        In a cluster, they also know each other, and each shard is loaded by one of them.
        """
        if len(self._running) < len(self.names):
            return False
        if self._zookeeper is None:
            return True
        brokers = list(self._running.values())
        ids = list(range(1, len(brokers) + 1))
        memberships = [broker.cluster for broker in brokers if broker.cluster is not None]
        hosts = [[*broker.coordinator.hosts, *broker.transactions.hosts] for broker in brokers]
        return all(each.live_broker_ids() == ids for each in memberships) and all(
            any(host.shard is not None for host in shard) for shard in zip(*hosts, strict=True)
        )

    async def wait_loaded(self) -> None:
        """Return once the state of all brokers is loaded."""
        for broker in list(self._running.values()):
            await broker.wait_loaded()

    # What they store

    async def create_topic(
        self, broker: str, name: str, partitions: int, configs: Settings
    ) -> None:
        """Create a topic through a broker.

        Raises:
            ValueError: the broker refused it; the message says why.
        """
        admin = self._running[broker].topic_admin
        created = await admin.create(name, partitions, to_texts(configs), ())
        if isinstance(created, Refusal):
            raise ValueError(f"topic {name!r} was not created: {created.message}")

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic, by partition and offset.

        Raises:
            LookupError: the topic does not exist.
            RuntimeError: a broker that has some of them is not running.
        """
        count = find_topic(self._running[self.any_running()], topic).partition_count
        for name in [self.leader(topic, index) for index in range(count)]:
            if name not in self._running:
                raise RuntimeError(f"{name} is not running; use world.restart({name!r})")
        found = [
            record
            for name, broker in self._running.items()
            for record in read_records(broker, self._disks[name], topic)
        ]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group.

        Raises:
            RuntimeError: no broker coordinates the group now.
        """
        name = self.coordinator(group_id)
        if name is None:
            raise RuntimeError(f"no broker coordinates group {group_id!r} now")
        return read_committed(self._running[name], group_id)

    def coordinator(self, group_id: str) -> str | None:
        """Return the broker that coordinates a group; None if no broker does now.

        A paused broker may not know that another one has taken over the group, so the one with the
        highest epoch counts.
        """
        best, best_epoch = None, -1
        for name, broker in self._running.items():
            epoch = 0
            if broker.cluster is not None:
                shard = shard_of(group_id, broker.cluster.shard_count)
                owned = broker.cluster.stores[shard].epoch
                epoch = -1 if owned is None else owned
            if epoch > best_epoch:
                best, best_epoch = name, epoch
        return best

    def registered_coordinator(self, group_id: str) -> str | None:
        """Return the broker that owns the shard of a group according to ZooKeeper.

        Returns:
            None if no broker owns it, and in a world with a single broker.
        """
        if self._zookeeper is None:
            return None
        nodes = self._zookeeper.nodes.nodes
        shards = decode(_PATHS.cluster, nodes[_PATHS.cluster].data, ClusterDoc).shards
        path = _PATHS.shard(shard_of(group_id, shards))
        owner = decode(path, nodes[path].data, ShardDoc).broker
        return None if owner is None else self.names[owner - 1]

    def leader(self, topic: str, partition: int) -> str:
        """Return the broker that has a partition, whether it is running or not.

        Raises:
            LookupError: the topic or the partition does not exist.
            RuntimeError: no broker of a cluster is running.
        """
        is_single = self._zookeeper is None
        broker = self._latest[self.names[0]] if is_single else self._running[self.any_running()]
        found = find_topic(broker, topic)
        if not 0 <= partition < found.partition_count:
            raise LookupError(f"topic {topic!r} has no partition {partition}")
        return self.names[0 if is_single else found.topic.brokers[partition] - 1]

    def committed_offset(self, group_id: str, partition: TopicPartition, missing: int = 0) -> int:
        """Return the committed offset of a group.

        Args:
            group_id: the group.
            partition: the partition.
            missing: the result if there is none, or if it is being loaded.
        """
        name = self.coordinator(group_id)
        if name is None:
            return missing
        shard = self._running[name].coordinator.host_of(group_id).shard
        record = None if shard is None else shard.offsets.get(group_id, {}).get(partition)
        return missing if record is None else record.offset

    def offsets(self, partition: TopicPartition, *, only_visible: bool) -> list[int]:
        """Return the offsets of all records of a partition; [] if it does not exist.

        Args:
            partition: the partition. If its broker is not running, its last state counts.
            only_visible: leave out records of open and aborted transactions.
        """
        for name, broker in self._latest.items():
            if broker.log_manager.partition(*partition) is not None:
                return read_offsets(broker, self._disks[name], partition, only_visible=only_visible)
        return []

    def any_running(self) -> str:
        """Return the first broker that is running.

        Raises:
            RuntimeError: no broker is running.
        """
        for name in self.names:
            if name in self._running:
                return name
        raise RuntimeError("no broker is running; use world.restart(world.broker)")


def is_fault_of_surroundings(error: BaseException) -> bool:
    """Return True if a supervisor starts a broker again after this error."""
    return isinstance(error, ClusterJoinError)
