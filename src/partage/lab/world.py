"""One simulation: brokers, network, disks, consumers, producers and rogue clients, all from one
seed.

Most worlds have one broker. Several brokers share a ZooKeeper, which stores the state of the
groups; the topics are on the first broker.

`World.run` executes the plan of the scenario. `partage.lab.liveness` then heals all faults and
checks the world. Everything that occurs goes into `World.history`, to which the checkers subscribe.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any, ClassVar, Final

from partage.assignors import Assignor, CooperativeSticky, Range, RoundRobin, Sticky
from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.coordinator.group import Group
from partage.coordinator.states import GroupState
from partage.lab import history
from partage.lab.brokers.broker import Broker
from partage.lab.brokers.shard_host import SimShardHost
from partage.lab.clients.consumer import ConsumerProcess
from partage.lab.clients.producer import Producer
from partage.lab.clients.rogue_client import UNREAD_TOPIC, ObservedIdentities
from partage.lab.environment.clock import Clock
from partage.lab.environment.network import Network, SimConnection
from partage.lab.environment.zookeeper import ZooKeeper
from partage.lab.options import Scenario
from partage.log.errors import DamagedLogError
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.store.shard_log import shard_of
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.types import Message

GROUPS: Final = ("g", "h")
SUBSCRIPTIONS: Final = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}))


class World:
    """A simulated cluster with its clients, clock and history."""

    #: True if the state machines' invariants are checked after each event.
    has_invariant_checks: ClassVar[bool] = True

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.options = options = scenario.options
        self.settings = options.group_settings()
        seed = scenario.seed
        self.broker_rng = Random(f"broker {seed}")
        self.disk_rng = Random(f"disk {seed}")
        self.rng = Random(f"world {seed}")
        self.clock = Clock()
        self.history = history.History()
        self.requests = 0
        self.group_coverage: Counter[str] = Counter()  # see `partage.lab.coverage`
        self.consumer_coverage: Counter[str] = Counter()
        # counted when they take effect, not when they are planned
        self.faults: Counter[str] = Counter()
        #: The offsets that were delivered to any consumer, by group and partition.
        self.delivered: dict[str, dict[TopicPartition, set[int]]]
        self.delivered = defaultdict(lambda: defaultdict(set))
        self.history.subscribe(history.RecordsDelivered, self._count_delivered)
        self.generations: set[tuple[str, int]] = set()
        self.partition_counts = {"t": options.partitions_t, "u": options.partitions_u}
        self.is_healed = False
        #: Injected damage: the file, the position and the damaged byte.
        self.damage: tuple[str, int, int] | None = None
        self.was_damaged = False  # damage was injected once and may not have been noticed
        self.network = Network(
            self.clock, Random(f"network {seed}"), options.delay_max_ms, options.splits
        )
        self.processes: list[ConsumerProcess] = []
        self._names = 0
        self._serial = 0
        self.identities = ObservedIdentities(self)
        #: The planned crash of the coordinator.
        self.crash_point: history.CrashPoint | None = None
        self.zookeeper: ZooKeeper | None = None
        if options.brokers > 1:
            zookeeper_rng = Random(f"zookeeper {seed}")
            self.zookeeper = ZooKeeper(self.clock, zookeeper_rng, options.zookeeper_delay_max_ms)
            self.zookeeper.on_fault = self.count_fault
        self.brokers = [Broker(self, broker_id) for broker_id in range(1, options.brokers + 1)]
        self.broker = self.brokers[0]
        self.network.brokers.update((broker.broker_id, broker) for broker in self.brokers)

    # Time and history

    @property
    def now_ms(self) -> int:
        """The virtual time, in ms since the epoch."""
        return self.clock.now_ms

    def append_history(self, entry: history.HistoryEntry) -> None:
        """Append an entry to the history."""
        self.history.append(entry)

    def record_incident(self, what: str, detail: str = "") -> None:
        """Append an incident, which only the story uses."""
        self.append_history(history.Incident(at_ms=self.now_ms, what=what, detail=detail))

    def count_fault(self, what: str) -> None:
        """Count a fault that took effect."""
        self.faults[what] += 1

    def _count_delivered(self, entry: history.RecordsDelivered) -> None:
        seen = self.delivered[entry.group_id][entry.partition]
        seen.update(offset for offset, _ in entry.records)

    # Queries of the brokers

    @property
    def stored_topics(self) -> dict[str, int]:
        """Partition counts of the topics on the first broker's disk."""
        offsets = {OFFSETS_TOPIC: 1} if self.zookeeper is None else {}
        return {**offsets, **self.partition_counts}

    def has_partition(self, topic: str, index: int) -> bool:
        """Return True if offsets of a partition may be committed."""
        return topic == UNREAD_TOPIC or 0 <= index < self.partition_counts.get(topic, 0)

    def record_request(
        self,
        broker: Broker,
        connection: SimConnection,
        arrived_ms: int,
        api_key: int,
        version: int,
        message: Message,
    ) -> history.RequestReceived:
        """Append a request that a broker has read, and return its entry."""
        self._serial += 1
        self.requests += 1
        entry = history.RequestReceived(
            at_ms=self.now_ms,
            arrived_ms=arrived_ms,
            broker=broker.broker_id,
            is_loaded=broker.core_of(_request_group_id(message)) is not None,
            serial=self._serial,
            connection=connection.index,
            client=connection.client,
            api_key=api_key,
            version=version,
            message=message,
        )
        self.append_history(entry)
        return entry

    def record_response(self, asked: history.RequestReceived, message: Message) -> None:
        """Append a response that left its broker."""
        if isinstance(message, JoinGroupResponse) and not message.error_code:
            asked_message: Any = asked.message
            self.generations.add((asked_message.group_id, message.generation_id))
        self.append_history(history.ResponseSent(at_ms=self.now_ms, request=asked, message=message))

    def schedule_restart(self, broker: Broker) -> None:
        """Schedule the restart of a broker that died."""
        delays_ms = (10, 500, 2_000, 8_000)
        delay_ms = self.broker_rng.choice(delays_ms)
        if self.is_healed:
            delay_ms = 0
        # restart at once, or after another broker has taken over
        if self.is_healed and len(self.brokers) > 1:
            delay_ms = self.broker_rng.choice((0, self.options.takeover_ms))
        self.clock.call_later(delay_ms, broker.start)

    def on_start_failed(self, broker: Broker, error: OSError | DamagedLogError) -> None:
        """Schedule another start of a broker, after repairing damage of its disk."""
        if isinstance(error, DamagedLogError):
            self.repair_damage(error)
        self.clock.call_later(500, broker.start)

    def repair_damage(self, error: DamagedLogError) -> None:
        """Repair the injected damage that a broker found, as an operator would from a backup.

        Raises:
            RuleViolationError: No damage was injected.
        """
        if self.damage is None:
            raise history.RuleViolationError(
                "recovery", f"damage was reported, but none was injected: {error}"
            )
        path, position, value = self.damage
        self.damage = None
        if self.broker.disk.peek(path, position) == value:  # otherwise the byte was overwritten
            self.broker.disk.damage(path, position)
        self.record_incident("the damaged file was repaired")

    def clear_damage(self) -> None:
        """Forget the injected damage after a start, unless the byte is still damaged on disk."""
        if self.damage is not None:
            path, position, value = self.damage
            if self.broker.disk.peek(path, position, after_crash=True) != value:
                self.damage = None

    # Running

    def run(self) -> None:
        """Start all processes and execute the plan of the scenario."""
        for broker in self.brokers:
            broker.start()
        self.producers = [Producer(self, number) for number in range(self.options.producers)]
        for _ in range(self.options.members):
            self.add_member()
        if self.options.has_second_group or self.options.shard_count > 1:
            self.add_member("h")
        begin_ms = self.now_ms
        for step in self.scenario.steps:
            self.clock.run(max(0, begin_ms + step.at_ms - self.now_ms))
            self._inject_fault(step.kind, step.draw)
        self.clock.run(max(0, begin_ms + self.options.safety_ms - self.now_ms))

    def _inject_fault(self, kind: str, draw: int) -> None:
        from partage.lab.faults import DEFERRED, FAULTS

        before = len(self.history.entries)
        if FAULTS[kind](self, Random(draw)):
            if kind not in DEFERRED:
                self.count_fault(kind)
            detail = "takes effect at the next matching operation" if kind in DEFERRED else ""
            fault = history.Incident(at_ms=self.now_ms, what=kind, detail=detail)
            self.history.entries.insert(before, fault)

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
            process.is_listener_slow = False
            process.assign_failures_left = 0
            process.resume()
            process.release_assignor()
            process.poll_loop.poll_now()
        self.append_history(history.FaultsHealed(at_ms=self.now_ms))

    # Processes and topics

    def add_member(self, group_id: str = "g", instance_id: str | None = None) -> ConsumerProcess:
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
            embedding=ConsumerProtocol(self._assignors()),
            instance_id=instance_id,
        )

    def add_process(self, **made_of: Any) -> ConsumerProcess:
        """Start a consumer process with these arguments."""
        process = ConsumerProcess(self, **made_of)
        self.processes.append(process)
        return process

    def new_process_name(self) -> str:
        """Return a process name that was not used before."""
        self._names += 1
        return f"m{self._names}"

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

    def members(self, group_id: str = "g") -> list[ConsumerProcess]:
        """Return the processes that are members of a group or want to be."""
        return [p for p in self.processes if p.group_id == group_id and p.is_member]

    def end_offset(self, partition: TopicPartition) -> int:
        """Return the high watermark of a partition; 0 while the broker is down."""
        storage = self.broker.storage
        return 0 if storage is None else storage.partitions[partition].log.high_watermark

    # Coordinators

    def shard_of(self, group_id: str) -> int:
        """Return the shard of a group."""
        return shard_of(group_id, self.options.shard_count)

    def active_host(self, shard: int) -> SimShardHost | None:
        """Return the host that owns a shard and may respond; None if there is none."""
        for broker in self.brokers:
            if broker.is_up and broker.hosts[shard].shard is not None and broker.may_answer:
                return broker.hosts[shard]
        return None

    def coordinator(self, group_id: str = "g") -> Broker | None:
        """Return the coordinator of a group; None if no broker may respond."""
        host = self.active_host(self.shard_of(group_id))
        return None if host is None else host.broker

    def groups(self) -> dict[str, Group] | None:
        """Return all groups of all shards; None while a shard has no coordinator."""
        found: dict[str, Group] = {}
        for shard in range(self.options.shard_count):
            host = self.active_host(shard)
            if host is None or host.shard is None:
                return None
            found |= host.shard.groups
        return found

    def state_of(self, group_id: str) -> GroupState | None:
        """Return the state of a group; None if it does not exist or is not loaded."""
        coordinator = self.coordinator(group_id)
        core = None if coordinator is None else coordinator.core_of(group_id)
        group = None if core is None else core.groups.get(group_id)
        return None if group is None else group.state

    # Broker selection of clients

    def shuffled_broker_ids(self, rng: Random) -> list[int]:
        """Return all broker ids in the order in which a client tries them."""
        order = [broker.broker_id for broker in self.brokers]
        if len(order) > 1:
            rng.shuffle(order)
        return order

    def guess_coordinator(self, rng: Random) -> int:
        """Return a broker that a client assumes to be the coordinator; it usually is."""
        coordinator = self.coordinator()
        if len(self.brokers) == 1 or coordinator is None or rng.random() < 0.2:
            return self.shuffled_broker_ids(rng)[0]
        return coordinator.broker_id


def _request_group_id(message: Any) -> str:
    """Return the group id of a request, the first of several; a default where it names none."""
    # OffsetFetch has `groups` from v8 on. In DescribeGroups and DeleteGroups they are names.
    groups = getattr(message, "groups", ()) or getattr(message, "groups_names", ())
    group_id = getattr(groups[0], "group_id", groups[0]) if groups else ""
    return group_id or getattr(message, "group_id", "") or GROUPS[0]
