"""A world: one broker, its network and disk, consumers, a producer, strangers, all from one seed.

`World.run` lets the plan of the scenario happen, heals everything, and waits for peace. What
happened is in ``history``; checkers listen to it all along.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any, ClassVar, Final

from partage.assignors import Assignor, CooperativeSticky, Range, RoundRobin, Sticky
from partage.bridge.embedding import Embedding
from partage.coordinator.states import GroupState
from partage.lab import history
from partage.lab.broker import Broker
from partage.lab.clock import Clock
from partage.lab.consumer import Process
from partage.lab.network import Connection, Network
from partage.lab.options import Scenario
from partage.lab.producer import Producer
from partage.lab.strangers import Gossip
from partage.log.damage import DamagedLog
from partage.member.states import MemberState
from partage.store.shard_log import TOPIC as OFFSETS_TOPIC
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.types import Message

#: A topic that nobody reads, for strangers to commit offsets of.
STRANGE_TOPIC: Final = "x"
GROUPS: Final = ("g", "h")
SUBSCRIPTIONS: Final = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}))


class World:
    """Everything there is, and the time."""

    #: Whether cores are asked after each event if they are in order.
    is_judged: ClassVar[bool] = True

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
        self.states: Counter[tuple[str, str]] = Counter()  # group states by what was asked
        self.member_states: set[MemberState] = set()
        self.faults: Counter[str] = Counter()
        #: The offsets that were handed to somebody, by group and partition.
        self.delivered: dict[str, dict[history.Partition, set[int]]]
        self.delivered = defaultdict(lambda: defaultdict(set))
        self.history.listen(history.Delivered, self._count_delivered)
        self.generations: set[tuple[str, int]] = set()
        self.partition_counts = {"t": options.partitions_t, "u": options.partitions_u}
        self.is_calm = False
        #: What was damaged on purpose: the file, the place, and what stands there now.
        self.damage: tuple[str, int, int] | None = None
        self.has_scars = False  # something was damaged once, and may not have been noticed
        self.network = Network(
            self.clock, Random(f"network {seed}"), options.delay_max_ms, options.splits
        )
        self.processes: list[Process] = []
        self._names = 0
        self._serial = 0
        self.gossip = Gossip(self)
        self.broker = Broker(self)
        self.network.broker = self.broker

    # Time and notes.

    @property
    def now_ms(self) -> int:
        """The time, in ms since the epoch."""
        return self.clock.now_ms

    def note(self, entry: history.Entry) -> None:
        """Note that something happened."""
        self.history.note(entry)

    def happened(self, what: str, detail: str = "") -> None:
        """Note something that only the story of it all needs."""
        self.note(history.Happened(at_ms=self.now_ms, what=what, detail=detail))

    def _count_delivered(self, entry: history.Delivered) -> None:
        seen = self.delivered[entry.group_id][entry.partition]
        seen.update(offset for offset, _ in entry.records)

    # What the broker asks of its world.

    @property
    def stored_topics(self) -> dict[str, int]:
        """The partitions on the broker's disk."""
        return {OFFSETS_TOPIC: 1, **self.partition_counts}

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether offsets of a partition may be committed."""
        return topic == STRANGE_TOPIC or 0 <= index < self.partition_counts.get(topic, 0)

    def asked(
        self,
        connection: Connection,
        arrived_ms: int,
        api_key: int,
        version: int,
        message: Message,
    ) -> history.Asked:
        """A request reached the broker and was read."""
        self._serial += 1
        entry = history.Asked(
            at_ms=self.now_ms,
            arrived_ms=arrived_ms,
            is_loaded=self.broker.shard is not None,
            serial=self._serial,
            connection=connection.index,
            client=connection.client,
            api_key=api_key,
            version=version,
            message=message,
        )
        self.note(entry)
        shard = self.broker.shard
        if shard is not None:
            group = shard.groups.get(getattr(message, "group_id", "g"))
            state = "none" if group is None else str(group.state)
            self.states[state, type(message).__name__.removesuffix("Request")] += 1
        else:
            self.states["loading", type(message).__name__.removesuffix("Request")] += 1
        return entry

    def answered(self, asked: history.Asked, message: Message) -> None:
        """A response left the broker."""
        if isinstance(message, JoinGroupResponse) and not message.error_code:
            asked_message: Any = asked.message
            self.generations.add((asked_message.group_id, message.generation_id))
        self.note(history.Answered(at_ms=self.now_ms, asked=asked, message=message))

    def restart_later(self) -> None:
        """The broker died: somebody starts it again after a while."""
        delay_ms = self.broker_rng.choice((10, 500, 2_000, 8_000))
        self.clock.later(0 if self.is_calm else delay_ms, self.broker.start)

    def start_refused(self, error: OSError | DamagedLog) -> None:
        """The broker cannot start: it is tried again, as soon as its disk is right."""
        if isinstance(error, DamagedLog):
            self.damaged(error)
        self.clock.later(500, self.broker.start)

    def damaged(self, error: DamagedLog) -> None:
        """The broker found damage: what was damaged on purpose is put right, as from a copy."""
        if self.damage is None:
            raise history.Violation("recovery", f"the disk was never damaged, and yet: {error}")
        path, position, value = self.damage
        self.damage = None
        if self.broker.disk.peek(path, position) == value:  # else it was written over
            self.broker.disk.damage(path, position)
        self.happened("the damaged file is put right")

    # Life.

    def run(self) -> None:
        """Live through the plan; then heal, and wait for peace."""
        self.broker.start()
        self.producer = Producer(self)
        for _ in range(self.options.members):
            self.add_member()
        if self.options.has_second_group:
            self.add_member("h")
        begin_ms = self.now_ms
        for step in self.scenario.steps:
            self.clock.run(max(0, begin_ms + step.at_ms - self.now_ms))
            self._disturb(step.kind, step.draw)
        self.clock.run(max(0, begin_ms + self.options.safety_ms - self.now_ms))

    def _disturb(self, kind: str, draw: int) -> None:
        from partage.lab.faults import FAULTS

        before = len(self.history.entries)
        if FAULTS[kind](self, Random(draw)):
            self.faults[kind] += 1
            fault = history.Happened(at_ms=self.now_ms, what=kind)
            self.history.entries.insert(before, fault)

    def calm(self) -> None:
        """From here on nothing goes wrong any more."""
        self.is_calm = True
        self.network.heal()
        broker = self.broker
        broker.disk.refuses.clear()
        broker.disk.failing = None
        broker.disk.fail_after = None
        broker.disk_slow = (0, 0)
        broker.resume()
        for process in self.processes:
            process.is_slow = process.is_wedged = False
            process.fails_to_assign = 0
            process.resume()
            process.reading.hurry()
        self.note(history.Calmed(at_ms=self.now_ms))

    # Who is there.

    def add_member(self, group_id: str = "g", instance_id: str | None = None) -> Process:
        """One more consumer process."""
        options, rng = self.options, self.rng
        if instance_id is None and rng.random() < options.static_share:
            taken = {p.instance_id for p in self.processes if p.is_alive}
            free = [name for name in ("i1", "i2", "i3", "i4") if name not in taken]
            instance_id = free[0] if free else None
        return self.add_process(
            name=self.fresh_name(),
            group_id=group_id,
            topics=rng.choice(SUBSCRIPTIONS),
            embedding=Embedding(self._assignors()),
            instance_id=instance_id,
        )

    def add_process(self, **made_of: Any) -> Process:
        """A consumer process that is made of this."""
        process = Process(self, **made_of)
        self.processes.append(process)
        return process

    def fresh_name(self) -> str:
        """A name that no process has had."""
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
            case "mixed":  # on the way from eager to cooperative
                offered: list[Assignor] = [CooperativeSticky()]
                return self.rng.choice((offered, [*offered, Range()], [Range(), *offered]))
        return [CooperativeSticky()]

    def add_partition(self, topic: str) -> None:
        """A topic grows by a partition; its log is opened at once."""
        if self.broker.upkeep.grow(topic, self.partition_counts[topic]):
            self.partition_counts[topic] += 1

    @property
    def alive(self) -> list[Process]:
        """The consumer processes that live."""
        return [process for process in self.processes if process.is_alive]

    def members(self, group_id: str = "g") -> list[Process]:
        """Those that are, or want to be, in a group."""
        return [p for p in self.processes if p.group_id == group_id and p.is_member]

    def end_of(self, partition: history.Partition) -> int:
        """Up to where a partition can be read."""
        storage = self.broker.storage
        return 0 if storage is None else storage.partitions[partition].log.high_watermark

    def state_of(self, group_id: str) -> GroupState | None:
        """The state of a group, for the report."""
        shard = self.broker.shard
        group = None if shard is None else shard.groups.get(group_id)
        return None if group is None else group.state
