"""A shard: the groups of one partition of ``__consumer_offsets``, and the entry point of the state
machine.

`Shard.handle` takes one event and returns its `Outcome`. `Shard.apply` is the only writer of
durable state. Handlers and loading both call it, so loading restores exactly what the handlers
stored.

To load a shard, `apply` every record of its log in order, then call `resume` once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partage.coordinator import admin, rebalance
from partage.coordinator.commit import (
    GroupOffsets,
    commit,
    commit_fenced,
    commit_in_transaction,
    delete_offsets,
)
from partage.coordinator.consumer_group import classic_members
from partage.coordinator.consumer_group import offsets as consumer_offsets
from partage.coordinator.consumer_group import requests as consumer_requests
from partage.coordinator.consumer_group.catalogue import Catalogue
from partage.coordinator.consumer_group.embedded_protocol import EmbeddedProtocol
from partage.coordinator.consumer_group.events import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
    GroupConfigsChanged,
    RegexesResolved,
    RepeatedHeartbeat,
    TargetComputed,
    TopicsChanged,
)
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.heartbeat import on_target_computed
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
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
from partage.coordinator.consumer_group.regexes import on_regexes_resolved
from partage.coordinator.consumer_group.unchanged_heartbeat import answer_unchanged, find_unchanged
from partage.coordinator.event_context import EventContext
from partage.coordinator.events import (
    Commit,
    CompleteTransaction,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    Event,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Sync,
    TimerFired,
    TopicsDeleted,
    TransactionalCommit,
)
from partage.coordinator.group import Group
from partage.coordinator.group_base import GroupBase, SubscribedTopics
from partage.coordinator.heartbeat import heartbeat, heartbeat_error
from partage.coordinator.join import join, validate_request
from partage.coordinator.leave import leave
from partage.coordinator.outcome import GroupEventType, Outcome, RebalanceCause
from partage.coordinator.pending_offsets import PendingOffsets
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    OffsetTombstone,
    Record,
    TransactionalOffsetRecord,
    TransactionMarker,
)
from partage.coordinator.replies import (
    CompleteTransactionReply,
    FetchOffsetsReply,
    JoinReply,
    LeaveReply,
    Reply,
    SyncReply,
)
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase
from partage.coordinator.sync import sync
from partage.coordinator.timers import (
    ExpiryTimer,
    JoinTimer,
    RebalanceTimer,
    SessionTimer,
    SyncTimer,
)
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition

_NO_OFFSETS: GroupOffsets = {}


class Shard:
    """Groups and their committed offsets.

    Args:
        settings: The settings of groups.
        subscribed_topics: Returns the topics in a member's metadata.
        embedded: The formats of consumers with the classic protocol. Without them, such consumers
            and those of the consumer protocol are never members of one group.
    """

    def __init__(
        self,
        settings: GroupSettings,
        subscribed_topics: SubscribedTopics,
        embedded: EmbeddedProtocol | None = None,
    ) -> None:
        self.settings = settings
        self.groups: dict[str, GroupBase] = {}
        self.catalogue = Catalogue(self.groups, embedded)
        self.offsets: dict[str, GroupOffsets] = {}
        self.pending_offsets = PendingOffsets()
        self._subscribed_topics = subscribed_topics
        self._apply = self.apply  # bound once: binding costs too much for a heartbeat

    # Durable state.

    def apply(self, record: Record) -> None:
        """Apply a record that is in the log, or is about to be appended."""
        match record:
            case OffsetRecord():
                self._store_offset(record)
                self.pending_offsets.supersede(record.group_id, record.topic, record.partition)
            case GroupRecord():
                self._classic_group(record.group_id).apply(record)
            # Before the others: a target has thousands of these.
            case (
                MemberTargetRecord()
                | MemberAssignmentRecord()
                | ConsumerMemberRecord()
                | ConsumerGroupRecord()
                | RegularExpressionRecord()
                | TargetAssignmentRecord()
            ):
                self._consumer_group(record.group_id).apply(record)
            case OffsetTombstone():
                of_group = self.offsets.get(record.group_id, {})
                of_group.pop((record.topic, record.partition), None)
                if not of_group:
                    self.offsets.pop(record.group_id, None)
                self.pending_offsets.discard(record.group_id, record.topic, record.partition)
            case GroupTombstone():
                if isinstance(self.groups.get(record.group_id), Group):
                    self._remove_group(record.group_id)
            case ConsumerGroupTombstone():
                if isinstance(self.groups.get(record.group_id), ConsumerGroup):
                    self._remove_group(record.group_id)
            case (
                ConsumerMemberTombstone()
                | MemberAssignmentTombstone()
                | MemberTargetTombstone()
                | TargetAssignmentTombstone()
                | RegularExpressionTombstone()
            ):
                stored = self.groups.get(record.group_id)
                if isinstance(stored, ConsumerGroup):
                    stored.apply(record)
            case TransactionalOffsetRecord():
                self._group(record.offset.group_id)
                self.pending_offsets.add(record.producer_id, record.offset)
            case TransactionMarker():
                committed = self.pending_offsets.complete(
                    record.producer_id, is_commit=record.is_commit
                )
                for offset in committed:
                    self._store_offset(offset)

    def _store_offset(self, record: OffsetRecord) -> None:
        self._group(record.group_id)
        of_group = self.offsets.setdefault(record.group_id, {})
        of_group[record.topic, record.partition] = record

    def _group(self, group_id: str) -> GroupBase:
        """Return the group, created if needed: a group that only commits offsets has no group
        record.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def _classic_group(self, group_id: str) -> Group:
        """Return the classic group, created if needed."""
        group = self.groups.get(group_id)
        if not isinstance(group, Group):
            group = self.groups[group_id] = Group(group_id)
        return group

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group, created if needed; it replaces a group with offsets only."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id)
        return group

    def _remove_group(self, group_id: str) -> None:
        """Remove a group. Offsets that it leaves belong to a group of the other type that
        replaces it.
        """
        del self.groups[group_id]
        if group_id in self.offsets or self.pending_offsets.partitions(group_id):
            self.groups[group_id] = Group(group_id)

    def resume(self, at_ms: int) -> Outcome:
        """Resume after loading: restart the sessions of all members, and the timers of pending
        syncs.

        A stable group stays stable, unless no join phase has followed its change to the classic
        protocol. A group that awaited its sync continues to await it, and any
        Join aborts that sync.
        """
        context = EventContext(at_ms, self.settings, self._apply)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                consumer_requests.resume(context, group, self.catalogue)
                continue
            assert isinstance(group, Group)
            group.resume()
            for member in group.members.values():
                context.restart_session(member)
            if group.is_sync_resumed:
                context.arm_timer(SyncTimer(group.id), group.rebalance_timeout_ms())
            if group.members and group.record.leader is None:
                reason = "the join phase after the change to the classic protocol"
                rebalance.start_rebalance(context, group, RebalanceCause.DOWNGRADED, reason)
            if len(group.members) > self.settings.members_max:
                reason = "more members than group.max.size"
                rebalance.start_rebalance(context, group, RebalanceCause.GROUP_TOO_LARGE, reason)
        context.arm_timer(ExpiryTimer(), self.settings.offsets_retention_check_interval_ms)
        return context

    # Events.

    def handle(self, event: Event) -> Outcome:
        """Handle an event. See `Outcome` for the duties of the caller."""
        context = EventContext(event.at_ms, self.settings, self._apply)
        _HANDLERS[type(event)](self, context, event)
        return context

    def _join(self, context: EventContext, event: Join) -> None:
        error = validate_request(context, event)
        consumer_group = self.groups.get(event.group_id)
        if not isinstance(consumer_group, ConsumerGroup):
            consumer_group = None
        is_missing = event.group_id not in self.groups or consumer_group is not None
        if error is None and consumer_group is not None and consumer_group.members:
            classic_members.join_group(context, consumer_group, self.catalogue, event)
            return
        if error is None and is_missing and event.member_id:
            error = RESPONSE_ERRORS[RESPONSES[RequestCase.JOIN_UNCHANGED][None]]
        if error is not None:
            context.reply(event.reply_to, JoinReply(error=error, member_id=event.member_id))
            return
        if consumer_group is not None:
            reason, event_type = "replaced by a classic group", GroupEventType.DOWNGRADED
            admin.remove_group(context, consumer_group, reason, event_type=event_type)
        group = self._classic_group(event.group_id)
        join(context, group, event)
        has_content = group.members or group.pending_members or group.id in self.offsets
        if is_missing and not has_content and not self.pending_offsets.partitions(group.id):
            del self.groups[event.group_id]  # created for a request that was rejected

    def classic_groups(self) -> dict[str, Group]:
        """Return the classic groups by id."""
        return {group.id: group for group in self.groups.values() if isinstance(group, Group)}

    def classic_group(self, group_id: str) -> Group | None:
        """Return a classic group, or None."""
        group = self.groups.get(group_id)
        return group if isinstance(group, Group) else None

    def _with_members(self, group_id: str) -> Group | None:
        """Return the classic group if it can have members; the group with the empty id can only
        hold offsets.
        """
        return self.classic_group(group_id) if group_id else None

    def _sync(self, context: EventContext, event: Sync) -> None:
        group = self._with_members(event.group_id)
        consumer_group = self.groups.get(event.group_id)
        if isinstance(consumer_group, ConsumerGroup):
            classic_members.sync_group(context, consumer_group, self.catalogue, event)
        elif group is not None:
            sync(context, group, event)
        else:
            context.reply(
                event.reply_to, SyncReply(error=_missing(event.group_id, RequestCase.SYNC_LEADER))
            )

    def _heartbeat(self, context: EventContext, event: Heartbeat) -> None:
        group = self.groups.get(event.group_id)
        # the group with the empty id can only hold offsets
        if isinstance(group, Group) and event.group_id:
            reply, member = heartbeat(group, event)
            if member is not None:
                context.restart_session(member)
            context.reply(event.reply_to, reply)
        elif isinstance(group, ConsumerGroup):
            classic_members.heartbeat_of_classic_member(context, group, self.catalogue, event)
        else:
            context.reply(
                event.reply_to, heartbeat_error(_missing(event.group_id, RequestCase.HEARTBEAT))
            )

    def _leave(self, context: EventContext, event: Leave) -> None:
        group = self._with_members(event.group_id)
        consumer_group = self.groups.get(event.group_id)
        if isinstance(consumer_group, ConsumerGroup):
            consumer_requests.handle_leave_group(context, consumer_group, self.catalogue, event)
        elif group is not None:
            leave(context, group, event)
        elif event.group_id:
            error = RESPONSE_ERRORS[RESPONSES[RequestCase.LEAVE][None]]
            context.reply(event.reply_to, LeaveReply(errors=(error,) * len(event.members)))
        else:
            context.reply(event.reply_to, LeaveReply(error=ErrorCode.INVALID_GROUP_ID))

    def _commit(self, context: EventContext, event: Commit) -> None:
        group = self.groups.get(event.group_id)
        if group is None or isinstance(group, Group):
            commit(context, group, event)
        else:
            assert isinstance(group, ConsumerGroup)
            fencing = consumer_offsets.commit_errors(group, self.catalogue, event)
            commit_fenced(context, group, event, fencing)

    def _commit_in_transaction(self, context: EventContext, event: TransactionalCommit) -> None:
        group = self.groups.get(event.group_id)
        if group is None or isinstance(group, Group):
            commit_in_transaction(context, group, event)
        else:
            assert isinstance(group, ConsumerGroup)
            fencing = consumer_offsets.commit_errors(group, self.catalogue, event)
            commit_fenced(context, group, event, fencing)

    def _complete_transaction(self, context: EventContext, event: CompleteTransaction) -> None:
        context.write(
            TransactionMarker(
                producer_id=event.producer_id,
                producer_epoch=event.producer_epoch,
                coordinator_epoch=event.coordinator_epoch,
                is_commit=event.is_commit,
            )
        )
        context.reply(event.reply_to, CompleteTransactionReply())

    def _fetch_offsets(self, context: EventContext, event: FetchOffsets) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            error = consumer_offsets.fetch_error(group, event)
            if error:
                context.reply(event.reply_to, FetchOffsetsReply(error=error))
                return
        committed = self.offsets.get(event.group_id, _NO_OFFSETS)
        if event.partitions is None:
            offsets: tuple[OffsetRecord | None, ...] = tuple(committed.values())
        else:
            offsets = tuple(committed.get(partition) for partition in event.partitions)
        unstable: frozenset[TopicPartition] = frozenset()
        if event.requires_stable:
            unstable = self.pending_offsets.partitions(event.group_id)
        context.reply(event.reply_to, FetchOffsetsReply(offsets=offsets, unstable=unstable))

    def offset_partitions(self, group_id: str) -> list[tuple[str, int]]:
        """Return the partitions for which a group has committed or pending offsets."""
        committed = self.offsets.get(group_id, _NO_OFFSETS)
        pending = self.pending_offsets.partitions(group_id)
        return [*committed, *sorted(pending - committed.keys())]

    def _delete_offsets(self, context: EventContext, event: DeleteOffsets) -> None:
        group = self.groups.get(event.group_id)
        in_use = None if group is None else group.topics_in_use(self._subscribed_topics)
        committed = dict.fromkeys(self.offset_partitions(event.group_id))
        delete_offsets(context, group, committed, in_use, event)

    def _describe(self, context: EventContext, event: DescribeGroup) -> None:
        admin.describe_group(context, self.groups.get(event.group_id), event)

    def _list(self, context: EventContext, event: ListGroups) -> None:
        admin.list_groups(context, self.groups.values(), event)

    def _delete(self, context: EventContext, event: DeleteGroup) -> None:
        group = self.groups.get(event.group_id)
        admin.delete_group(context, group, self.offset_partitions(event.group_id), event)

    def _topics_deleted(self, context: EventContext, event: TopicsDeleted) -> None:
        for group_id in dict.fromkeys([*self.offsets, *self.pending_offsets.groups()]):
            for topic, partition in self.offset_partitions(group_id):
                if topic not in event.topics:
                    continue
                context.write(OffsetTombstone(group_id=group_id, topic=topic, partition=partition))

    # Consumer groups.

    def _consumer_heartbeat(self, context: EventContext, event: ConsumerGroupHeartbeat) -> None:
        group = self.groups.get(event.group_id)
        if not (
            isinstance(group, ConsumerGroup)
            and answer_unchanged(context, group, self.catalogue, event)
        ):
            consumer_requests.handle_heartbeat(context, self.catalogue, event)

    def heartbeat_effects(
        self, event: Heartbeat | RepeatedHeartbeat
    ) -> tuple[Reply, SessionTimer | None, int] | None:
        """Return the effects of a heartbeat that stores nothing, without a context.

        Returns:
            The reply, the session timer that the heartbeat restarts, if any, and its time in ms.
            None if `handle` must find the effects.
        """
        group = self.groups.get(event.group_id)
        if type(event) is Heartbeat:
            if type(group) is not Group or not event.group_id:
                return None
            reply, member = heartbeat(group, event)
            if member is None or member.is_parked:
                return reply, None, 0
            return reply, member.session_timer, member.session_timeout_ms
        assert type(event) is RepeatedHeartbeat
        if type(group) is not ConsumerGroup:
            return None
        unchanged = find_unchanged(group, self.catalogue, event.original)
        if unchanged is None:
            return None
        return unchanged.reply, unchanged.session_timer, unchanged.session_timeout_ms

    def _describe_consumer_group(self, context: EventContext, event: DescribeConsumerGroup) -> None:
        group = self.groups.get(event.group_id)
        consumer_requests.handle_describe(context, group, self.catalogue, event)

    def _target_computed(self, context: EventContext, event: TargetComputed) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            on_target_computed(context, group, self.catalogue, event)

    def _regexes_resolved(self, context: EventContext, event: RegexesResolved) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            on_regexes_resolved(context, group, self.catalogue, event)

    def _topics_changed(self, context: EventContext, event: TopicsChanged) -> None:
        self.catalogue.update_topics(event.topics, event.version)

    def _group_configs_changed(self, context: EventContext, event: GroupConfigsChanged) -> None:
        self.catalogue.update_configs(event.configs, event.assignment_interval_ms)

    def _timer_fired(self, context: EventContext, event: TimerFired) -> None:
        match event.key:
            case SessionTimer(group_id=group_id, member_id=member_id):
                timed = self.groups[group_id]
                if isinstance(timed, ConsumerGroup):
                    consumer_requests.on_session_timeout(context, timed, self.catalogue, member_id)
                else:
                    rebalance.on_session_timeout(context, self._classic_group(group_id), member_id)
            case RebalanceTimer(group_id=group_id, member_id=member_id):
                consumer_requests.on_rebalance_timeout(
                    context, self._consumer_group(group_id), self.catalogue, member_id
                )
            case JoinTimer(group_id=group_id):
                rebalance.on_join_timeout(context, self._classic_group(group_id))
            case SyncTimer(group_id=group_id):
                rebalance.on_sync_timeout(context, self._classic_group(group_id))
            case ExpiryTimer():
                for group in list(self.groups.values()):
                    committed = self.offsets.get(group.id, _NO_OFFSETS)
                    pending = self.pending_offsets.partitions(group.id)
                    in_use = group.topics_in_use(self._subscribed_topics) if committed else None
                    admin.expire_offsets(context, group, committed, pending, in_use)
                context.arm_timer(ExpiryTimer(), self.settings.offsets_retention_check_interval_ms)


