"""ConsumerGroupHeartbeat: members join, report and reconcile (KIP-848)."""

from __future__ import annotations

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.embedded_protocol import CONSUMER_PROTOCOL_TYPE
from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    TargetComputed,
)
from partage.coordinator.consumer_group.group import (
    Computation,
    ConsumerGroup,
    ParkedHeartbeat,
    subscription_of,
)
from partage.coordinator.consumer_group.member import (
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from partage.coordinator.consumer_group.membership import (
    bump_epoch,
    drop_unused_regexes,
    remove_member,
    remove_members,
)
from partage.coordinator.consumer_group.parked_requests import (
    refuse,
    unknown_member,
)
from partage.coordinator.consumer_group.progress import (
    EpochCause,
    cause_of_change,
    emit_assignment,
    requester,
)
from partage.coordinator.consumer_group.reconciliation import (
    is_subset,
    reconcile,
    to_partition_set,
)
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    MemberAssignmentRecord,
    MemberTargetRecord,
)
from partage.coordinator.consumer_group.regexes import resolve_regexes
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.consumer_group.target import store_target
from partage.coordinator.consumer_group.validation import heartbeat_error
from partage.coordinator.event_context import EventContext
from partage.coordinator.group import Group
from partage.coordinator.outcome import GroupEventType
from partage.coordinator.replies import JoinReply
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings


def heartbeat(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    event: ConsumerGroupHeartbeat,
) -> None:
    """Handle a valid heartbeat of a member that joins or stays; ``group`` may be new."""
    settings = context.settings.consumer
    member_id = event.member_id or event.generated_member_id
    is_new_group = not group.is_stored
    if not has_room(group, settings, member_id, event.instance_id):
        context.reply(event.reply_to, group_is_full(settings))
        return
    refused = _invalid_member(group, member_id, event)
    if refused is not None:
        context.reply(event.reply_to, refused)
        return
    if event.member_epoch == 0:
        old = _replaced_member(group, member_id, event.instance_id)
        if old is not None:
            replace_static(context, group, catalogue, member_id, old)
    has_changed, because = _update_member(context, group, catalogue, member_id, event)
    member = group.members[member_id]
    bump_epoch(context, group, catalogue, because)
    if is_new_group and not group.is_stored:
        context.write(ConsumerGroupRecord(group_id=group.id, epoch=group.epoch))
    parked = ParkedHeartbeat(
        member_id=member_id,
        ticket=event.reply_to,
        owned=event.owned,
        is_full=_is_full(event),
        has_subscription_changed=has_changed,
        assignment=member.assignment,
    )
    reconcile_or_park(context, group, catalogue, parked)


def has_room(
    group: ConsumerGroup | Group,
    settings: ConsumerGroupSettings,
    member_id: str,
    instance_id: str | None,
) -> bool:
    """True if the group has room for the member, or knows one of its ids.

    A static member that returns replaces the member with its instance id.
    """
    return (
        len(group.members) < settings.members_max
        or member_id in group.members
        or instance_id in group.static_members
    )


def group_is_full(settings: ConsumerGroupSettings) -> ConsumerGroupHeartbeatReply:
    """Return the reply to a new member of a full group."""
    return heartbeat_error(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {settings.members_max} members.",
    )


def reconcile_or_park(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, parked: ParkedHeartbeat
) -> None:
    """Reconcile the member and answer its request, or park it if it causes a computation."""
    resolve_regexes(context, group, catalogue)
    if compute_if_due(context, group, catalogue, parked):
        # the member waits for the broker: its session starts with the response
        member = group.members[parked.member_id]
        context.cancel_timer(member.session_timer)
        stop_awaiting(context, member)
    else:
        _finish(context, group, catalogue, parked)


def compute_if_due(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    parked: ParkedHeartbeat | None = None,
) -> bool:
    """Order the computation of the target if it is due; return True if it was ordered.

    Args:
        context: Context of the current event.
        group: The group.
        catalogue: The values of the shard.
        parked: A request that waits for the result.
    """
    if not _is_computation_due(context, group, catalogue):
        return False
    action = group.computation_request(catalogue, context.settings.consumer)
    waiting = [] if parked is None else [parked]
    group.computation = Computation(action, waiting, {each: each for each in group.members})
    context.actions.append(action)
    return True


