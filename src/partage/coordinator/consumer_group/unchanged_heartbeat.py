"""The short path of the most frequent request: a heartbeat that changes nothing.

A member of a stable group sends its epoch and no other field. All steps for such a heartbeat
(`requests.handle_heartbeat`) restart its session and confirm its epoch. This module does
the same. Each condition excludes the effect of one step.

Connections recognize a request that a client repeats (`RepeatedHeartbeat`). Its conditions are not
checked again while the durable state of the group, the topics and the configs are the same.

The conditions on state that is not durable then hold, too. A target assignment is under way only if
the epoch of the group is above that of its target. `ConsumerGroup.metadata_version` and
`ConsumerGroup.configured_assignor` are only set to the current values of the catalogue.
"""

from __future__ import annotations

from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.events import ConsumerGroupHeartbeat
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import ConsumerMember, UnchangedHeartbeat
from partage.coordinator.consumer_group.records import ReconciliationState
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.event_context import EventContext

#: A text from here on is not blank: it does not start with a character that Java's `trim` removes.
_NOT_BLANK = "!"
_STABLE = ReconciliationState.STABLE  # the attribute of an enum class takes longer


def answer_unchanged(
    context: EventContext, group: ConsumerGroup, catalogue: Catalogue, event: ConsumerGroupHeartbeat
) -> bool:
    """Answer a heartbeat that changes nothing; return False if it needs all steps."""
    unchanged = None
    if event.original is not None:
        unchanged = find_unchanged(group, catalogue, event.original)
    if unchanged is None:
        member = group.members.get(event.member_id)
        if member is None or not _is_unchanged(context, group, catalogue, member, event):
            return False
        unchanged = _keep_unchanged(context, group, catalogue, member, event)
    context.timers.append((unchanged.session_timer, context.at_ms + unchanged.session_timeout_ms))
    context.replies.append((event.reply_to, unchanged.reply))
    return True


def _keep_unchanged(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    member: ConsumerMember,
    event: ConsumerGroupHeartbeat,
) -> UnchangedHeartbeat:
    """Return the effects of a heartbeat that changes nothing; keep them if it is a repeated one."""
    timeout_ms, interval_ms = catalogue.heartbeat_times_ms(group.id, context.settings.consumer)
    reply = ConsumerGroupHeartbeatReply(
        member_id=member.id, member_epoch=event.member_epoch, heartbeat_interval_ms=interval_ms
    )
    unchanged = UnchangedHeartbeat(
        event.original, group.applied, catalogue.updates, member.session_timer, timeout_ms, reply
    )
    if event.original is not None:
        member.unchanged = unchanged
    return unchanged


def find_unchanged(
    group: ConsumerGroup, catalogue: Catalogue, original: ConsumerGroupHeartbeat
) -> UnchangedHeartbeat | None:
    """Return the effects of another repetition of a heartbeat, if it still changes nothing.

    Returns:
        None if nothing is known; then the complete event must be handled.
    """
    member = group.members.get(original.member_id)
    last = None if member is None else member.unchanged
    if (
        last is not None
        and last.original is original
        and last.applied == group.applied
        and last.updates == catalogue.updates
    ):
        return last
    return None


def _is_unchanged(
    context: EventContext,
    group: ConsumerGroup,
    catalogue: Catalogue,
    member: ConsumerMember,
    event: ConsumerGroupHeartbeat,
) -> bool:
    """True if a heartbeat changes nothing; False if it needs all steps."""
    if member.record is None:
        return False
    epoch = event.member_epoch
    record, assignment, instance_id = member.record, member.assignment, event.instance_id
    return (
        # the member has reached the target assignment, and confirms it
        epoch == assignment.member_epoch == group.target_record.assignment_epoch
        and assignment.state is _STABLE
        # no target assignment is due or under way
        and epoch == group.record.epoch
        and group.computation is None
        and group.is_stored
        # the topics are those of the last heartbeats, and no expression can match others
        and group.metadata_version == catalogue.version
        and catalogue.topics is not None
        and not group.subscribed_regexes
        # the assignor in the config of the group is that of the last heartbeats
        and group.configured_assignor == catalogue.assignor(group.id, context.settings.consumer)
        # the heartbeat has no field to store
        and event.subscribed_topics is None
        and event.subscribed_regex is None
        and event.regex_error is None
        and event.server_assignor is None
        and event.rack_id is None
        and event.rebalance_timeout_ms == -1
        and event.client_id == record.client_id
        and event.client_host == record.client_host
        and record.classic is None
        # its ids are valid
        and event.member_id >= _NOT_BLANK
        and event.group_id >= _NOT_BLANK
        and (
            instance_id is None
            or (instance_id >= _NOT_BLANK and group.static_members.get(instance_id) == member.id)
        )
    )
