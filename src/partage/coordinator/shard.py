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
    commit_in_transaction,
    delete_offsets,
)
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
from partage.coordinator.heartbeat import heartbeat, heartbeat_error
from partage.coordinator.join import join, validate_request
from partage.coordinator.leave import leave
from partage.coordinator.outcome import Outcome, RebalanceCause
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
    SyncReply,
)
from partage.coordinator.response_table import RESPONSE_ERRORS, RESPONSES, RequestCase
from partage.coordinator.states import GroupState
from partage.coordinator.sync import sync
from partage.coordinator.timers import ExpiryTimer, JoinTimer, SessionTimer, SyncTimer
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings

#: Returns the topics that a member's metadata subscribes to, or None if it is no subscription. The
#: coordinator does not parse metadata itself; the owner of the shard provides a function that does.
SubscribedTopics = Callable[[bytes], frozenset[str] | None]

_NO_OFFSETS: GroupOffsets = {}


class Shard:
    """Groups and their committed offsets."""

    def __init__(self, settings: GroupSettings, subscribed_topics: SubscribedTopics) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
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
                self._group(record.group_id).apply(record)
            case OffsetTombstone():
                of_group = self.offsets.get(record.group_id, {})
                of_group.pop((record.topic, record.partition), None)
                if not of_group:
                    self.offsets.pop(record.group_id, None)
                self.pending_offsets.discard(record.group_id, record.topic, record.partition)
            case GroupTombstone():
                self.groups.pop(record.group_id, None)
                self.pending_offsets.discard_group(record.group_id)
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

    def _group(self, group_id: str) -> Group:
        """Return the group, created if needed: a group that only commits offsets has no group
        record.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def resume(self, at_ms: int) -> Outcome:
        """Resume after loading: restart the sessions of all members, and the timers of pending
        syncs.

        A stable group stays stable. A group that awaited its sync continues to await it, and any
        Join aborts that sync.
        """
        context = self._context(at_ms)
        for group in self.groups.values():
            group.resume()
            for member in group.members.values():
                context.restart_session(member)
            if group.is_sync_resumed:
                context.arm_timer(SyncTimer(group.id), group.rebalance_timeout_ms())
            if len(group.members) > self.settings.members_max:
                reason = "more members than group.max.size"
                rebalance.start_rebalance(context, group, RebalanceCause.GROUP_TOO_LARGE, reason)
        context.arm_timer(ExpiryTimer(), self.settings.offsets_retention_check_interval_ms)
        return context

    # Events.

    def handle(self, event: Event) -> Outcome:
        """Handle an event. See `Outcome` for the duties of the caller."""
        context = self._context(event.at_ms)
        _HANDLERS[type(event)](self, context, event)
        return context

    def _context(self, at_ms: int) -> EventContext:
        return EventContext(at_ms, self.settings, self._apply)

    def _join(self, context: EventContext, event: Join) -> None:
        error = validate_request(context, event)
        is_missing = event.group_id not in self.groups
        if error is None and is_missing and event.member_id:
            error = RESPONSE_ERRORS[RESPONSES[RequestCase.JOIN_UNCHANGED][None]]
        if error is not None:
            context.reply(event.reply_to, JoinReply(error=error, member_id=event.member_id))
            return
        group = self._group(event.group_id)
        join(context, group, event)
        if is_missing and not group.members and not group.pending_members:
            del self.groups[event.group_id]  # created for a request that was rejected

    def _with_members(self, group_id: str) -> Group | None:
        """Return the group if it can have members; the group with the empty id can only hold
        offsets.
        """
        return self.groups.get(group_id) if group_id else None

    def _sync(self, context: EventContext, event: Sync) -> None:
        group = self._with_members(event.group_id)
        if group is not None:
            sync(context, group, event)
        else:
            context.reply(
                event.reply_to, SyncReply(error=_missing(event.group_id, RequestCase.SYNC_LEADER))
            )

    def _heartbeat(self, context: EventContext, event: Heartbeat) -> None:
        group = self._with_members(event.group_id)
        if group is not None:
            heartbeat(context, group, event)
        else:
            context.reply(
                event.reply_to, heartbeat_error(_missing(event.group_id, RequestCase.HEARTBEAT))
            )

    def _leave(self, context: EventContext, event: Leave) -> None:
        group = self._with_members(event.group_id)
        if group is not None:
            leave(context, group, event)
        elif event.group_id:
            error = RESPONSE_ERRORS[RESPONSES[RequestCase.LEAVE][None]]
            context.reply(event.reply_to, LeaveReply(errors=(error,) * len(event.members)))
        else:
            context.reply(event.reply_to, LeaveReply(error=ErrorCode.INVALID_GROUP_ID))

    def _commit(self, context: EventContext, event: Commit) -> None:
        commit(context, self.groups.get(event.group_id), event)

    def _commit_in_transaction(self, context: EventContext, event: TransactionalCommit) -> None:
        commit_in_transaction(context, self.groups.get(event.group_id), event)

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
        committed = self.offsets.get(event.group_id, _NO_OFFSETS)
        if event.partitions is None:
            offsets: tuple[OffsetRecord | None, ...] = tuple(committed.values())
        else:
            offsets = tuple(committed.get(partition) for partition in event.partitions)
        unstable: frozenset[tuple[str, int]] = frozenset()
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
        in_use = None if group is None else self.topics_in_use(group)
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

    def _timer_fired(self, context: EventContext, event: TimerFired) -> None:
        match event.key:
            case SessionTimer(group_id=group_id, member_id=member_id):
                rebalance.on_session_timeout(context, self.groups[group_id], member_id)
            case JoinTimer(group_id=group_id):
                rebalance.on_join_timeout(context, self.groups[group_id])
            case SyncTimer(group_id=group_id):
                rebalance.on_sync_timeout(context, self.groups[group_id])
            case ExpiryTimer():
                for group in list(self.groups.values()):
                    committed = self.offsets.get(group.id, _NO_OFFSETS)
                    pending = self.pending_offsets.partitions(group.id)
                    in_use = self.topics_in_use(group) if committed else None
                    admin.expire_offsets(context, group, committed, pending, in_use)
                context.arm_timer(ExpiryTimer(), self.settings.offsets_retention_check_interval_ms)

    def topics_in_use(self, group: Group) -> frozenset[str] | None:
        """Return the topics that the members of a consumer group subscribe to; None if unknown."""
        if group.protocol_type != "consumer" or group.protocol is None:
            return frozenset() if group.state is GroupState.EMPTY else None
        topics: set[str] = set()
        for member in group.members.values():
            subscribed = self._subscribed_topics(member.metadata(group.protocol))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)


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
    TimerFired: Shard._timer_fired,
}
