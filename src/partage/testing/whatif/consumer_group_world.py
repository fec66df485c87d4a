"""A copy of a live group in a simulated world, whose members run a user's code.

Each member is a process of a `PartageWorld`. The group starts in the live assignment: in the first
generation with all members, the broker replaces the assignments of the leader by the live ones, and
with the consumer protocol its target. After that, the assignor and the code decide.

The events of trials are plain functions. They run in a greenlet of the world's loop, so they can
wait for virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    MemberTargetRecord,
    TargetAssignmentRecord,
)
from partage.coordinator.consumer_group.states import ConsumerGroupState
from partage.coordinator.group import Group
from partage.coordinator.records import OffsetRecord
from partage.coordinator.shard import Shard
from partage.coordinator.states import GroupState
from partage.lab.whatif.assignor_choice import CONSUMER_PROTOCOL_ASSIGNOR, make_assignor
from partage.lab.whatif.handovers import ReaderChange
from partage.lab.whatif.live_group import LiveMember, LivePartition
from partage.lab.whatif.simulated_group import STABLE_TIMEOUT_MS, TrialGroup, TrialProcess
from partage.lab.whatif.trial import Trial
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.testing.broker_state import read_committed
from partage.testing.request_interceptor import respond_with_error
from partage.testing.settings import Settings
from partage.testing.whatif.consumer_function import ConsumerCodeError, ConsumerFunction
from partage.testing.whatif.ownership_timeline import OwnershipTimeline
from partage.testing.whatif.record_writer import RecordWriter, mean_bytes
from partage.testing.world.client_loop import WorldClientLoop
from partage.testing.world.process import WorldProcess
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world.world import PartageWorld
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    decode_subscription,
    encode_assignment,
)
from partage.wire.primitives import MalformedError

#: Records and bytes of the lag that are written, in all partitions together.
LAG_MAX: Final = 5_000
_LAG_BYTES_MAX: Final = 20_000_000
_JOIN_TIMEOUT_MS: Final = 120_000
_OTHER_GROUP_MS: Final = 10_000
_POLL_INTERVAL_MS: Final = 100
#: A group is stable if it has not changed for this time. If a subscribed partition has no owner,
#: a member may still be about to join again, at the latest after its poll interval.
_QUIET_MS: Final = 1_000
#: The next event comes at any phase of the heartbeats.
_PHASE_MAX_MS: Final = 5_000
_SESSION_PAUSED_MAX_MS: Final = 20_000
#: No hash of topics is equal to it.
_OTHER_HASH: Final = 1


class UserCodeMember:
    """A process that runs the user's code as a member.

    Attributes:
        name: the name of the live member that it copies, or of a new one.
        host: the name of the process in the world.
        is_stopping: True if its end was requested.
    """

    def __init__(self, world: PartageWorld, name: str, host: str, like: LiveMember) -> None:
        self.name = name
        self.host = host
        self.like = like
        self.is_stopping = False
        self.process: WorldProcess | None = None
        self._world = world

    @property
    def is_alive(self) -> bool:
        """True if the process is running."""
        return self._world.is_running(self.host)

    @property
    def has_left(self) -> bool:
        """True if the process has ended."""
        return not self.is_alive

    def crash(self, *, silently: bool) -> None:
        """Kill the process, or what is left of it after its main coroutine has ended."""
        self.is_stopping = True
        if self.is_alive:
            self._world.kill(self.host)
        elif self.process is not None:
            self.process.kill()
            self._world.reset_connections(self.host)
            if self._world.recorder is not None:
                self._world.recorder.on_process_end(self.host)

    def leave(self) -> None:
        """Cancel the user's coroutine, which closes its consumer."""
        self.is_stopping = True
        if self.process is not None and self.process.task is not None:
            self.process.task.cancel()