def _missing(group_id: str, row: RequestCase) -> ErrorCode:
    """Return the error for a group that does not exist, or whose id is empty."""
    return RESPONSE_ERRORS[RESPONSES[row][None]] if group_id else ErrorCode.INVALID_GROUP_ID


_HANDLERS: dict[type[Event], Callable[[Shard, EventContext, Any], None]] = {
    Join: Shard._join,
    Sync: Shard._sync,
    Heartbeat: Shard._heartbeat,
    Leave: Shard._leave,
    Commit: Shard._commit,
    TransactionalCommit: Shard._commit_in_transaction,
    CompleteTransaction: Shard._complete_transaction,
    FetchOffsets: Shard._fetch_offsets,
    DeleteOffsets: Shard._delete_offsets,
    DescribeGroup: Shard._describe,
    ListGroups: Shard._list,
    DeleteGroup: Shard._delete,
    TopicsDeleted: Shard._topics_deleted,
    ConsumerGroupHeartbeat: Shard._consumer_heartbeat,
    DescribeConsumerGroup: Shard._describe_consumer_group,
    TargetComputed: Shard._target_computed,
    RegexesResolved: Shard._regexes_resolved,
    TopicsChanged: Shard._topics_changed,
    GroupConfigsChanged: Shard._group_configs_changed,
    TimerFired: Shard._timer_fired,
}
