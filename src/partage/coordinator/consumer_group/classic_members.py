"""JoinGroup, SyncGroup and Heartbeat of members with the classic protocol in a consumer group.

The group has no leader and no common generation: the epoch of a member is its generation. JoinGroup
reconciles the member with its target, SyncGroup returns its partitions, and Heartbeat tells it to
join again when it can take another step.
"""

from __future__ import annotations

from partage.coordinator import rebalance
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.downgrade import downgrade, may_downgrade
from partage.coordinator.consumer_group.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicSubscription,
)
from partage.coordinator.consumer_group.group import ConsumerGroup, ParkedHeartbeat
from partage.coordinator.consumer_group.heartbeat import (
    await_request,
    compute_if_due,
    has_room,
    reconcile_or_park,
    replace_static,
    session_timeout_ms,
    stop_awaiting,
    store_member,
)
from partage.coordinator.consumer_group.member import ConsumerMember
from partage.coordinator.consumer_group.membership import bump_epoch
from partage.coordinator.consumer_group.reconciliation import to_partition_set
from partage.coordinator.consumer_group.records import (
    ClassicMemberRecord,
    ClassicProtocolRecord,
    ConsumerMemberRecord,
    ReconciliationState,
)
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import Heartbeat, Join, Sync
from partage.coordinator.heartbeat import heartbeat_error
from partage.coordinator.replies import JoinReply, SyncReply
from partage.model.errors import ErrorCode
from partage.model.settings import MigrationPolicy


def join_group(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: Join
) -> None:
    """Handle a JoinGroup for a consumer group that has members."""
    error, subscription = _validate(context, group, catalogue, event)
    if error or subscription is None:
        member_id = event.member_id
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            member_id = event.generated_member_id
        context.reply(event.reply_to, JoinReply(error=error, member_id=member_id))
        return
    member_id = event.member_id or event.generated_member_id
    replaced = None
    if not event.member_id and event.instance_id is not None:
        replaced = group.members.get(group.static_members.get(event.instance_id, ""))
    is_downgrade = (
        replaced is not None
        and not replaced.is_classic
        and may_downgrade(context, group, [replaced], joining=1)
    )
    if replaced is not None:
        replace_static(context, group, catalogue, member_id, replaced)
    known = group.members.get(member_id)
    old = None if known is None else known.record
    new = _to_record(group.id, member_id, old, subscription, event)
    has_changed, because = store_member(context, group, catalogue, new)
    if old is not None and old.classic is None:  # it changed to the classic protocol
        context.cancel_timer(group.members[member_id].rebalance_timer)
    bump_epoch(context, group, catalogue, because)
    if is_downgrade:
        _join_and_downgrade(context, group, catalogue, event, member_id)
        return
    parked = ParkedHeartbeat(
        member_id=member_id,
        ticket=event.reply_to,
        owned=catalogue.to_partition_set(subscription.owned),
        is_full=True,
        is_join_group=True,
        has_subscription_changed=has_changed,
        assignment=group.members[member_id].assignment,
    )
    reconcile_or_park(context, group, catalogue, parked)


def _validate(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: Join
) -> tuple[ErrorCode, ClassicSubscription | None]:
    """Return NONE with the member's subscription, or the error of the request."""
    settings = context.settings.consumer
    if settings.migration_policy is MigrationPolicy.DISABLED:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None
    if catalogue.topics is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
    if not has_room(group, settings, event.member_id, event.instance_id):
        return ErrorCode.GROUP_MAX_SIZE_REACHED, None
    if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not _is_common(group, event):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None
    if not event.member_id and event.must_rejoin_with_id and event.instance_id is None:
        return ErrorCode.MEMBER_ID_REQUIRED, None
    if event.member_id and event.instance_id is not None:
        error = _instance_error(group, event.member_id, event.instance_id)
        if error:
            return error, None
    subscription = catalogue.embedded.decode_subscription(event.protocols[0].metadata)
    if subscription is None:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None
    return ErrorCode.NONE, subscription


def _is_common(group: ConsumerGroup, event: Join) -> bool:
    """True if all other members with the classic protocol list one of the member's protocols."""
    return any(
        group.classic_protocols.get(protocol.name, 0) == group.classic_count
        for protocol in event.protocols
    )


def _instance_error(group: ConsumerGroup, member_id: str, instance_id: str) -> ErrorCode:
    held_by = group.static_members.get(instance_id)
    if held_by is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if held_by == member_id else ErrorCode.FENCED_INSTANCE_ID