def _invalid_member(
    group: ConsumerGroup, member_id: str, event: ConsumerGroupHeartbeat
) -> ConsumerGroupHeartbeatReply | None:
    """Return the reply to a member that is not in the group, or in another epoch."""
    is_joining = event.member_epoch == 0
    if event.instance_id is not None:
        held_by = group.static_members.get(event.instance_id)
        if is_joining:
            if held_by is None or held_by == member_id:
                return None
            holder = group.members[held_by]
            if holder.epoch == STATIC_LEAVE_EPOCH or holder.is_classic:
                return None
            return heartbeat_error(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {event.instance_id} cannot join the "
                f"group because the instance id is owned by {held_by} member.",
            )
        refused = invalid_instance(group, member_id, event.instance_id)
        if refused is not None:
            return refused
    member = group.members.get(member_id)
    if member is None:
        return None if is_joining else unknown_member(group, member_id)
    if is_joining:
        return None
    assignment = member.assignment
    if event.member_epoch > assignment.member_epoch:
        size = "greater"
    elif event.member_epoch < assignment.member_epoch and (
        event.member_epoch != assignment.previous_member_epoch
        or not is_subset(event.owned, assignment.assigned)
    ):
        size = "smaller"
    else:
        return None
    return heartbeat_error(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({event.member_epoch}) than the one "
        f"known by the group coordinator ({assignment.member_epoch}). The member must abandon all "
        "its partitions and rejoin.",
    )


def invalid_instance(
    group: ConsumerGroup, member_id: str, instance_id: str
) -> ConsumerGroupHeartbeatReply | None:
    """Return the refusal of a static member; None if the instance id is its own."""
    held_by = group.static_members.get(instance_id)
    if held_by is None:
        return heartbeat_error(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
        )
    if held_by != member_id:
        return heartbeat_error(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{held_by}.",
        )
    return None


def _replaced_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | None:
    """Return the static member that a joining member replaces: it left for a while, or used the
    classic protocol. None for a new member, and for one that joins again under its member id.
    """
    old_id = member_id if instance_id is None else group.static_members.get(instance_id, "")
    old = group.members.get(old_id)
    if old is None or (old.epoch != STATIC_LEAVE_EPOCH and old_id == member_id):
        return None
    return old


def replace_static(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    member_id: str,
    old: ConsumerMember,
) -> None:
    """Give the state of a static member to the member that replaces it.

    The epoch starts again at 0, so that the member gets its partitions with its first response. A
    computation under way gives the target of the old member id to the new one.
    """
    old_id = old.id
    other = group.members.get(member_id)
    if other is not None and other is not old:
        context.emit(group, GroupEventType.LEFT, member_id, f"takes the instance id of {old_id}")
        remove_members(context, group, catalogue, [other])
    subscription, target, assignment = old.subscription, old.target, old.assignment
    computed_ids = {} if group.computation is None else group.computation.computed_ids
    computed_id = computed_ids.get(old_id)
    context.emit(group, GroupEventType.FENCED, old_id, f"replaced by {member_id}")
    remove_member(context, group, old)
    if computed_id is not None:
        computed_ids[member_id] = computed_id
    context.write(_renamed(subscription, member_id))
    context.write(MemberTargetRecord(group_id=group.id, member_id=member_id, partitions=target))
    context.write(
        MemberAssignmentRecord(
            group_id=group.id,
            member_id=member_id,
            member_epoch=0,
            previous_member_epoch=0,
            state=assignment.state,
            assigned=assignment.assigned,
            pending_revocation=assignment.pending_revocation,
        )
    )
    _arm_rebalance_timer(context, group.members[member_id])


def _update_member(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    member_id: str,
    event: ConsumerGroupHeartbeat,
) -> tuple[bool, EpochCause | None]:
    """Store the fields that the heartbeat contains; see `store_member` for the result."""
    before = group.members.get(member_id)
    old = None if before is None else before.record
    if old is not None and _repeats(old, event):
        return False, None
    changes = store_member(context, group, catalogue, _updated(group.id, member_id, old, event))
    if old is not None and old.classic is not None:  # it changed to the consumer protocol
        member = group.members[member_id]
        member.awaits_request = False
        _arm_rebalance_timer(context, member)
    return changes


