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
from collections.abc import Callable
from random import Random
from typing import Any, Final

from partage.assignors import Assignor, CooperativeSticky, Range, RoundRobin, Sticky
from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.coordinator.group import Group
from partage.coordinator.states import GroupState
from partage.lab import history
from partage.lab.brokers.broker import SimulatedBroker
from partage.lab.clients.classic_member import ClassicMember
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.group_loop import FIRST_LOOP_NUMBER, GroupLoop
from partage.lab.clients.group_member import HeartbeatMember, SimSubscription
from partage.lab.clients.isolated_reader import IsolatedReader
from partage.lab.clients.producer import Producer
from partage.lab.clients.transactional_producer import TransactionalProducer
from partage.lab.consumer_topics import TOPIC_NAMES
from partage.lab.context import WorldContext
from partage.lab.names import GROUPS, SUBSCRIPTIONS
from partage.lab.scenario import Scenario
from partage.model.topic_partition import TopicPartition

#: The regular expressions to which members with the consumer protocol subscribe.
_REGEXES: Final = ("k.*", "lc|kd", "[kl].*", "k[ab]")
#: When the members of a group with both protocols start: those with the classic one, the others.
#: The longest time in which a partition is added, and in which members learn of it.
_GROWTH_MAX_MS: Final = 15_000
_NOTICED_MS: Final = 3_100
_START_MAX_MS: Final = 300_000
_START_STEP_MS: Final = 10
#: Between two looks at the topics of consumer groups.
_TOPIC_DELAYS_MS: Final = (20, 100, 400)
_FIRST_MEMBERS_MS: Final = ((0, 0), (0, 4_000), (0, 8_000), (4_000, 0))


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
        #: All processes with a transactional id so far, zombies too.
        self.transactional_producers: list[TransactionalProducer] = []
        self.isolated_readers: list[IsolatedReader] = []
        #: All processes with a member of the group with the consumer protocol so far.
        self.consumer_members: list[HeartbeatMember] = []
        #: All processes with a member of that group with the classic protocol so far.
        self.classic_members: list[ClassicMember] = []
        self._consumer_rng = Random(f"consumer members {scenario.seed}")
        self._classic_rng = Random(f"classic members {scenario.seed}")
        self._name_count = 0
        #: Until then a topic may get a partition, or members may learn of it.
        self.is_growing_until_ms = 0
        self._are_topics_known = False  # by all brokers
        #: Returns True while a broker changes topics.
        self._are_topics_updated: Callable[[], bool] = lambda: False
        broker_ids = range(1, self.options.brokers + 1)
        self.brokers = [SimulatedBroker(self, broker_id) for broker_id in broker_ids]
        self.broker = self.brokers[0]
        self.network.brokers.update((broker.broker_id, broker) for broker in self.brokers)
        if self.zookeeper is not None:
            self.zookeeper.on_expired = self._on_session_expired

    def _count_delivered(self, entry: history.RecordsDelivered) -> None:
        seen = self.delivered[entry.group_id][entry.partition]
        seen.update(offset for offset, _ in entry.records)

    def _on_session_expired(self, session_id: int) -> None:
        for broker in self.brokers:
            if broker.session_id == session_id:
                self.append_history(
                    history.ZooKeeperSessionExpired(at_ms=self.now_ms, broker=broker.broker_id)
                )

    # Start and healing

    def start(self) -> None:
        """Start all brokers, and then all clients."""
        self.start_brokers()
        self._start_clients()

    def start_brokers(self) -> None:
        """Start all brokers, and wait until they are up."""
        for broker in self.brokers:
            broker.start()
        for _ in range(0, _START_MAX_MS, _START_STEP_MS):
            if all(broker.is_up for broker in self.brokers):
                break
            self.clock.run(_START_STEP_MS)
        else:
            raise AssertionError(f"a broker did not start within {_START_MAX_MS} ms")

    def _start_clients(self) -> None:
        self.producers = [Producer(self, number) for number in range(self.options.producers)]
        for _ in range(self.options.members):
            self.add_member()
        if self.options.has_second_group or self.options.shard_count > 1:
            self.add_member(GROUPS[1])
        if self.options.transactional_producers:
            self._start_transactions()
        if self.options.consumer_members:
            self._start_consumer_group()

    def _start_consumer_group(self) -> None:
        self.consumer_topics.on_changed = self._publish_consumer_topics
        self._publish_consumer_topics()
        self._update_consumer_topics()
        while not self._are_topics_known:
            self.clock.run(_START_STEP_MS)
        first_consumer_ms = 0
        if self.options.classic_members:
            first_classic_ms, first_consumer_ms = self._classic_rng.choice(_FIRST_MEMBERS_MS)
            for _ in range(self.options.classic_members):
                self.clock.call_later(first_classic_ms, self.add_classic_member)
        for _ in range(self.options.consumer_members):
            if first_consumer_ms:
                self.clock.call_later(first_consumer_ms, self.add_consumer_member)
            else:
                self.add_consumer_member()

    def _publish_consumer_topics(self) -> None:
        self._append_topics(is_known=False)
        for member in self.live_classic_members:
            delay_ms = self._classic_rng.choice((0, 500, 3_000))
            member.call_later(delay_ms, member.on_metadata_changed)

    def _append_topics(self, *, is_known: bool) -> None:
        images = self.consumer_topics.images.values()
        topics = tuple((each.name, each.topic_id, each.partition_count) for each in images)
        self._are_topics_known = is_known
        self.append_history(
            history.ConsumerTopicsChanged(at_ms=self.now_ms, topics=topics, is_known=is_known)
        )

    def _update_consumer_topics(self) -> None:
        """Let one broker after the other create, grow and delete topics as the catalogue says."""
        able = [broker for broker in self.brokers if broker.is_up and not broker.is_paused]
        if able and not self._are_topics_updated():
            self._are_topics_updated = able[0].update_topics()
        running = [broker for broker in self.brokers if broker.is_up]
        are_known = bool(running) and all(each.has_consumer_topics for each in running)
        if are_known and not self._are_topics_known:
            self._append_topics(is_known=True)
        delay_ms = self.action_rng.choice(_TOPIC_DELAYS_MS)
        self.clock.call_later(delay_ms, self._update_consumer_topics)

    def end(self) -> None:
        """End all processes."""
        self.has_ended = True
        for broker in self.brokers:
            broker.end()

    def _start_transactions(self) -> None:
        self.transactional_producers = [
            TransactionalProducer(self, number, 1)
            for number in range(self.options.transactional_producers)
        ]
        self.transactional_producers += [
            GroupLoop(self, FIRST_LOOP_NUMBER + number, 1)
            for number in range(self.options.transactional_members)
        ]
        self.isolated_readers = [
            IsolatedReader(self, is_committed=is_committed) for is_committed in (True, False)
        ]

    def replace_transactional_producer(self, producer: TransactionalProducer) -> None:
        """Start a process with a producer's transactional id; older ones become zombies."""
        same = [each for each in self.transactional_producers if each.number == producer.number]
        for each in same:
            each.is_superseded = True
        if not self.is_healed or not any(each.is_alive for each in same):
            successor = type(producer)(self, producer.number, len(same) + 1)
            self.transactional_producers.append(successor)

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
        self.marker_holds.clear()
        for producer in self.transactional_producers:
            producer.resume()
        self.failing_appends_until_ms = self.slow_actions_until_ms = self.lost_epochs = 0
        self.failing_until_ms.clear()
        self.hanging_until_ms.clear()
        for member in self.live_consumer_members:
            member.heal()
        self._end_duplicates()
        for classic in self.live_classic_members:
            classic.heal()
        self.append_history(history.FaultsHealed(at_ms=self.now_ms))

    def _end_duplicates(self) -> None:
        """End all but the newest of the classic processes with an instance id that is used twice.

        Two processes with different protocols replace each other with each join, and none of them
        is fenced: the coordinator takes each for the next process of a rolling restart.
        """
        used = {each.instance_id for each in self.live_consumer_members}
        for process in reversed(self.live_classic_members):
            if process.instance_id is not None and process.instance_id in used:
                process.crash(silently=False)
            used.add(process.instance_id)

    def repeat_consumer_heartbeats(self) -> None:
        """Let members with the consumer protocol send all fields again after rogue heartbeats.

        A rogue client may have changed a subscription, or got an assignment instead of a member.
        """
        for member in self.live_consumer_members:
            member.reconnect()

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
            protocol=ConsumerProtocol(self._assignors(rng)),
            instance_id=instance_id,
        )

    def add_process(self, **arguments: Any) -> ConsumerProcess:
        """Start a consumer process with these arguments."""
        process = ConsumerProcess(self, **arguments)
        self.processes.append(process)
        return process

    def add_consumer_member(
        self, instance_id: str | None = None, selection: SimSubscription | None = None
    ) -> None:
        """Start a process with a member that speaks the consumer protocol."""
        if self.is_healed:
            return
        rng = self._consumer_rng
        if instance_id is None and rng.random() < self.options.consumer_static_share:
            instance_id = self._free_instance_id()
        self.consumer_members.append(
            HeartbeatMember(
                self,
                f"k{len(self.consumer_members) + 1}",
                selection or self.draw_selection(rng),
                instance_id,
                rng.choice((None, None, "range", "uniform")),
            )
        )

    def add_classic_member(
        self, instance_id: str | None = None, topics: frozenset[str] | None = None
    ) -> None:
        """Start a process with a member of that group that speaks the classic protocol."""
        if self.is_healed:
            return
        rng = self._classic_rng
        if instance_id is None and rng.random() < self.options.consumer_static_share:
            instance_id = self._free_instance_id()
        self.classic_members.append(
            ClassicMember(
                self,
                f"c{len(self.classic_members) + 1}",
                topics or self.draw_topics(rng),
                ConsumerProtocol(self._assignors(rng)),
                instance_id,
            )
        )

    def _free_instance_id(self) -> str | None:
        taken = {each.instance_id for each in self.live_group_members}
        return next((name for name in ("s1", "s2", "s3") if name not in taken), None)

    def draw_topics(self, rng: Random) -> frozenset[str]:
        """Return random topics of a member with the classic protocol in that group."""
        return frozenset(rng.sample(TOPIC_NAMES, rng.choice((1, 2, 3))))

    def draw_selection(self, rng: Random) -> SimSubscription:
        """Return a random subscription: topic names, a regular expression, or both."""
        if rng.random() < self.options.consumer_regex_share:
            names = ("lc",) if rng.random() < 0.2 else ()
            return SimSubscription(names, rng.choice(_REGEXES))
        return SimSubscription(tuple(sorted(rng.sample(TOPIC_NAMES, rng.choice((1, 2, 3))))))

    @property
    def live_consumer_members(self) -> list[HeartbeatMember]:
        """The processes with members that speak the consumer protocol."""
        return [member for member in self.consumer_members if member.is_alive]

    @property
    def live_classic_members(self) -> list[ClassicMember]:
        """The processes with members of that group that speak the classic protocol."""
        return [member for member in self.classic_members if member.is_alive]

    @property
    def live_group_members(self) -> list[HeartbeatMember | ClassicMember]:
        """The processes with members of that group, whatever their protocol."""
        return [*self.live_consumer_members, *self.live_classic_members]

    def new_process_name(self) -> str:
        """Return a process name that was not used before."""
        self._name_count += 1
        return f"m{self._name_count}"

    def _assignors(self, rng: Random) -> list[Assignor]:
        match self.options.assignors:
            case "range":
                return [Range()]
            case "sticky":
                return [Sticky()]
            case "roundrobin":
                return [RoundRobin()]
            case "mixed":  # during an upgrade from eager to cooperative
                offered: list[Assignor] = [CooperativeSticky()]
                return rng.choice((offered, [*offered, Range()], [Range(), *offered]))
        return [CooperativeSticky()]

    def add_partition(self, topic: str, when_added: Callable[[], None]) -> None:
        """Add a partition to a topic, and call a function then. It may fail."""

        def added() -> None:
            self.partition_counts[topic] = count
            self.is_growing_until_ms = self.now_ms + _NOTICED_MS
            when_added()

        count = self.partition_counts[topic] + 1
        self.is_growing_until_ms = self.now_ms + _GROWTH_MAX_MS
        self.broker.add_partition(topic, count, added)

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

    def shard_owner(self, shard: int) -> SimulatedBroker | None:
        """Return the broker that has loaded a shard and may respond; None if there is none."""
        for broker in self.brokers:
            if broker.is_up and broker.hosts[shard].shard is not None and broker.may_answer:
                return broker
        return None

    def coordinator(self, group_id: str = GROUPS[0]) -> SimulatedBroker | None:
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
            found |= core.classic_groups()
        return found

    def state_of(self, group_id: str) -> GroupState | None:
        """Return the state of a group; None if it does not exist or is not loaded."""
        coordinator = self.coordinator(group_id)
        core = None if coordinator is None else coordinator.core_of(group_id)
        group = None if core is None else core.classic_group(group_id)
        return None if group is None else group.state