def _to_record(
    group_id: str,
    member_id: str,
    old: ConsumerMemberRecord | None,
    subscription: ClassicSubscription,
    event: Join,
) -> ConsumerMemberRecord:
    """Return the member's record. JoinGroup v0 has no rebalance timeout."""
    timeout_ms = event.rebalance_timeout_ms
    return ConsumerMemberRecord(
        group_id=group_id,
        member_id=member_id,
        instance_id=event.instance_id or (None if old is None else old.instance_id),
        rack_id=subscription.rack_id or (None if old is None else old.rack_id),
        client_id=event.client_id,
        client_host=event.client_host,
        subscribed_topics=subscription.topics,
        rebalance_timeout_ms=event.session_timeout_ms if timeout_ms < 0 else timeout_ms,
        server_assignor=None if old is None else old.server_assignor,
        classic=ClassicMemberRecord(
            session_timeout_ms=event.session_timeout_ms,
            protocols=tuple(
                ClassicProtocolRecord(each.name, each.metadata) for each in event.protocols
            ),
        ),
    )


def _join_and_downgrade(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    event: Join,
    member_id: str,
) -> None:
    """Downgrade when a member replaced the last one with the consumer protocol.

    The member waits for the rebalance, so that it learns the protocol and the leader of the classic
    group.
    """
    reason = f"static member {member_id} replaced the last member with the consumer protocol"
    classic = downgrade(context, group, catalogue, (), reason=reason)
    rebalance.park_join(context, classic, classic.members[member_id], event.reply_to)
    rebalance.maybe_complete_join(context, classic)


def sync_group(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: Sync
) -> None:
    """Handle a SyncGroup: return the partitions of the member; assignments in it are ignored.

    The member may name each protocol that it lists. A member that joined before the upgrade knows
    the protocol of the classic group, which is not always its first.
    """
    member = _identify(group, event)
    if isinstance(member, ErrorCode):
        context.reply(event.reply_to, SyncReply(error=member))
        return
    classic = member.subscription.classic
    assert classic is not None
    metadata = {each.name: each.metadata for each in classic.protocols}
    protocol = classic.protocols[0].name if event.protocol is None else event.protocol
    if event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol not in metadata:
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        context.reply(event.reply_to, SyncReply(error=error))
        return
    if member.epoch < group.assignment_epoch and not _is_revoking(member):
        if not member.awaits_request:
            await_request(context, member)
        error = ErrorCode.REBALANCE_IN_PROGRESS
        context.reply(event.reply_to, SyncReply(error=error))
        return
    stop_awaiting(context, member)
    _restart_session(context, group, catalogue, member)
    assigned = catalogue.to_topic_partitions(to_partition_set(member.assignment.assigned))
    context.reply(
        event.reply_to,
        SyncReply(
            protocol_type=event.protocol_type,
            protocol=event.protocol,
            assignment=catalogue.embedded.encode_assignment(assigned, metadata[protocol]),
        ),
    )


def heartbeat_of_classic_member(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: Heartbeat
) -> None:
    """Handle a Heartbeat: REBALANCE_IN_PROGRESS tells the member to join again.

    The heartbeat also sees changed topics, and orders a target that is due. So a group in which all
    members use the classic protocol, because its policy forbids a downgrade, gets its targets.
    """
    member = _identify(group, event)
    if isinstance(member, ErrorCode):
        context.reply(event.reply_to, heartbeat_error(member))
        return
    _restart_session(context, group, catalogue, member)
    error = ErrorCode.NONE
    if _must_join_again(group, catalogue, member):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        if not member.awaits_request and not group.is_parked(member.id):
            await_request(context, member)
    context.reply(event.reply_to, heartbeat_error(error))
    if catalogue.topics is not None:
        bump_epoch(context, group, catalogue, None)
        compute_if_due(context, group, catalogue)


def _identify(group: ConsumerGroup, event: Sync | Heartbeat) -> ConsumerMember | ErrorCode:
    """Return the member that a request is from, or the error of the request."""
    if event.instance_id is not None:
        error = _instance_error(group, event.member_id, event.instance_id)
        if error:
            return error
    member = group.members.get(event.member_id)
    if member is None or not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if event.generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _restart_session(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, member: ConsumerMember
) -> None:
    if not group.is_parked(member.id):
        timeout_ms = session_timeout_ms(context, group, catalogue, member)
        context.arm_timer(member.session_timer, timeout_ms)


def _is_revoking(member: ConsumerMember) -> bool:
    return member.assignment.state is ReconciliationState.UNREVOKED_PARTITIONS


def _must_join_again(group: ConsumerGroup, catalogue: Catalogue, member: ConsumerMember) -> bool:
    """True if the member must give up partitions, or can get all those of its target."""
    if member.epoch < group.assignment_epoch or _is_revoking(member):
        return True
    if member.assignment.state is not ReconciliationState.UNRELEASED_PARTITIONS:
        return False
    return all(
        group.holder(topic_id, partition) in (None, member.id)
        for topic_id, partitions in group.target_of(member, catalogue).items()
        for partition in partitions
    )
