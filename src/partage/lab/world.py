"""One simulation: brokers, network, disks, consumers, producers and rogue clients, all from one
seed.

Most worlds have one broker. Several brokers share a ZooKeeper, which stores the state of the
groups; the topics are on the first broker.

`partage.lab.runner` executes the plan of the scenario. `partage.lab.liveness` then heals all faults
and checks the world. Everything that occurs goes into `World.history`, to which the checkers
subscribe.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from partage.assignors import Assignor, CooperativeSticky, Range, RoundRobin, Sticky
from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.coordinator.group import Group
from partage.coordinator.states import GroupState
from partage.lab import history
from partage.lab.brokers.broker import Broker
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.producer import Producer
from partage.lab.context import WorldContext
from partage.lab.names import GROUPS, SUBSCRIPTIONS
from partage.lab.options import Scenario
from partage.model.topic_partition import TopicPartition


class World(WorldContext):
    """A simulated cluster with its clients, clock and history."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        #: The offsets that were delivered to any consumer, by group and partition.
        self.delivered: dict[str, dict[TopicPartition, set[int]]]
        self.delivered = defaultdict(lambda: defaultdict(set))
        self.history.subscribe(history.RecordsDelivered, self._count_delivered)
        self.processes: list[ConsumerProcess] = []
        self.producers: list[Producer] = []
        self._name_count = 0
        broker_ids = range(1, self.options.brokers + 1)
        self.brokers = [Broker(self, broker_id) for broker_id in broker_ids]
        self.broker = self.brokers[0]
        self.network.brokers.update((broker.broker_id, broker) for broker in self.brokers)

    def _count_delivered(self, entry: history.RecordsDelivered) -> None:
        seen = self.delivered[entry.group_id][entry.partition]
        seen.update(offset for offset, _ in entry.records)

    # Start and healing

    def start(self) -> None:
        """Start all brokers and clients."""
        for broker in self.brokers:
            broker.start()
        self.producers = [Producer(self, number) for number in range(self.options.producers)]
        for _ in range(self.options.members):
            self.add_member()
        if self.options.has_second_group or self.options.shard_count > 1:
            self.add_member(GROUPS[1])

    def heal_faults(self) -> None:
        """Heal all faults; no further fault is injected."""
        self.is_healed = True
        self.network.heal()
        if self.zookeeper is not None:
            self.zookeeper.heal()
        self.crash_point = None
        for broker in self.brokers:
            broker.disk.io_errors.clear()
            broker.disk.crash_after = None
            broker.disk_slow = (0, 0)
            broker.resume()
        for process in self.processes:
            process.heal()
        self.append_history(history.FaultsHealed(at_ms=self.now_ms))

    # Processes and topics

    def add_member(
        self, group_id: str = GROUPS[0], instance_id: str | None = None
    ) -> ConsumerProcess:
        """Start another consumer process with random topics and assignors."""
        options, rng = self.options, self.rng
        if instance_id is None and rng.random() < options.static_share:
            taken = {p.instance_id for p in self.processes if p.is_alive}
            free = [name for name in ("i1", "i2", "i3", "i4") if name not in taken]
            instance_id = free[0] if free else None
        return self.add_process(
            name=self.new_process_name(),
            group_id=group_id,
            topics=rng.choice(SUBSCRIPTIONS),
            protocol=ConsumerProtocol(self._assignors()),
            instance_id=instance_id,
        )

    def add_process(self, **arguments: Any) -> ConsumerProcess:
        """Start a consumer process with these arguments."""
        process = ConsumerProcess(self, **arguments)
        self.processes.append(process)
        return process

    def new_process_name(self) -> str:
        """Return a process name that was not used before."""
        self._name_count += 1
        return f"m{self._name_count}"

    def _assignors(self) -> list[Assignor]:
        match self.options.assignors:
            case "range":
                return [Range()]
            case "sticky":
                return [Sticky()]
            case "roundrobin":
                return [RoundRobin()]
            case "mixed":  # during an upgrade from eager to cooperative
                offered: list[Assignor] = [CooperativeSticky()]
                return self.rng.choice((offered, [*offered, Range()], [Range(), *offered]))
        return [CooperativeSticky()]

    def add_partition(self, topic: str) -> None:
        """Add a partition to a topic and open its log."""
        if self.broker.maintenance.add_partition(topic, self.partition_counts[topic]):
            self.partition_counts[topic] += 1

    @property
    def live_processes(self) -> list[ConsumerProcess]:
        """The consumer processes that are alive."""
        return [process for process in self.processes if process.is_alive]

    def members(self, group_id: str = GROUPS[0]) -> list[ConsumerProcess]:
        """Return the processes that are members of a group or want to be."""
        return [p for p in self.processes if p.group_id == group_id and p.is_member]

    def end_offset(self, partition: TopicPartition) -> int:
        """Return the high watermark of a partition; 0 while the broker is down."""
        storage = self.broker.storage
        return 0 if storage is None else storage.partitions[partition].log.high_watermark

    # Coordinators

    def shard_owner(self, shard: int) -> Broker | None:
        """Return the broker that has loaded a shard and may respond; None if there is none."""
        for broker in self.brokers:
            if broker.is_up and broker.hosts[shard].shard is not None and broker.may_answer:
                return broker
        return None

    def coordinator(self, group_id: str = GROUPS[0]) -> Broker | None:
        """Return the coordinator of a group; None if no broker may respond."""
        return self.shard_owner(self.shard_of(group_id))

    def coordinator_id(self, group_id: str) -> int | None:
        """Return the broker id of a group's coordinator; None if no broker may respond."""
        coordinator = self.coordinator(group_id)
        return None if coordinator is None else coordinator.broker_id

    def groups(self) -> dict[str, Group] | None:
        """Return all groups of all shards; None while a shard has no coordinator."""
        found: dict[str, Group] = {}
        for shard in range(self.options.shard_count):
            owner = self.shard_owner(shard)
            core = None if owner is None else owner.hosts[shard].shard
            if core is None:
                return None
            found |= core.groups
        return found

    def state_of(self, group_id: str) -> GroupState | None:
        """Return the state of a group; None if it does not exist or is not loaded."""
        coordinator = self.coordinator(group_id)
        core = None if coordinator is None else coordinator.core_of(group_id)
        group = None if core is None else core.groups.get(group_id)
        return None if group is None else group.state
