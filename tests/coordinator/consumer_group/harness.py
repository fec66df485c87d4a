"""A shard with consumer groups, with its clock, its topics and its assignor under control.

After each event it checks the invariants, that a replay of the encoded log restores the same state,
and that each ticket has at most one reply. Before a heartbeat that changes nothing it checks that
the short path has the outcome of all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from partage.coordinator import invariants
from partage.coordinator.consumer_group.actions import ComputeTarget, ResolveRegexes
from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
    GroupConfig,
    GroupConfigsChanged,
    RegexesResolved,
    RepeatedHeartbeat,
    TargetComputed,
    TopicImage,
    TopicsChanged,
)
from partage.coordinator.consumer_group.group import ConsumerGroup, subscription_of
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.consumer_group.replies import (
    ConsumerGroupHeartbeatReply,
    DescribeConsumerGroupReply,
)
from partage.coordinator.consumer_group.requests import handle_heartbeat
from partage.coordinator.consumer_group.unchanged_heartbeat import answer_unchanged
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Event, Ticket, TimerFired
from partage.coordinator.outcome import GroupEvent, Outcome
from partage.coordinator.records import Record, TransactionalOffsetRecord
from partage.coordinator.shard import Shard
from partage.coordinator.timers import TimerKey
from partage.model.settings import ConsumerGroupSettings, GroupSettings
from partage.store.embedded_protocol import KafkaEmbeddedProtocol
from partage.store.record_formats import decode_record, encode_record
from partage.store.shard_log import subscribed_topics

START_MS = 1_000_000


def topic_id(name: str, version: int = 0) -> bytes:
    """Return the id of a topic of the tests."""
    return f"{name}/{version}".encode().ljust(16, b".")


def topic(name: str, partitions: int, version: int = 0) -> TopicImage:
    """Return a topic of the tests."""
    return TopicImage(topic_id=topic_id(name, version), name=name, partition_count=partitions)


def parts(**topics: Iterable[int]) -> PartitionSet:
    """Return partitions by topic, such as ``parts(t=(0, 1))``."""
    return {topic_id(name): tuple(numbers) for name, numbers in topics.items()}


def spread(action: ComputeTarget) -> Mapping[str, PartitionSet]:
    """Assign each topic in contiguous parts to its subscribers, in the order of their ids."""
    target: dict[str, dict[bytes, tuple[int, ...]]] = {each: {} for each in action.members}
    for topic_id_, image in action.topics.items():
        members = sorted(
            m.member_id for m in action.members.values() if topic_id_ in m.subscribed_topic_ids
        )
        size, rest = divmod(image.partition_count, len(members))
        first = 0
        for index, member_id in enumerate(members):
            count = size + (index < rest)
            if count:
                target[member_id][topic_id_] = tuple(range(first, first + count))
            first += count
    return target


class ConsumerHarness:
    """One shard, with group ``g``."""

    def __init__(
        self,
        *,
        topics: Mapping[str, TopicImage] | None = None,
        settings: ConsumerGroupSettings | None = None,
    ) -> None:
        consumer = settings or ConsumerGroupSettings(assignment_interval_ms=0)
        self.settings = GroupSettings(consumer=consumer)
        self.now_ms = START_MS
        self.log: list[Record] = []
        self.armed: dict[TimerKey, int] = {}
        self.actions: list[ComputeTarget | ResolveRegexes] = []
        self.group_events: list[GroupEvent] = []
        self.replies: dict[Ticket, Any] = {}
        self.assignor: Callable[[ComputeTarget], Mapping[str, PartitionSet]] = spread
        self.runs_actions = True
        self.checks_replay = True  # after each event
        self.has_full_targets = True  # the assignor assigns all partitions
        self.topics: dict[str, TopicImage] = dict(topics or {"t": topic("t", 6)})
        self.version = 0
        self.short_path_count = 0  # heartbeats that changed nothing
        self._ticket = 0
        self.repetition_count = 0  # of these, heartbeats that had changed nothing before, either
        self._originals: dict[str, ConsumerGroupHeartbeat] = {}
        self.shard = self._new_shard()
        self._effects(self.shard.resume(self.now_ms))
        self.change_topics(*self.topics.values())

    # Events.

    def handle(self, event: Event) -> Outcome:
        """Handle an event, and run the actions if that is on."""
        if isinstance(event, ConsumerGroupHeartbeat):
            self._check_short_path(event)
        outcome = self.shard.handle(event)
        self._effects(outcome)
        invariants.check(self.shard, self.armed)
        if self.checks_replay:
            self._check_replay()
        if isinstance(event, TargetComputed) and self.has_full_targets:
            assert not self.uncovered()
        if self.runs_actions:
            self.run_actions()
        return outcome

    def _check_short_path(self, event: ConsumerGroupHeartbeat) -> None:
        """Check the outcomes of the short paths, if the heartbeat takes one.

        A heartbeat that changes nothing can be handled several times.
        """
        shard = self.shard
        group = shard.groups.get(event.group_id)
        short = EventContext(event.at_ms, self.settings, _forbid_record)
        effects = self._repetition_effects(event)
        if not isinstance(group, ConsumerGroup) or not answer_unchanged(
            short, group, shard.catalogue, event
        ):
            assert effects is None
            return
        if effects is not None:
            self.repetition_count += 1
            reply, timer, timeout_ms = effects
            assert short.timers == [(timer, event.at_ms + timeout_ms)]
            assert short.replies == [(event.reply_to, reply)]
        self.short_path_count += 1
        full = EventContext(event.at_ms, self.settings, _forbid_record)
        handle_heartbeat(full, shard.catalogue, event)
        for effects in Outcome.__slots__:
            assert getattr(short, effects) == getattr(full, effects), effects

    def _repetition_effects(self, event: ConsumerGroupHeartbeat) -> Any:
        """Return what the shard knows of the heartbeat as a repeated one, if it is one."""
        if event.original is None:
            return None
        repeated = RepeatedHeartbeat(
            at_ms=event.at_ms,
            reply_to=event.reply_to,
            group_id=event.group_id,
            original=event.original,
        )
        assert repeated.complete() == event
        return self.shard.heartbeat_effects(repeated)

    def run_actions(self) -> None:
        """Run the pending actions, as the shell does."""
        while self.actions:
            self.run_action()

    def run_action(self) -> None:
        """Run the oldest pending action."""
        match self.actions.pop(0):
            case ComputeTarget() as action:
                self.complete(action, self.assignor(action))
            case ResolveRegexes() as action:
                self.handle(
                    RegexesResolved(
                        at_ms=self.now_ms,
                        group_id=action.group_id,
                        sequence=action.sequence,
                        topics={
                            regex: frozenset(n for n in self.topics if n.startswith(regex[:-2]))
                            for regex in action.regexes
                        },
                        version=self.version,
                    )
                )

    def uncovered(self) -> set[tuple[bytes, int]]:
        """Return the partitions that some member subscribes to, but that are in no target.

        Before the group has the target of its epoch and of the current topics, there are none.
        """
        group = self.shard.groups.get("g")
        catalogue = self.shard.catalogue
        if (
            not isinstance(group, ConsumerGroup)
            or group.epoch > group.assignment_epoch
            or group.metadata_version != catalogue.version
        ):
            return set()
        wanted: set[tuple[bytes, int]] = set()
        covered: set[tuple[bytes, int]] = set()
        for member in group.members.values():
            names = group.topics_of(subscription_of(member.subscription))
            topics = [self.topics[name] for name in names if name in self.topics]
            wanted |= {(each.topic_id, p) for each in topics for p in range(each.partition_count)}
            covered |= {(t, p) for t, numbers in member.target.items() for p in numbers}
        return wanted - covered

    def complete(
        self, action: ComputeTarget, target: Mapping[str, PartitionSet] | None, error: str = ""
    ) -> None:
        """Report the result of a computation."""
        self.handle(
            TargetComputed(
                at_ms=self.now_ms,
                group_id=action.group_id,
                sequence=action.sequence,
                group_epoch=action.group_epoch,
                target=target,
                error=error,
            )
        )

    def ticket(self) -> Ticket:
        """Return a new ticket."""
        self._ticket += 1
        return Ticket(self._ticket)

    def change_topics(self, *topics: TopicImage) -> None:
        """Replace the topics."""
        self.topics = {each.name: each for each in topics}
        self.version += 1
        event = TopicsChanged(at_ms=self.now_ms, topics=self.topics, version=self.version)
        self.handle(event)

    def configure(self, config: GroupConfig) -> None:
        """Set the config of the group."""
        self.handle(GroupConfigsChanged(at_ms=self.now_ms, configs={"g": config}))

    def send(self, member_id: str, epoch: int, **fields: object) -> Ticket:
        """Send a heartbeat; return its ticket."""
        ticket = self.ticket()
        base = ConsumerGroupHeartbeat(
            at_ms=self.now_ms,
            reply_to=ticket,
            group_id="g",
            member_id=member_id,
            generated_member_id="generated",
            member_epoch=epoch,
            client_id="client",
            client_host="/host",
        )
        self.handle(self._repeat(msgspec.structs.replace(base, **fields)))
        return ticket

    def _repeat(self, event: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeat:
        """Return the event as of a connection that repeats an equal earlier request, if any."""
        original = msgspec.structs.replace(event, at_ms=0, reply_to=Ticket(None))
        original = self._originals.setdefault(repr(original), original)
        return msgspec.structs.replace(event, original=original)

    def ask(self, member_id: str, epoch: int, **fields: object) -> ConsumerGroupHeartbeatReply:
        """Send a heartbeat and return the reply."""
        reply = self.replies[self.send(member_id, epoch, **fields)]
        assert isinstance(reply, ConsumerGroupHeartbeatReply)
        return reply

    def join(self, member_id: str, *topics: str, **fields: object) -> ConsumerGroupHeartbeatReply:
        """Send the first heartbeat of a member."""
        return self.ask(member_id, 0, **joining(*topics), **fields)

    def beat(self, member_id: str, **fields: object) -> ConsumerGroupHeartbeatReply:
        """Send a heartbeat with the member's current epoch."""
        return self.ask(member_id, self.group.members[member_id].epoch, **fields)

    def leave(self, member_id: str, **fields: object) -> ConsumerGroupHeartbeatReply:
        """Send the heartbeat of a member that leaves."""
        return self.ask(member_id, -1, **fields)

    def describe(self) -> DescribeConsumerGroupReply:
        """Describe the group."""
        ticket = self.ticket()
        self.handle(DescribeConsumerGroup(at_ms=self.now_ms, reply_to=ticket, group_id="g"))
        reply = self.replies[ticket]
        assert isinstance(reply, DescribeConsumerGroupReply)
        return reply

    @property
    def group(self) -> ConsumerGroup:
        """The group."""
        group = self.shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def epochs(self) -> tuple[str, int, int]:
        """State, group epoch and assignment epoch."""
        return str(self.group.state), self.group.epoch, self.group.assignment_epoch

    # Time and restarts.

    def advance(self, ms: int) -> None:
        """Let time pass, and fire the timers that are due, in order."""
        until = self.now_ms + ms
        while self.armed:
            key, deadline_ms = min(self.armed.items(), key=lambda each: each[1])
            if deadline_ms > until:
                break
            del self.armed[key]
            self.now_ms = max(self.now_ms, deadline_ms)
            self.handle(TimerFired(at_ms=self.now_ms, key=key))
        self.now_ms = until

    def restart(self, *, has_topics: bool = True) -> None:
        """Discard the shard, and load it from its log; without topics until they change."""
        self.actions.clear()
        self.armed.clear()
        self.shard = self._replayed()
        self._effects(self.shard.resume(self.now_ms))
        if has_topics:
            self.change_topics(*self.topics.values())

    def _new_shard(self) -> Shard:
        return Shard(self.settings, subscribed_topics, KafkaEmbeddedProtocol())

    def _effects(self, outcome: Outcome) -> None:
        self.log += outcome.records
        self.actions += outcome.actions
        self.group_events += outcome.group_events
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.armed.pop(key, None)
            else:
                self.armed[key] = deadline_ms
        for ticket, reply in outcome.replies:
            assert ticket not in self.replies, f"{ticket} has a second reply: {reply}"
            self.replies[ticket] = reply

    def _replayed(self) -> Shard:
        """Return a shard that is loaded from the compacted log, in the order of the keys.

        A log with transactions is applied in its own order.
        """
        if any(isinstance(record, TransactionalOffsetRecord) for record in self.log):
            shard = self._new_shard()
            for record in self.log:
                shard.apply(record)
            return shard
        last = dict(encode_record(record) for record in self.log)  # type: ignore[arg-type]  # transactional ones are excluded above
        shard = self._new_shard()
        for key, value in sorted(last.items(), key=lambda each: each[0]):
            if value is not None:
                decoded = decode_record(key, value)
                assert decoded is not None
                shard.apply(decoded)
        return shard

    def _check_replay(self) -> None:
        replayed = self._replayed()
        replayed.resume(self.now_ms)
        assert invariants.durable_state(replayed) == invariants.durable_state(self.shard)


def _forbid_record(record: Record) -> None:
    raise AssertionError(f"a heartbeat that changes nothing writes {record}")


def joining(*topics: str) -> dict[str, object]:
    """Return the fields of a first heartbeat."""
    return {"subscribed_topics": topics, "owned": {}, "rebalance_timeout_ms": 60_000}
