"""A consumer group: its members, its epochs, and its target assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from partage.coordinator.consumer_group.actions import AssignableMember, ComputeTarget
from partage.coordinator.consumer_group.backoff import Backoff
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.events import TopicImage
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.partitions import (
    EpochedPartitions,
    PartitionSet,
    TopicId,
)
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    ConsumerGroupRecords,
    ConsumerGroupTombstone,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    MemberAssignmentRecord,
    MemberAssignmentTombstone,
    MemberTargetRecord,
    MemberTargetTombstone,
    RegularExpressionRecord,
    RegularExpressionTombstone,
    TargetAssignmentRecord,
    TargetAssignmentTombstone,
)
from partage.coordinator.consumer_group.states import ConsumerGroupState
from partage.coordinator.events import Ticket
from partage.coordinator.group_base import GroupBase, GroupType, SubscribedTopics
from partage.coordinator.records import MemberRecord, OffsetRecord, Record
from partage.coordinator.states import GroupState
from partage.model.settings import ConsumerGroupSettings

Key = TypeVar("Key")

#: The epoch of a new group, and of its empty target assignment.
FIRST_EPOCH = 1

#: What a member subscribes to: the topic names, and the regular expression.
Subscription = tuple[tuple[str, ...], str | None]


class ParkedHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat or a JoinGroup that waits for the target assignment that it caused.

    ``is_outdated`` is True after a later request of the member with all fields: the member has
    given up this one, and reads no response to it.
    """

    member_id: str
    ticket: Ticket
    owned: PartitionSet | None
    is_full: bool
    is_join_group: bool = False
    has_subscription_changed: bool
    is_outdated: bool = False
    assignment: MemberAssignmentRecord  # of the member when it sent the request


class Computation(msgspec.Struct):
    """A target assignment under way.

    Attributes:
        action: What the shell computes.
        parked: The heartbeats that wait for it.
        computed_ids: For each member whose target is computed, its id in the action. A static
            member that returns meanwhile has another id there.
    """

    action: ComputeTarget
    parked: list[ParkedHeartbeat]
    computed_ids: dict[str, str]