def store_member(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, new: ConsumerMemberRecord
) -> tuple[bool, EpochCause | None]:
    """Store the record of a new or changed member.

    Returns:
        True if the subscription changed, and the cause if the epoch of the group must grow.
    """
    member_id = new.member_id
    before = group.members.get(member_id)
    old = None if before is None else before.record
    settings = context.settings.consumer
    preferred_before = group.preferred_assignor(catalogue, settings)
    if new != old:
        context.write(new)
    if old is None:
        context.emit(group, GroupEventType.JOINED, member_id)
    has_changed = old is None or subscription_of(new) != subscription_of(old)
    if has_changed:
        drop_unused_regexes(context, group)
    is_known_regex = new.subscribed_regex is None or new.subscribed_regex in group.regexes
    has_other_assignor = group.preferred_assignor(catalogue, settings) != preferred_before
    if has_other_assignor:
        group.computation_backoff.reset()
    because = cause_of_change(
        old, new, is_known_regex=is_known_regex, has_other_assignor=has_other_assignor
    )
    return has_changed, because


def _repeats(record: ConsumerMemberRecord, event: ConsumerGroupHeartbeat) -> bool:
    """True if the heartbeat contains no new field: the usual case, so without a new record."""
    return (
        record.classic is None
        and event.subscribed_topics is None
        and event.subscribed_regex is None
        and event.server_assignor is None
        and event.rack_id in (None, record.rack_id)
        and event.instance_id in (None, record.instance_id)
        and event.rebalance_timeout_ms in (-1, record.rebalance_timeout_ms)
        and event.client_id == record.client_id
        and event.client_host == record.client_host
    )


def _renamed(record: ConsumerMemberRecord, member_id: str) -> ConsumerMemberRecord:
    return ConsumerMemberRecord(
        group_id=record.group_id,
        member_id=member_id,
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topics=record.subscribed_topics,
        subscribed_regex=record.subscribed_regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
    )


def _updated(
    group_id: str,
    member_id: str,
    old: ConsumerMemberRecord | None,
    event: ConsumerGroupHeartbeat,
) -> ConsumerMemberRecord:
    """Return the member's record with the fields that the heartbeat contains."""
    if old is None:
        old = ConsumerMemberRecord(
            group_id=group_id, member_id=member_id, client_id="", client_host=""
        )
    topics, regex = old.subscribed_topics, old.subscribed_regex
    if event.subscribed_topics is not None:
        topics = tuple(sorted(set(event.subscribed_topics)))
    if event.subscribed_regex is not None:
        regex = event.subscribed_regex or None
    timeout_ms = event.rebalance_timeout_ms
    assignor = event.server_assignor
    return ConsumerMemberRecord(
        group_id=group_id,
        member_id=member_id,
        instance_id=old.instance_id if event.instance_id is None else event.instance_id,
        rack_id=old.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        subscribed_topics=topics,
        subscribed_regex=regex,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=old.server_assignor if assignor is None else assignor,
    )


def _is_full(event: ConsumerGroupHeartbeat) -> bool:
    """True if the response must contain the assignment: the member may not know it."""
    has_subscription = event.subscribed_topics is not None or event.subscribed_regex is not None
    is_complete = event.rebalance_timeout_ms != -1 and has_subscription and event.owned is not None
    return event.member_epoch == 0 or is_complete


# Target assignment.


def _is_computation_due(context: EventContext, group: ConsumerGroup, catalogue: Catalogue) -> bool:
    if group.epoch <= group.assignment_epoch or group.computation is not None:
        return False
    if not group.computation_backoff.is_over(context.at_ms):
        return False
    computed_ms = group.target_record.assignment_ms
    interval_ms = catalogue.assignment_interval_ms(group.id, context.settings.consumer)
    # a time that is not yet reached: the clock was set back
    return computed_ms == 0 or not 0 <= context.at_ms - computed_ms < interval_ms


def on_target_computed(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: TargetComputed
) -> None:
    """Store the computed target, and answer the heartbeats that waited for it.

    If the assignor failed, the previous target stays in force. Members that joined meanwhile get
    their partitions from the next target; members that left are skipped.
    """
    computation = group.computation
    if computation is None or computation.action.sequence != event.sequence:
        return  # of a removed group of the same name
    group.computation = None
    if event.target is None:
        group.computation_backoff.add_failure(context.at_ms)
        reason = f"assignor {computation.action.assignor}: {event.error}"
        context.emit(group, GroupEventType.ASSIGNOR_FAILED, requester(computation), reason)
    elif event.group_epoch > group.assignment_epoch:
        group.computation_backoff.reset()
        store_target(context, group, catalogue, computation, event)
    for parked in computation.parked:
        _finish(context, group, catalogue, parked)


