"""A classic group of consumers becomes a consumer group when a member with that protocol joins.

The members keep their assignments, and their generation becomes their epoch. All records of the
change are in one batch, so a coordinator that takes over sees one group or the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from partage.coordinator import rebalance
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicSubscription,
    EmbeddedProtocol,
    TopicPartitions,
)
from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.group import FIRST_EPOCH, ConsumerGroup
from partage.coordinator.consumer_group.heartbeat import group_is_full, has_room
from partage.coordinator.consumer_group.partitions import EpochedPartitions, PartitionSet
from partage.coordinator.consumer_group.progress import snapshot_event
from partage.coordinator.consumer_group.reconciliation import to_partition_set
from partage.coordinator.consumer_group.records import (
    ClassicMemberRecord,
    ClassicProtocolRecord,
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    MemberAssignmentRecord,
    MemberTargetRecord,
    ReconciliationState,
    TargetAssignmentRecord,
)
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.consumer_group.validation import heartbeat_error
from partage.coordinator.event_context import EventContext
from partage.coordinator.group import Group
from partage.coordinator.member import Member
from partage.coordinator.outcome import GroupEventType
from partage.coordinator.replies import JoinReply
from partage.coordinator.timers import JoinTimer, SyncTimer
from partage.model.errors import ErrorCode
from partage.model.settings import MigrationPolicy
from partage.model.topic_partition import TopicPartition

_ALLOWING: Final = (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)
_CUSTOM_ASSIGNOR: Final = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
    "default assignor before re-attempting the upgrade."
)
_MALFORMED: Final = "the embedded consumer protocol is malformed."

_Subscriptions = Mapping[str, ClassicSubscription]
_Held = Mapping[str, TopicPartitions]


def upgrade(
    context: EventContext, group: Group, catalogue: Catalogue, event: ConsumerGroupHeartbeat
) -> ConsumerGroup | ConsumerGroupHeartbeatReply:
    """Replace a classic group by a consumer group of the same members, for a member that joins.

    Requests that wait get REBALANCE_IN_PROGRESS, so that their members join again. A member that
    awaits its assignment is in the group with the partitions that it reported to own. Other
    partitions that a member reported to own stay with it until its next JoinGroup.

    Args:
        context: Context of the current event.
        group: A classic group that is not Empty.
        catalogue: The values of the shard.
        event: The first heartbeat of the member.

    Returns:
        The consumer group, or the reply if the group stays a classic group.
    """
    settings = context.settings.consumer
    member_id = event.member_id or event.generated_member_id
    refused = _refusal(context, group)
    if refused is None:
        protocol = _common_protocol(group)
        subscriptions = _decode_subscriptions(group, protocol, catalogue.embedded)
        held = None if subscriptions is None else _held(group, subscriptions, catalogue.embedded)
        if subscriptions is None or held is None:
            refused = _MALFORMED
        elif isinstance(held, str):
            refused = held
        elif has_room(group, settings, member_id, event.instance_id):
            return _convert(context, group, catalogue, subscriptions, held)
        else:
            return group_is_full(settings)
    message = f"Cannot upgrade classic group {group.id} to consumer group because {refused}"
    return heartbeat_error(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _refusal(context: EventContext, group: Group) -> str | None:
    if context.settings.consumer.migration_policy not in _ALLOWING:
        return "online upgrade is disabled."
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "the group does not use the consumer embedded protocol."
    if len(group.members) > context.settings.consumer.members_max:
        return "the group size exceeds the consumer group maximum size."
    return None


def _common_protocol(group: Group) -> str | None:
    """Return the protocol of the generation, or another one that all members support."""
    if not group.members:
        return None
    count = group.protocol_counts.get(group.protocol or "", 0)
    return group.protocol if count == len(group.members) else group.select_protocol()


def _decode_subscriptions(
    group: Group, protocol: str | None, embedded: EmbeddedProtocol
) -> _Subscriptions | None:
    """Return the subscription of each member; None if one is malformed."""
    decoded = {}
    for member in group.members.values():
        subscription = embedded.decode_subscription(member.metadata(protocol))
        if subscription is None:
            return None
        decoded[member.id] = subscription
    return decoded


def _held(
    group: Group, subscriptions: _Subscriptions, embedded: EmbeddedProtocol
) -> _Held | str | None:
    """Return the partitions that each member may read; None if an assignment is malformed.

    Until the assignment of a generation is stored, a member may read the partitions that it
    reported to own. A rebalance that interrupts the generation does not change that.

    Returns a text if a custom assignor is in use: it sent user data, or one partition to several
    members.
    """
    if group.record.awaiting_sync:
        return _owned(subscriptions)
    held: dict[str, TopicPartitions] = {}
    seen: set[TopicPartition] = set()
    for member_id in group.members:
        assignment = embedded.decode_assignment(group.assignments.get(member_id, b""))
        if assignment is None:
            return None
        if assignment.has_user_data:
            return _CUSTOM_ASSIGNOR
        held[member_id] = assignment.partitions
        for topic, numbers in assignment.partitions.items():
            for number in numbers:
                partition = TopicPartition(topic, number)
                if partition in seen:
                    return _CUSTOM_ASSIGNOR
                seen.add(partition)
    return held


def _owned(subscriptions: _Subscriptions) -> _Held:
    """Return the partitions that each member reported to own; the newest generation decides."""
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, subscription in subscriptions.items():
        for topic, numbers in subscription.owned.items():
            for number in numbers:
                partition = TopicPartition(topic, number)
                known = owners.get(partition)
                if known is None or known[0] < subscription.generation:
                    owners[partition] = (subscription.generation, member_id)
    held: dict[str, dict[str, tuple[int, ...]]] = {}
    for (topic, number), (_, member_id) in sorted(owners.items()):
        of_member = held.setdefault(member_id, {})
        of_member[topic] = (*of_member.get(topic, ()), number)
    return held


def _still_owned(subscriptions: _Subscriptions, held: _Held) -> _Held:
    """Return the partitions that members reported to own, and that no assignment contains.

    A cooperative member may still read them: it gives them up after SyncGroup, and then joins
    again.
    """
    assigned = {
        (topic, number)
        for partitions in held.values()
        for topic, numbers in partitions.items()
        for number in numbers
    }
    return {
        member_id: {
            topic: tuple(number for number in numbers if (topic, number) not in assigned)
            for topic, numbers in partitions.items()
        }
        for member_id, partitions in _owned(subscriptions).items()
    }


def _convert(
    context: EventContext,
    group: Group,
    catalogue: Catalogue,
    subscriptions: _Subscriptions,
    held: _Held,
) -> ConsumerGroup:
    error = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        refused = JoinReply(error=error, member_id=member.id)
        rebalance.reply_to_join(context, group, member, refused)
    rebalance.abort_sync(context, group)
    for member_id in list(group.pending_members):
        rebalance.remove_pending_member(context, group, member_id)
    context.cancel_timer(JoinTimer(group.id))
    context.cancel_timer(SyncTimer(group.id))
    for tombstone in group.tombstones():
        context.write(tombstone)
    epoch = max(group.generation, FIRST_EPOCH)
    still_owned = _still_owned(subscriptions, held)
    for member in group.members.values():
        subscription = subscriptions[member.id]
        kept, revoked_topics = _split(
            held.get(member.id, {}), still_owned.get(member.id, {}), subscription.topics
        )
        assigned = catalogue.to_partition_set(kept)
        revoked = catalogue.to_partition_set(revoked_topics)
        _store_member(
            context,
            group.id,
            member,
            subscription,
            epoch,
            assigned=_since(epoch, assigned),
            pending_revocation=_since(epoch, revoked),
        )
    context.write(TargetAssignmentRecord(group_id=group.id, assignment_epoch=epoch))
    topics = {topic for each in subscriptions.values() for topic in each.topics}
    metadata_hash = catalogue.metadata_hash(topics)  # without the assignor in the config
    context.write(ConsumerGroupRecord(group_id=group.id, epoch=epoch, metadata_hash=metadata_hash))
    upgraded = catalogue.groups[group.id]
    assert isinstance(upgraded, ConsumerGroup)
    upgraded.metadata_version = catalogue.version
    for member in group.members.values():
        context.arm_timer(member.session_timer, member.session_timeout_ms)
    context.group_events.append(
        snapshot_event(context.at_ms, upgraded, catalogue, GroupEventType.UPGRADED)
    )
    return upgraded


def _split(
    held: TopicPartitions, still_owned: TopicPartitions, topics: Collection[str]
) -> tuple[TopicPartitions, TopicPartitions]:
    """Return the partitions that a member keeps, and those that it must give up.

    A static member that returned with other topics still has its old partitions. If it got them
    again, it would join again at once, and again after each SyncGroup until the next target.
    """
    kept = {topic: numbers for topic, numbers in held.items() if topic in topics}
    revoked = dict(still_owned)
    for topic, numbers in held.items():
        if topic not in topics:
            revoked[topic] = (*numbers, *still_owned.get(topic, ()))
    return kept, revoked


def _since(epoch: int, partitions: PartitionSet) -> EpochedPartitions:
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}


def _store_member(
    context: EventContext,
    group_id: str,
    member: Member,
    subscription: ClassicSubscription,
    epoch: int,
    *,
    assigned: EpochedPartitions,
    pending_revocation: EpochedPartitions,
) -> None:
    context.write(
        ConsumerMemberRecord(
            group_id=group_id,
            member_id=member.id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topics=subscription.topics,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMemberRecord(
                session_timeout_ms=member.session_timeout_ms,
                protocols=tuple(
                    ClassicProtocolRecord(each.name, each.metadata) for each in member.protocols
                ),
            ),
        )
    )
    context.write(
        MemberTargetRecord(
            group_id=group_id, member_id=member.id, partitions=to_partition_set(assigned)
        )
    )
    context.write(
        MemberAssignmentRecord(
            group_id=group_id,
            member_id=member.id,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            state=ReconciliationState.UNREVOKED_PARTITIONS
            if pending_revocation
            else ReconciliationState.STABLE,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
    )