class ConsumerGroup(GroupBase):
    """One consumer group. All of it is durable, except for the work of the shell under way.

    The attributes are redundant on purpose, so that a heartbeat iterates over no members:

    - ``holders`` has the member of each partition that is assigned or pending revocation.
    - ``static_members`` has the member id of each instance id.
    - ``subscriptions``, ``subscribed_regexes`` and ``assignors`` count the members with a
      subscription, a regular expression or an assignor.
    - ``classic_count`` counts the members with the classic protocol, ``classic_protocols`` those
      that list an assignor in JoinGroup.
    - ``applied`` counts the records that were applied. After loading, equal counts mean that the
      durable state is the same.
    """

    __slots__ = (
        "_topic_ids",
        "_topic_ids_version",
        "applied",
        "assignors",
        "classic_count",
        "classic_protocols",
        "computation",
        "computation_backoff",
        "configured_assignor",
        "holders",
        "is_stored",
        "members",
        "metadata_version",
        "record",
        "regexes",
        "regexes_backoff",
        "regexes_resolved_ms",
        "regexes_version",
        "resolution",
        "static_members",
        "subscribed_regexes",
        "subscriptions",
        "target_record",
    )

    type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.record = ConsumerGroupRecord(group_id=group_id, epoch=FIRST_EPOCH)
        self.target_record = TargetAssignmentRecord(group_id=group_id, assignment_epoch=FIRST_EPOCH)
        self.is_stored = False  # has a group record
        self.applied = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.subscriptions: dict[Subscription, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_count = 0
        self.classic_protocols: dict[str, int] = {}
        self.holders: dict[TopicId, dict[int, str]] = {}
        self.regexes: dict[str, RegularExpressionRecord] = {}
        self.subscribed_regexes: dict[str, int] = {}
        # Work of the shell, and what it is due for.
        self.computation: Computation | None = None
        self.computation_backoff = Backoff()
        self.resolution: int | None = None  # the sequence number of the one under way
        self.regexes_backoff = Backoff()
        self.regexes_version = -1  # of the topics against which the regexes were matched
        self.regexes_resolved_ms = 0
        # The topics and the assignor in the config of which the group has the metadata hash.
        self.metadata_version = -1
        self.configured_assignor: str | None = None
        self._topic_ids: dict[Subscription, frozenset[TopicId]] = {}
        self._topic_ids_version = -1

    # GroupBase.

    @property
    def epoch(self) -> int:
        """The epoch of the group."""
        return self.record.epoch

    @property
    def generation(self) -> int:
        """The epoch of the group."""
        return self.record.epoch

    @property
    def assignment_epoch(self) -> int:
        """The epoch of the target assignment."""
        return self.target_record.assignment_epoch

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from the epochs; it iterates over the members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(m.is_reconciled(self.assignment_epoch) for m in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """The name of the state."""
        return self.state

    @property
    def classic_state(self) -> GroupState:
        """Empty, or Stable with members."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def protocol_type_name(self) -> str:
        """The protocol type, which is that of consumers."""
        return "consumer"

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    def member_record(self, member_id: str) -> MemberRecord | None:
        """Return a member's identity; the session timeout is 0, because the group has it."""
        member = self.members.get(member_id)
        if member is None or member.record is None:
            return None
        record = member.record
        return MemberRecord(
            member_id=member_id,
            instance_id=record.instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=0 if record.classic is None else record.classic.session_timeout_ms,
            subscription=b"",
        )

    @property
    def members_by_id(self) -> Mapping[str, ConsumerMember]:
        """The members by id."""
        return self.members

    def topics_in_use(self, subscribed_topics: SubscribedTopics) -> frozenset[str]:
        """Return the topics to which any member subscribes."""
        return self.subscribed_topics()

    def retention_start_ms(self, offset: OffsetRecord, in_use: frozenset[str] | None) -> int | None:
        """Return the time of the commit, unless a member subscribes to the topic."""
        return None if in_use is None or offset.topic in in_use else offset.commit_ms

    def tombstones(self) -> list[Record]:
        """Return the tombstones of all records, in Kafka's order."""
        of_group = {"group_id": self.id}
        return [
            *(MemberAssignmentTombstone(group_id=self.id, member_id=m) for m in self.members),
            *(MemberTargetTombstone(group_id=self.id, member_id=m) for m in self.members),
            TargetAssignmentTombstone(**of_group),
            *(ConsumerMemberTombstone(group_id=self.id, member_id=m) for m in self.members),
            *(RegularExpressionTombstone(group_id=self.id, regex=regex) for regex in self.regexes),
            ConsumerGroupTombstone(**of_group),
        ]

    # Durable state.

    def apply(self, record: ConsumerGroupRecords) -> None:
        """Apply a record, both live and while loading; then in any order of the keys."""
        self.applied += 1
        match record:
            case MemberAssignmentRecord():
                member = self._member(record.member_id)
                self._release(member)
                member.assignment = record
                self._hold(member)
            case ConsumerMemberRecord():
                member = self._member(record.member_id)
                self._count(member, -1)
                member.record = record
                self._count(member, +1)
            case MemberTargetRecord():
                self._member(record.member_id).target = record.partitions
            case ConsumerGroupRecord():
                self.record = record
                self.is_stored = True
            case TargetAssignmentRecord():
                self.target_record = record
            case RegularExpressionRecord():
                self.regexes[record.regex] = record
                self._topic_ids.clear()
            case ConsumerMemberTombstone():
                self._remove(record.member_id)
            case MemberAssignmentTombstone():
                if record.member_id in self.members:
                    member = self.members[record.member_id]
                    self._release(member)
                    member.assignment = ConsumerMember(self.id, record.member_id).assignment
            case MemberTargetTombstone():
                if record.member_id in self.members:
                    self.members[record.member_id].target = {}
            case RegularExpressionTombstone():
                self.regexes.pop(record.regex, None)
                self._topic_ids.clear()
            case TargetAssignmentTombstone():
                self.target_record = TargetAssignmentRecord(
                    group_id=self.id, assignment_epoch=FIRST_EPOCH
                )
            case ConsumerGroupTombstone():
                pass  # the shard removes the group

    def records(self) -> list[ConsumerGroupRecords]:
        """Return the records that restore the group, except for those of a new group or member."""
        records: list[ConsumerGroupRecords] = [self.record, self.target_record]
        for member in self.members.values():
            records.append(member.subscription)
            records.append(member.assignment)
            records.append(
                MemberTargetRecord(group_id=self.id, member_id=member.id, partitions=member.target)
            )
        return [*records, *self.regexes.values()]

    def resume(self) -> None:
        """Drop what belongs to no stored member, after loading."""
        for member_id in [m.id for m in self.members.values() if m.record is None]:
            self._remove(member_id)

    def _member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(self.id, member_id)
        return member

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            self._count(member, -1)

    def _count(self, member: ConsumerMember, by: int) -> None:
        record = member.record
        if record is None:
            return
        subscription = subscription_of(record)
        _add(self.subscriptions, subscription, by)
        if subscription not in self.subscriptions:
            self._topic_ids.pop(subscription, None)
        if record.subscribed_regex is not None:
            _add(self.subscribed_regexes, record.subscribed_regex, by)
        if record.server_assignor is not None:
            _add(self.assignors, record.server_assignor, by)
        if record.classic is not None:
            self.classic_count += by
            for name in dict.fromkeys(protocol.name for protocol in record.classic.protocols):
                _add(self.classic_protocols, name, by)
        if record.instance_id is not None:
            if by > 0:
                self.static_members[record.instance_id] = member.id
            elif self.static_members.get(record.instance_id) == member.id:
                del self.static_members[record.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assignment.assigned, member.assignment.pending_revocation):
            for topic_id, epochs in held.items():
                of_topic = self.holders.get(topic_id, {})
                for partition in epochs:
                    if of_topic.get(partition) == member.id:
                        del of_topic[partition]
                if not of_topic:
                    self.holders.pop(topic_id, None)

    def _hold(self, member: ConsumerMember) -> None:
        held: EpochedPartitions
        for held in (member.assignment.assigned, member.assignment.pending_revocation):
            for topic_id, epochs in held.items():
                of_topic = self.holders.setdefault(topic_id, {})
                for partition in epochs:
                    assert partition not in of_topic, (
                        f"partition {partition} of topic {topic_id.hex()} in group {self.id} has "
                        f"two owners: {of_topic[partition]} and {member.id}"
                    )
                    of_topic[partition] = member.id

    def holder(self, topic_id: TopicId, partition: int) -> str | None:
        """Return the member to which a partition is assigned, or that must still release it."""
        of_topic = self.holders.get(topic_id)
        return None if of_topic is None else of_topic.get(partition)

    # Subscriptions.

    def topics_of(self, subscription: Subscription) -> frozenset[str]:
        """Return the topic names of a subscription; a regex that is not resolved has none."""
        names, regex = subscription
        resolved = None if regex is None else self.regexes.get(regex)
        return frozenset(names if resolved is None else (*names, *resolved.topics))

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topic names to which any member subscribes."""
        names: set[str] = set()
        for subscription in self.subscriptions:
            names |= self.topics_of(subscription)
        return frozenset(names)

    def topic_ids_of(self, subscription: Subscription, catalogue: Catalogue) -> frozenset[TopicId]:
        """Return the ids of the existing topics of a subscription."""
        if self._topic_ids_version != catalogue.version:
            self._topic_ids.clear()
            self._topic_ids_version = catalogue.version
        ids = self._topic_ids.get(subscription)
        if ids is None:
            topics = (catalogue.topic(name) for name in self.topics_of(subscription))
            ids = frozenset(topic.topic_id for topic in topics if topic is not None)
            self._topic_ids[subscription] = ids
        return ids

    def target_of(self, member: ConsumerMember, catalogue: Catalogue) -> PartitionSet:
        """Return a member's target, without the topics to which it no longer subscribes."""
        subscribed = self.topic_ids_of(subscription_of(member.subscription), catalogue)
        return {
            topic_id: partitions
            for topic_id, partitions in member.target.items()
            if topic_id in subscribed
        }

    def preferred_assignor(self, catalogue: Catalogue, settings: ConsumerGroupSettings) -> str:
        """Return the assignor in the config of the group, or the one that most members prefer.

        The order of the setting decides a tie.
        """
        configured = catalogue.assignor(self.id, settings)
        if configured is not None:
            return configured
        counts = [(self.assignors.get(name, 0), name) for name in settings.assignors]
        most = max(count for count, _ in counts)
        return next(name for count, name in counts if count == most)

    # Target assignment.

    def is_parked(self, member_id: str) -> bool:
        """True if a heartbeat of the member waits for the target assignment."""
        computation = self.computation
        return computation is not None and any(
            parked.member_id == member_id for parked in computation.parked
        )

    def outdate_parked(self, member_id: str) -> bool:
        """Mark the waiting requests of a member as outdated: it has sent all fields again.

        Only the responses to later requests may show it a changed assignment. Otherwise the member
        would never learn which partitions it must give up.

        Returns:
            True if one of them changed the subscription of the member.
        """
        computation = self.computation
        if computation is None:
            return False
        outdated = [parked for parked in computation.parked if parked.member_id == member_id]
        if outdated:
            computation.parked = [
                msgspec.structs.replace(parked, is_outdated=True)
                if parked.member_id == member_id
                else parked
                for parked in computation.parked
            ]
        return any(parked.has_subscription_changed for parked in outdated)

    def drop_parked_reports(self, member_id: str) -> None:
        """Ignore which partitions the waiting heartbeats of a member report as owned.

        The response to a later heartbeat may show partitions that they do not report. Without this,
        their member would not have to revoke these partitions.
        """
        computation = self.computation
        if computation is not None:
            computation.parked = [
                msgspec.structs.replace(parked, owned=None)
                if parked.member_id == member_id
                else parked
                for parked in computation.parked
            ]

    def computation_request(
        self, catalogue: Catalogue, settings: ConsumerGroupSettings
    ) -> ComputeTarget:
        """Return the action that computes the target assignment of the current epoch."""
        topics: dict[TopicId, TopicImage] = {}
        distinct = {
            self.topic_ids_of(subscription, catalogue) for subscription in self.subscriptions
        }
        # The order of a set differs between processes, and that of the target follows the topics.
        for topic_id in sorted(frozenset[TopicId]().union(*distinct)):
            topic = catalogue.topic_by_id(topic_id)
            assert topic is not None
            topics[topic_id] = topic
        return ComputeTarget(
            group_id=self.id,
            sequence=catalogue.next_sequence(),
            group_epoch=self.epoch,
            assignor=self.preferred_assignor(catalogue, settings),
            members={
                member.id: AssignableMember(
                    member_id=member.id,
                    instance_id=member.subscription.instance_id,
                    rack_id=member.subscription.rack_id,
                    subscribed_topic_ids=self.topic_ids_of(
                        subscription_of(member.subscription), catalogue
                    ),
                    target=member.target,
                )
                for member in self.members.values()
            },
            topics=topics,
            is_homogeneous=len(distinct) <= 1,
        )


def subscription_of(record: ConsumerMemberRecord) -> Subscription:
    """Return what a member subscribes to."""
    return record.subscribed_topics, record.subscribed_regex


def _add(counts: dict[Key, int], key: Key, by: int) -> None:
    """Change a count, and drop it at zero."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]