# Reconciliation.


def _finish(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, parked: ParkedHeartbeat
) -> None:
    """Reconcile the member with the target assignment, and answer its heartbeat."""
    member = group.members[parked.member_id]
    if member.epoch == STATIC_LEAVE_EPOCH:
        refuse(context, parked, unknown_member(group, member.id))
        return
    settings = context.settings.consumer
    if not group.is_parked(member.id):  # it repeats a heartbeat that waits
        context.arm_timer(
            member.session_timer, session_timeout_ms(context, group, catalogue, member)
        )
    if parked.is_outdated:
        _answer_outdated(context, group, catalogue, parked)
        return
    has_subscription_changed = parked.has_subscription_changed
    if parked.is_full:
        has_subscription_changed |= group.outdate_parked(member.id)
    before = member.assignment
    # a later heartbeat may have got partitions that this one does not report
    owned = parked.owned if before is parked.assignment else None
    after: MemberAssignmentRecord | None = before
    if has_subscription_changed or not member.is_reconciled(group.assignment_epoch):
        after = reconcile(
            before,
            target_epoch=group.assignment_epoch,
            target=group.target_of(member, catalogue),
            owned=owned,
            holder=group.holder,
            has_subscription_changed=has_subscription_changed,
        )
    if after is None:
        reply = heartbeat_error(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )
        refuse(context, parked, reply)
        return
    if after is not before:
        context.write(after)
        emit_assignment(context, group, catalogue, member)
        if not member.is_classic:
            _arm_rebalance_timer(context, member)
    if parked.is_join_group:
        context.reply(parked.ticket, join_reply(member))
        await_request(context, member)
        return
    must_tell = parked.is_full or (
        after is not before and _partitions(after) != _partitions(before)
    )
    if must_tell:
        group.drop_parked_reports(member.id)
    context.reply(
        parked.ticket,
        ConsumerGroupHeartbeatReply(
            member_id=member.id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=catalogue.heartbeat_interval_ms(group.id, settings),
            assignment=to_partition_set(after.assigned) if must_tell else None,
        ),
    )


def _answer_outdated(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, parked: ParkedHeartbeat
) -> None:
    """Answer a request that its member has given up, with the state that the member knows."""
    member = group.members[parked.member_id]
    if parked.is_join_group:
        context.reply(parked.ticket, join_reply(member))
        return
    context.reply(
        parked.ticket,
        ConsumerGroupHeartbeatReply(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=catalogue.heartbeat_interval_ms(
                group.id, context.settings.consumer
            ),
            assignment=to_partition_set(member.assignment.assigned) if parked.is_full else None,
        ),
    )


def session_timeout_ms(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, member: ConsumerMember
) -> int:
    """Return the session timeout of a member, which chooses it itself in the classic protocol."""
    classic = member.subscription.classic
    if classic is not None:
        return classic.session_timeout_ms
    return catalogue.session_timeout_ms(group.id, context.settings.consumer)


def join_reply(member: ConsumerMember) -> JoinReply:
    """Return the reply to a JoinGroup: the member follows no leader, and gets its assignment with
    SyncGroup.
    """
    classic = member.subscription.classic
    assert classic is not None, f"{member.id} does not use the classic protocol"
    return JoinReply(
        member_id=member.id,
        generation=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=classic.protocols[0].name,
    )


def await_request(context: EventContext, member: ConsumerMember) -> None:
    """Limit the time until the next JoinGroup or SyncGroup of a member."""
    member.awaits_request = True
    context.arm_timer(member.rebalance_timer, max(member.subscription.rebalance_timeout_ms, 0))


def stop_awaiting(context: EventContext, member: ConsumerMember) -> None:
    """End the time limit of `await_request`, if there is one."""
    if member.awaits_request:
        member.awaits_request = False
        context.cancel_timer(member.rebalance_timer)


def _partitions(assignment: MemberAssignmentRecord) -> dict[bytes, frozenset[int]]:
    return {topic_id: frozenset(epochs) for topic_id, epochs in assignment.assigned.items()}


def _arm_rebalance_timer(context: EventContext, member: ConsumerMember) -> None:
    if member.must_revoke:
        timeout_ms = member.subscription.rebalance_timeout_ms
        context.arm_timer(member.rebalance_timer, max(timeout_ms, 0))
    else:
        context.cancel_timer(member.rebalance_timer)