class ConsumerGroupWorld(TrialGroup):
    """A copy of a live group whose members run a user's code.

    Args:
        world: the world; it is not running yet.
        trial: the group, the code and the assignor.
        function: the code.
    """

    def __init__(self, world: PartageWorld, trial: Trial, function: ConsumerFunction) -> None:
        super().__init__(trial.group)
        self._world = world
        self._trial = trial
        self._function = function
        self._rng = Random(world.seed)
        self._members: list[UserCodeMember] = []
        self._by_host: dict[str, UserCodeMember] = {}
        self._has_opened = False
        self._is_leader_to_rejoin = False
        self.writer: RecordWriter | None = None
        world.record_requests(self._make_recorder)

    def _make_recorder(self, loop: VirtualLoop) -> OwnershipTimeline:
        self._loop = loop
        self._waits = WorldClientLoop(loop, "whatif", None)
        self._recorder = OwnershipTimeline(loop, self.group.name)
        return self._recorder

    async def prepare(self) -> None:
        """Create the topics, and commit the first offset of each partition.

        Raises:
            ConsumerCodeError: a topic cannot be simulated.
        """
        group = self.group
        for topic, count in sorted(group.partition_counts.items()):
            try:
                await self._world.create_topic(topic, count)
            except ValueError as error:
                raise ConsumerCodeError(
                    f"group {group.name} cannot run {self._function.path} in a simulation: {error}"
                ) from error
        await self._broker.wait_loaded()
        self._broker.server.intercept(self._intercept)
        self.writer = RecordWriter(self._broker, group.partitions, self._trial.samples)
        at_ms = self._broker.log_manager.wall_ms()
        for p in group.partitions:
            self._shard.apply(
                OffsetRecord(
                    group_id=group.name, topic=p.topic, partition=p.index, offset=0, commit_ms=at_ms
                )
            )

    def write_lag(self, partitions: Sequence[LivePartition]) -> None:
        """Write the lag of partitions, at most `LAG_MAX` records and 20 MB."""
        assert self.writer is not None, "the group is prepared"
        total = sum(p.lag for p in partitions)
        most = min(LAG_MAX, _LAG_BYTES_MAX / mean_bytes(self._trial.samples))
        scale = min(1.0, most / total) if total else 0.0
        for p in partitions:
            self.writer.write(TopicPartition(p.topic, p.index), round(p.lag * scale))

    def open(self) -> None:
        """Start the members, and wait until they own the live assignment.

        Raises:
            ConsumerCodeError: they do not.
        """
        group = self.group
        for member in sorted(group.members, key=lambda each: each.member_id != group.leader):
            self.start_process(member, member.member_id)
            self._wait(10)  # the first member becomes leader
        for _ in range(0, _JOIN_TIMEOUT_MS, _POLL_INTERVAL_MS):
            self._wait(_POLL_INTERVAL_MS)
            self._check_groups()
            if len(self._hosts()) == len(self._members):
                break
        self._check_joined()
        self._check_subscriptions()
        if isinstance(self.found_group, ConsumerGroup):
            self.wait_until_stable()
            self._set_target(self.found_group)
        self.wait_until_stable()
        owners = {
            p: self.member_by_process[each.name]
            for each in self._members
            for p in self.owned_by(each)
        }
        if owners != group.owners:
            different = sorted(
                p for p in owners.keys() | group.owners if owners.get(p) != group.owners.get(p)
            )
            raise ConsumerCodeError(
                f"{self._function.path} does not take the live assignment of group {group.name}: "
                f"{len(different)} partitions have another owner, such as "
                f"{different[0].topic}-{different[0].partition}"
            )
        self._spread_heartbeats()

    def _spread_heartbeats(self) -> None:
        """Pause each process for another time, so that its heartbeats have another phase.

        A pause is longer than a usual heartbeat interval and shorter than the session timeout.
        """
        longest_s = min(self.session_timeout_ms, _SESSION_PAUSED_MAX_MS) / 1000
        for member in self._members:
            self._world.pause(member.host, self._rng.uniform(0.3, 0.5) * longest_s)
        self._wait(round(1000 * longest_s))
        self.wait_until_stable()

    # State

    @property
    def _broker(self) -> Broker:
        broker = self._recorder.broker
        assert broker is not None, "the broker has started"
        return broker

    @property
    def _shard(self) -> Shard:
        shard = self._broker.coordinator.host_of(self.group.name).shard
        assert shard is not None, "the shard is loaded"
        return shard

    @property
    def found_group(self) -> Group | ConsumerGroup | None:
        """The group in the simulated coordinator; None if it does not exist."""
        found = self._shard.groups.get(self.group.name)
        return found if isinstance(found, Group | ConsumerGroup) else None

    def _hosts(self) -> dict[str, str]:
        """Return the member id of each host in the group."""
        found = self.found_group
        if isinstance(found, Group):
            return {_host(each.client_host): each.id for each in found.members.values()}
        if isinstance(found, ConsumerGroup):
            return {
                _host(each.subscription.client_host): each.id for each in found.members.values()
            }
        return {}

    @property
    def protocol(self) -> str:
        """The name of the assignor that the group uses."""
        found = self.found_group
        if isinstance(found, ConsumerGroup):
            return found.preferred_assignor(self._shard.catalogue, self._shard.settings.consumer)
        return "" if found is None else found.protocol or ""

    @property
    def session_timeout_ms(self) -> int:
        """The longest session timeout of the members."""
        found = self.found_group
        if isinstance(found, Group):
            return max(each.session_timeout_ms for each in found.members.values())
        return self._shard.settings.consumer.session_timeout_ms

    @property
    def now_ms(self) -> int:
        return round(self._loop.elapsed_s * 1000)

    @property
    def timeline(self) -> list[ReaderChange]:
        return [
            ReaderChange(change.at_ms, self._by_host[change.process].name, change.partitions)
            for change in self._recorder.timeline
        ]

    @property
    def generation(self) -> int:
        return self._shard.groups[self.group.name].generation

    @property
    def live_processes(self) -> Sequence[UserCodeMember]:
        return [each for each in self._members if each.is_alive]

    def owned_by(self, process: TrialProcess) -> frozenset[TopicPartition]:
        assert isinstance(process, UserCodeMember)
        return self._recorder.owned_by(process.host)

    def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group."""
        return read_committed(self._broker, self.group.name)

    # Actions

    def run(self, for_ms: int) -> None:
        self._wait(for_ms)

    def _wait(self, for_ms: int) -> None:
        self._waits.call(asyncio.sleep(for_ms / 1000))

    def new_member_name(self, client_id: str) -> str:
        return f"{client_id}-{self._rng.getrandbits(64):016x}"

    def start_process(
        self, like: LiveMember, name: str, place: str | None = None
    ) -> UserCodeMember:
        self.member_by_process[name] = name if place is None else place
        member = UserCodeMember(self._world, name, f"member-{len(self._members) + 1}", like)
        self._members.append(member)
        self._by_host[member.host] = member
        member.process = self._world.process(lambda: self._main(member), name=member.host)
        return member

    async def _main(self, member: UserCodeMember) -> None:
        servers = self._world.bootstrap_servers
        await self._function.run(servers, self._options(member.like))
        if not member.is_stopping:
            has_joined = self.group.name in self._recorder.joined_groups.get(member.host, [])
            when = "" if has_joined else f" before it joined group {self.group.name}"
            raise ConsumerCodeError(
                f"{self._function.path} ended{when}: it must run until it is cancelled"
            )

    def _options(self, like: LiveMember) -> dict[str, Any]:
        """Return the consumer options of a member, for code that takes some."""
        group, trial = self.group, self._trial
        options: dict[str, Any] = {}
        if like.instance_id is not None:
            options["group_instance_id"] = like.instance_id
        if like.rack is not None:
            options["client_rack"] = like.rack
        if trial.assignor == CONSUMER_PROTOCOL_ASSIGNOR:
            options["group_protocol"] = "consumer"
        else:
            if trial.assignor:
                options["partition_assignment_strategy"] = [make_assignor(trial.assignor)]
            if "session_timeout_ms" in trial.consumer_options:
                options["session_timeout_ms"] = group.session_timeout_ms
                options["heartbeat_interval_ms"] = group.heartbeat_interval_ms
        if "max_poll_interval_ms" in trial.consumer_options:
            options["max_poll_interval_ms"] = group.max_poll_interval_ms
        return options

    def request_rebalance(self) -> None:
        """Let the leader join again, or the coordinator compute a new target."""
        found, generation = self.found_group, self.generation
        if isinstance(found, ConsumerGroup):
            self._shard.apply(
                ConsumerGroupRecord(
                    group_id=self.group.name, epoch=generation, metadata_hash=_OTHER_HASH
                )
            )
            found.metadata_version = -1
        else:
            self._is_leader_to_rejoin = True
        timeout_ms = self.session_timeout_ms + self.group.max_poll_interval_ms
        for _ in range(0, timeout_ms, _POLL_INTERVAL_MS):
            self._wait(_POLL_INTERVAL_MS)
            if self.generation != generation or not self._is_stable():
                return

    def wait_until_stable(self) -> bool:
        group = self.group
        limit_ms = (
            self.now_ms
            + STABLE_TIMEOUT_MS
            + 2
            * (max(group.session_timeout_ms, self.session_timeout_ms) + group.max_poll_interval_ms)
        )
        state, since_ms = None, self.now_ms
        while self.now_ms < limit_ms:
            self._wait(_POLL_INTERVAL_MS)
            now = (self.generation, len(self._recorder.timeline))
            if not self._is_stable() or now != state:
                state, since_ms = now, self.now_ms
            elif self.now_ms - since_ms >= self._quiet_ms():
                self._wait(self._rng.randrange(_PHASE_MAX_MS))
                return True
        return False

    def _is_stable(self) -> bool:
        """True if the group has exactly the live processes as members, and all are synced."""
        found = self.found_group
        hosts = self._hosts()
        if sorted(hosts) != sorted(each.host for each in self.live_processes):
            return False
        if isinstance(found, ConsumerGroup):
            wanted = ConsumerGroupState.STABLE if hosts else ConsumerGroupState.EMPTY
            return found.state is wanted and all(
                self._recorder.owned_by(host) == self._target(found, member_id)
                for host, member_id in hosts.items()
            )
        return found is None or found.state is (GroupState.STABLE if hosts else GroupState.EMPTY)

    def _target(self, found: ConsumerGroup, member_id: str) -> frozenset[TopicPartition]:
        catalogue = self._shard.catalogue
        topic_name = self._broker.log_manager.topic_name
        return frozenset(
            TopicPartition(topic_name(topic_id) or "", index)
            for topic_id, indexes in found.target_of(found.members[member_id], catalogue).items()
            for index in indexes
        )

    def _quiet_ms(self) -> int:
        live = self.live_processes
        owned = {p for each in live for p in self.owned_by(each)}
        subscribed = {topic for each in live for topic in each.like.topics}
        if isinstance(self.found_group, Group) and any(
            p.topic in subscribed and TopicPartition(p.topic, p.index) not in owned
            for p in self.group.partitions
        ):
            return self.group.max_poll_interval_ms
        return _QUIET_MS

    # The live assignment

    def _intercept(self, handler: Handler) -> Handler:
        """Return a handler that names members, assigns the live assignment, and asks for joins."""

        def handle(inbound: InboundRequest) -> None:
            key, message = inbound.api.key, inbound.message
            if getattr(message, "group_id", None) == self.group.name:
                if key == JOIN_GROUP.key:
                    self._name_member(inbound)
                elif key == SYNC_GROUP.key and message.assignments and not self._has_opened:
                    self._assign_live(inbound)
                elif key == HEARTBEAT.key and self._is_rejoin_of(message.member_id):
                    self._is_leader_to_rejoin = False
                    respond_with_error(ErrorCode.REBALANCE_IN_PROGRESS)(inbound, handler)
                    return
            handler(inbound)

        return handle

    def _name_member(self, inbound: InboundRequest) -> None:
        """Let the member id start with the live one: assignors see members in their live order."""
        member = self._by_host.get(_host(inbound.client_host))
        if member is not None:
            inbound.client_id = member.name

    def _assign_live(self, inbound: InboundRequest) -> None:
        """Replace the assignments of the leader, once all live members are in the generation."""
        hosts = self._hosts()
        found = self.found_group
        if len(hosts) < len(self.group.members) or not isinstance(found, Group):
            return
        if found.generation != inbound.message.generation_id:
            return
        self._has_opened = True
        inbound.message = msgspec.structs.replace(
            inbound.message,
            assignments=[
                SyncGroupAssignment(
                    member_id=member_id,
                    assignment=encode_assignment(_assignment(self._by_host[host].like.assigned)),
                )
                for host, member_id in hosts.items()
            ],
        )

    def _is_rejoin_of(self, member_id: str) -> bool:
        found = self.found_group
        return (
            self._is_leader_to_rejoin
            and isinstance(found, Group)
            and found.state is GroupState.STABLE
            and member_id == found.leader
        )

    def _set_target(self, found: ConsumerGroup) -> None:
        """Let the live assignment be the target of a group with the consumer protocol."""
        shard, name = self._shard, self.group.name
        epoch = found.generation + 1
        hosts = self._hosts()
        shard.apply(msgspec.structs.replace(found.record, epoch=epoch))
        for host, member_id in hosts.items():
            partitions: dict[bytes, list[int]] = {}
            for topic, index in self._by_host[host].like.assigned:
                image = shard.catalogue.topic(topic)
                assert image is not None, f"topic {topic} was created"
                partitions.setdefault(image.topic_id, []).append(index)
            shard.apply(
                MemberTargetRecord(
                    group_id=name,
                    member_id=member_id,
                    partitions={each: tuple(sorted(n)) for each, n in partitions.items()},
                )
            )
        shard.apply(TargetAssignmentRecord(group_id=name, assignment_epoch=epoch))

    # Errors

    def _check_groups(self) -> None:
        """Raise an error for a process that joins only another group."""
        if self.now_ms < _OTHER_GROUP_MS:
            return
        for member in self._members:
            joined = self._recorder.joined_groups.get(member.host, [])
            if joined and self.group.name not in joined:
                raise ConsumerCodeError(
                    f"{self._function.path} joins group {joined[0]} instead of {self.group.name}: "
                    f"give its consumer the group id {self.group.name}"
                )

    def _check_joined(self) -> None:
        missing = [each for each in self._members if each.host not in self._hosts()]
        if not missing:
            return
        path, name = self._function.path, self.group.name
        within = f"within {_JOIN_TIMEOUT_MS // 1000} s of virtual time"
        if len(missing) == len(self._members):
            raise ConsumerCodeError(
                f"{path} does not join group {name} {within}: its consumer must connect to the "
                "first argument and subscribe"
            )
        raise ConsumerCodeError(
            f"{path}: {len(missing)} of {len(self._members)} processes do not join group {name} "
            f"{within}: each one must be a separate member, without a fixed group.instance.id"
        )

    def _check_subscriptions(self) -> None:
        known = set(self.group.partition_counts)
        for host, subscribed in self._subscriptions().items():
            member = self._by_host[host]
            if subscribed & known != set(member.like.topics) & known:
                raise ConsumerCodeError(
                    f"{self._function.path} subscribes to {_names(subscribed)}, but member "
                    f"{member.name} of group {self.group.name} subscribes to "
                    f"{_names(member.like.topics)}"
                )

    def _subscriptions(self) -> dict[str, set[str]]:
        """Return the subscribed topics of each host."""
        found, hosts = self.found_group, self._hosts()
        if isinstance(found, ConsumerGroup):
            return {
                host: set(found.members[member_id].subscription.subscribed_topics)
                for host, member_id in hosts.items()
            }
        assert isinstance(found, Group)
        result = {}
        for host, member_id in hosts.items():
            try:
                metadata = found.members[member_id].protocols[0].metadata
                result[host] = set(decode_subscription(metadata).topics)
            except MalformedError:
                raise ConsumerCodeError(
                    f"{self._function.path} is no consumer: group {self.group.name} gets a "
                    "subscription with another format"
                ) from None
        return result


def broker_settings(trial: Trial) -> Settings:
    """Return the settings of the broker of a trial."""
    session_ms = trial.group.session_timeout_ms
    return {
        "group.initial.rebalance.delay.ms": 3_000,
        "group.min.session.timeout.ms": 1,
        "group.consumer.min.session.timeout.ms": 1,
        "group.consumer.session.timeout.ms": session_ms,
        "group.consumer.min.heartbeat.interval.ms": 1,
        "group.consumer.heartbeat.interval.ms": min(5_000, session_ms // 3),
        "auto.create.topics.enable": False,
        "message.max.bytes": 2**30,
    }


def _host(client_host: str) -> str:
    return client_host.removeprefix("/")


def _names(topics: Sequence[str] | set[str] | tuple[str, ...]) -> str:
    return ", ".join(sorted(topics)) or "no topic"


def _assignment(partitions: Sequence[TopicPartition]) -> Assignment:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return Assignment(
        assigned_partitions=[
            ConsumerTopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ]
    )
