"""The part of a world that its brokers and clients use: clock, network, options and history.

`partage.lab.world.World` adds the brokers and clients. They depend on this module only, so that
modules do not import each other in cycles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from partage.lab import history
from partage.lab.consumer_topics import ConsumerTopics
from partage.lab.environment.clock import Clock
from partage.lab.environment.disk import CrashDisk
from partage.lab.environment.network import Network, SimConnection
from partage.lab.environment.zookeeper import ZooKeeper
from partage.lab.names import (
    GROUPS,
    OUTPUT_PARTITIONS,
    OUTPUT_TOPIC,
    ROGUE_MEMBER,
    UNREAD_TOPIC,
    GroupGeneration,
)
from partage.lab.observed_identities import ObservedIdentities
from partage.lab.recorded_batches import LogRecorder
from partage.lab.scenario import Scenario
from partage.log.errors import DamagedLogError
from partage.model.topic_partition import TopicPartition
from partage.store.shard_log import shard_of
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from partage.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from partage.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from partage.wire.apis.end_txn import END_TXN, EndTxnResponse
from partage.wire.apis.init_producer_id import InitProducerIdResponse
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.txn_offset_commit import TXN_OFFSET_COMMIT
from partage.wire.records.encoder import SimpleRecord
from partage.wire.types import Message

#: The requests of transactional producers that may arrive a second time.
TRANSACTIONAL_KEYS: Final = (
    PRODUCE.key,
    ADD_PARTITIONS_TO_TXN.key,
    ADD_OFFSETS_TO_TXN.key,
    TXN_OFFSET_COMMIT.key,
    END_TXN.key,
)
_FIRST_PRODUCER_ID: Final = 1_000
#: Offsets of the topic without readers are committed for partitions below this number.
_UNREAD_PARTITIONS: Final = 2
_RESTART_DELAYS_MS: Final = (10, 500, 2_000, 8_000)
_REPAIR_MS: Final = 500


class Damage(NamedTuple):
    """Injected damage: the position of a byte in a file."""

    disk: CrashDisk
    path: str
    position: int


class WorldContext(ABC):
    """The clock, network, random generators, counters and history of a world."""

    #: True if the state machines' invariants are checked after each event.
    has_invariant_checks: ClassVar[bool] = True

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.options = options = scenario.options
        self.settings = options.group_settings()
        self.transaction_settings = options.transaction_settings()
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
        self.generations: set[GroupGeneration] = set()
        self.partition_counts = {"t": options.partitions_t, "u": options.partitions_u}
        self.is_healed = False
        #: Damage that no broker has found so far.
        self.damage: Damage | None = None
        self.was_damaged = False  # damage was injected once and may not have been noticed
        self.network = Network(
            self.clock, Random(f"network {seed}"), options.delay_max_ms, options.frame_split_share
        )
        #: True from the end of the world on: its brokers only clean up.
        self.has_ended = False
        self.identities = ObservedIdentities(self.history)
        #: The names of topics that were deleted at some time.
        self.deleted_topics: set[str] = set()
        self.history.subscribe(
            history.TopicDeleted, lambda entry: self.deleted_topics.add(entry.topic)
        )
        #: The planned crash of the coordinator.
        self.crash_point: history.CrashPoint | None = None
        self.zookeeper: ZooKeeper | None = None
        if options.brokers > 1:
            zookeeper_rng = Random(f"zookeeper {seed}")
            self.zookeeper = ZooKeeper(self.clock, zookeeper_rng, options.zookeeper_delay_max_ms)
            self.zookeeper.on_fault = self.count_fault
        #: The markers of these partitions are held until these times.
        self.marker_holds: dict[TopicPartition, int] = {}
        #: The markers that a coordinator wrote, oldest first.
        self.written_markers: list[tuple[TopicPartition, history.SimMarker]] = []
        #: The planned pause of a transaction coordinator.
        self.marker_pause: history.MarkerPause | None = None
        #: Until this time, admissions of batches and offsets have random delays.
        self.slow_admissions_until_ms = 0
        #: Requests with a transactional id, oldest first.
        self.transactional_requests: list[history.RequestReceived] = []
        #: The newest epoch of each producer id that a response contained.
        self.newest_epochs: dict[int, int] = {}
        #: The topics of the members with the consumer protocol.
        self.consumer_topics = ConsumerTopics()
        self.action_rng = Random(f"group actions {seed}")
        #: Until when "assignors" and "regexes" of consumer groups fail or hang.
        self.failing_until_ms: dict[str, int] = {}
        self.hanging_until_ms: dict[str, int] = {}
        #: Until when appends to the logs of group shards fail at random.
        self.failing_appends_until_ms = 0
        self.append_rng = Random(f"appends {seed}")
        #: The number of epochs of the group with the consumer protocol whose next appends fail.
        self.lost_epochs = 0
        #: Until when the actions of consumer groups are slow.
        self.slow_actions_until_ms = 0
        #: Heartbeats of the consumer protocol, oldest first.
        self.consumer_requests: list[history.RequestReceived] = []
        #: A rogue client has sent heartbeats as a member, which may have got its response.
        self.was_impersonated = False
        self._wall_rng = Random(f"wall clocks {seed}")
        self.log_observer = LogRecorder(self) if options.transactional_producers else None
        self.id_rng = Random(f"ids {seed}")
        #: The id of the topic that a broker creates now; None for a new one.
        self.forced_topic_id: bytes | None = None
        self._serial = 0
        self._producer_id = _FIRST_PRODUCER_ID
        self._completion_count = 0

    # Time and history

    @property
    def now_ms(self) -> int:
        """The virtual time, in ms since the epoch."""
        return self.clock.now_ms

    def append_history(self, entry: history.HistoryEntry) -> None:
        """Append an entry to the history."""
        self.history.append(entry)

    def record_incident(self, what: str, detail: str = "") -> None:
        """Append an incident, which only the trace shows."""
        self.append_history(history.Incident(at_ms=self.now_ms, what=what, detail=detail))

    def count_fault(self, what: str) -> None:
        """Count a fault that took effect."""
        self.faults[what] += 1

    def record_request(
        self,
        connection: SimConnection,
        arrived_ms: int,
        api_key: int,
        version: int,
        message: Message,
        *,
        broker_id: int,
        is_loaded: bool,
        at_ms: int | None = None,
        broker_ms: int | None = None,
    ) -> history.RequestReceived:
        """Append a request that a broker has read.

        Args:
            connection: The connection of the client.
            arrived_ms: When the request arrived on the broker's machine.
            api_key: The API of the request.
            version: The API version of the request.
            message: The decoded request.
            broker_id: The broker.
            is_loaded: True if the broker has loaded the group of the request.
            at_ms: The time of the request for the broker; by default now.
            broker_ms: The same on the broker's clock; by default ``at_ms``.

        Returns:
            The history entry of the request.
        """
        self._serial += 1
        self.requests += 1
        at_ms = self.now_ms if at_ms is None else at_ms
        entry = history.RequestReceived(
            at_ms=at_ms,
            broker_ms=at_ms if broker_ms is None else broker_ms,
            arrived_ms=arrived_ms,
            broker=broker_id,
            is_loaded=is_loaded,
            serial=self._serial,
            connection=connection.index,
            client=connection.client,
            api_key=api_key,
            version=version,
            message=message,
        )
        self.append_history(entry)
        if api_key == CONSUMER_GROUP_HEARTBEAT.key and connection.client != ROGUE_MEMBER:
            self.consumer_requests.append(entry)
        is_watched = self.options.transactional_producers and api_key in TRANSACTIONAL_KEYS
        if is_watched and getattr(message, "transactional_id", "") is not None:
            self.transactional_requests.append(entry)
        return entry

    def record_response(self, request: history.RequestReceived, message: Message) -> None:
        """Append a response that left its broker."""
        if isinstance(message, JoinGroupResponse) and not message.error_code:
            join: Any = request.message
            self.generations.add(GroupGeneration(join.group_id, message.generation_id))
        if isinstance(message, InitProducerIdResponse | EndTxnResponse):
            newest = self.newest_epochs.get(message.producer_id, -1)
            self.newest_epochs[message.producer_id] = max(newest, message.producer_epoch)
        self.append_history(
            history.ResponseSent(at_ms=self.now_ms, request=request, message=message)
        )

    # Brokers and their disks

    def draw_wall_difference_ms(self) -> int:
        """Draw the wall clock of a broker's machine minus the virtual time."""
        longest_ms = self.options.wall_difference_max_ms
        return self._wall_rng.choice((0, -1, 1)) * self._wall_rng.randrange(longest_ms + 1)

    @property
    def stored_topics(self) -> dict[str, int]:
        """Partition counts of the topics on the brokers' disks, without those of coordinators."""
        topics = {**self.partition_counts, UNREAD_TOPIC: _UNREAD_PARTITIONS}
        if self.options.transactional_producers:
            topics[OUTPUT_TOPIC] = OUTPUT_PARTITIONS
        return topics

    def leader_of(self, partition: TopicPartition) -> int:
        """Return the broker with a partition. Partitions do not move.

        The partitions of the topic of transactional producers are spread over brokers.
        """
        if partition.topic != OUTPUT_TOPIC:
            return 1
        return 1 + partition.partition % self.output_leader_count

    @property
    def output_leader_count(self) -> int:
        """Number of brokers with partitions of the topic of transactional producers."""
        return min(self.options.output_leaders, self.options.brokers, OUTPUT_PARTITIONS)

    def output_record(self, value: bytes) -> SimpleRecord:
        """Return a record of transactional producers.

        Where their topic is compacted, each record has a separate key. So compaction removes the
        records of aborted transactions only.
        """
        key = value if self.options.output_is_compacted else None
        return SimpleRecord(key, value, timestamp_ms=self.now_ms)

    def next_producer_id(self) -> int:
        """Return a producer id that was not used before."""
        self._producer_id += 1
        return self._producer_id

    def next_completion(self) -> int:
        """Return the number of the next completed transaction."""
        self._completion_count += 1
        return self._completion_count

    def has_partition(self, topic: str, index: int) -> bool:
        """Return True if offsets of a partition may be committed."""
        is_read = 0 <= index < self.partition_counts.get(topic, 0)
        return topic == UNREAD_TOPIC or is_read or self.consumer_topics.has_partition(topic, index)

    def shard_of(self, group_id: str) -> int:
        """Return the shard of a group."""
        return shard_of(group_id, self.options.shard_count)

    def schedule_restart(self, start: Callable[[], None]) -> None:
        """Schedule the restart of a broker that died.

        Args:
            start: Starts the broker.
        """
        delay_ms = self.broker_rng.choice(_RESTART_DELAYS_MS)
        if self.is_healed:
            delay_ms = 0
        # restart at once, or after another broker has taken over
        if self.is_healed and self.options.brokers > 1:
            delay_ms = self.broker_rng.choice((0, self.options.takeover_ms))
        self.clock.call_later(delay_ms, start)

    def on_start_failed(self, start: Callable[[], None], error: OSError | DamagedLogError) -> None:
        """Schedule another start of a broker, after repairing damage of its disk.

        Args:
            start: Starts the broker.
            error: The reason of the failure.

        Raises:
            RuleViolationError: The disk is damaged, but no damage was injected.
        """
        if isinstance(error, DamagedLogError):
            self.repair_damage(error)
        self.clock.call_later(_REPAIR_MS, start)

    def repair_damage(self, error: DamagedLogError) -> None:
        """Repair the injected damage that a broker found, as an operator would from a backup.

        Raises:
            RuleViolationError: No damage was injected, or none is left on the disk.
        """
        damage, self.damage = self.damage, None
        if damage is None or not damage.disk.is_damaged(damage.path, damage.position):
            raise history.RuleViolationError(
                "recovery", f"damage was reported, but none was injected: {error}"
            )
        damage.disk.repair(damage.path, damage.position)
        self.record_incident("the damaged file was repaired")

    def clear_damage(self) -> None:
        """Forget the injected damage after a start, unless a copy of the byte is still damaged."""
        damage = self.damage
        if damage is not None and not damage.disk.is_damaged(damage.path, damage.position):
            self.damage = None

    # Broker selection of clients

    @abstractmethod
    def coordinator_id(self, group_id: str) -> int | None:
        """Return the broker id of a group's coordinator; None if no broker may respond."""

    def shuffled_broker_ids(self, rng: Random) -> list[int]:
        """Return all broker ids in the order in which a client tries them."""
        order = list(range(1, self.options.brokers + 1))
        if len(order) > 1:
            rng.shuffle(order)
        return order

    def guess_coordinator(self, rng: Random) -> int:
        """Return a broker that a client assumes to be the coordinator; it usually is."""
        coordinator_id = self.coordinator_id(GROUPS[0])
        if self.options.brokers == 1 or coordinator_id is None or rng.random() < 0.2:
            return self.shuffled_broker_ids(rng)[0]
        return coordinator_id
