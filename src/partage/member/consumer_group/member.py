"""A member with the consumer group protocol.

`ConsumerGroupMember.handle` takes one event and returns its `Outcome`. The member keeps two sets:
the assignment that the coordinator sent last, and the partitions that it owns. While they differ it
revokes partitions, then adds others, each with a callback of the listener. It then confirms the
result by a heartbeat. Only this heartbeat frees the revoked partitions for other members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partage.member.consumer_group.events import ConsumerHeartbeatResponseReceived
from partage.member.consumer_group.membership import ConsumerMembership, SentHeartbeat
from partage.member.consumer_group.outcome import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ResolveTopicIds,
    SendConsumerHeartbeat,
)
from partage.member.consumer_group.reactions import (
    NOT_IN_GROUP_ERRORS,
    HeartbeatReaction,
)
from partage.member.consumer_group.states import (
    CONSUMER_STATE_PREDECESSORS,
    ConsumerMemberState,
)
from partage.member.handler_context import HandlerContext
from partage.member.outcome import (
    CallListener,
    LeftGroup,
    ListenerCallback,
    Problem,
    ReportFatalError,
    ReportProblem,
)
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition

_S = ConsumerMemberState


class ConsumerMemberBase(ConsumerMembership):
    """The steps that the handlers of a member share."""

    # Transitions

    def transition_to(self, context: HandlerContext, state: ConsumerMemberState) -> None:
        """Change the state, and stop the timers that do not belong to the new one.

        The state changes only here.
        """
        before = self.state
        assert before in CONSUMER_STATE_PREDECESSORS[state], f"{before} -> {state}"
        self.state = state
        if before is _S.LEAVING:
            context.cancel_timer(MemberTimer.REQUEST)
        if not self.must_be_polled:
            context.cancel_timer(MemberTimer.POLL)
        if state is _S.PREPARE_LEAVING or not self.needs_coordinator:
            self.link.stop_backoff(context)

    def start(self, context: HandlerContext) -> None:
        """Start, or start again after a leave or a fatal error."""
        self.is_membership_wanted = True
        if self.state not in (_S.UNSUBSCRIBED, _S.FATAL):
            return
        if self.settings.max_poll_interval_ms is not None and not self.is_in_poll:
            self.transition_to(context, _S.STALE)
        elif self.state is _S.FATAL:
            self.transition_to(context, _S.FENCED)
        else:
            self._start_joining(context)

    def _start_joining(self, context: HandlerContext) -> None:
        assert not self.owned_ids, "joins with partitions"
        if self._needs_member_id and not self.is_static:
            self.member_id = self._make_member_id()
        self._needs_member_id = False
        self.transition_to(context, _S.JOINING)
        self.is_heartbeat_due = self.is_full_heartbeat_needed = True

    def leave_epoch(self, context: HandlerContext) -> None:
        """Leave the group locally: forget the epoch, the assignment and the session."""
        self.epoch = JOIN_EPOCH
        self.assignment = self.in_flight = self.resolving_serial = self._clean_ms = None
        self.accepted_subscription = None
        self.needs_acknowledgement = self.is_assigned_call_due = self.is_heartbeat_due = False
        self.is_subscription_refused = False
        self.topic_names.clear()
        self.link.stop_session(context)
        self.link.is_session_expired = False
        context.cancel_timer(MemberTimer.METADATA)

    def lose_membership(self, context: HandlerContext) -> None:
        """Lose the partitions, and join again, unless the member leaves."""
        if self.state is _S.PREPARE_LEAVING:
            self.may_be_member = False
            self.lose_release(context)
            return
        self.leave_epoch(context)
        self.has_lost_partitions = bool(self.owned_ids)
        self.transition_to(context, _S.FENCED)

    def lose_release(self, context: HandlerContext) -> None:
        """Leave the group locally while the partitions of the leave are not given up yet."""
        self.leave_epoch(context)
        self.is_release_lost = True
        context.cancel_timer(MemberTimer.POLL)
        if not self.needs_coordinator:
            self.link.stop_backoff(context)

    def fail_fatally(self, context: HandlerContext, error: ErrorCode, reason: str) -> None:
        """Enter the fatal state, and leave if the coordinator still has this member."""
        if not self.is_static and error not in NOT_IN_GROUP_ERRORS:
            self.send_leave(context, LEAVE_EPOCH)
        if self.state is _S.PREPARE_LEAVING:
            self.may_be_member = False
            self.lose_release(context)
            return
        self.leave_epoch(context)
        self.has_lost_partitions = bool(self.owned_ids)
        self.transition_to(context, _S.FATAL)
        self._needs_member_id = True
        self.is_membership_wanted = self.may_be_member = False
        context.add_action(ReportFatalError(error=error, reason=reason))

    def finish_leaving(self, context: HandlerContext) -> None:
        """Finish leaving; start again if that was requested meanwhile."""
        self.may_be_member = self.is_release_lost = False
        self.awaited_serial = None
        self.transition_to(context, _S.UNSUBSCRIBED)
        context.add_action(LeftGroup())
        if self.is_membership_wanted:
            self.start(context)

    # Coordinator

    def drop_coordinator(self, context: HandlerContext) -> None:
        """Disconnect, and look up the coordinator again after a back-off."""
        self.link.disconnect(context)
        self.continue_without_coordinator(context)

    def continue_without_coordinator(self, context: HandlerContext) -> None:
        """Keep the partitions; the next heartbeat repeats all fields."""
        if self.state is _S.LEAVING:
            self.repeat_leave(context)
            return
        self.repeat_heartbeat(context)
        if self.needs_coordinator:
            self.link.start_backoff(context)

    def repeat_leave(self, context: HandlerContext) -> None:
        """Leave again after a back-off; the request timer limits all attempts."""
        self.may_be_member, self.awaited_serial = True, None
        self.link.start_backoff(context)

    def repeat_heartbeat(self, context: HandlerContext) -> None:
        """Send all fields with the next heartbeat, which is due."""
        self.in_flight = None
        self.is_full_heartbeat_needed = True
        self.request_heartbeat(context)

    def request_heartbeat(self, context: HandlerContext) -> None:
        """Send a heartbeat as soon as no other one is in flight and no back-off runs."""
        if self.is_reporting and not self.is_heartbeat_due:
            self.is_heartbeat_due = True
            context.cancel_timer(MemberTimer.HEARTBEAT)

    def send_heartbeat(self, context: HandlerContext) -> None:
        """Send a heartbeat with the changed fields, or with all."""
        self.is_heartbeat_due = False
        is_full = self.is_full_heartbeat_needed or self.epoch == JOIN_EPOCH
        is_acknowledgement = self.state is _S.ACKNOWLEDGING
        topics, regex = subscription = self.topics, self.regex
        known_topics, known_regex = self.accepted_subscription or (None, None)
        settings = self.settings
        sent_regex = regex if is_full or regex != known_regex else None
        # The coordinator keeps the subscription of a static member that left for a while
        may_have_regex = self.may_have_regex or (self.is_static and self.epoch == JOIN_EPOCH)
        if regex is None and may_have_regex:
            sent_regex = ""
        self.may_have_regex = may_have_regex or regex is not None
        self.in_flight = SentHeartbeat(
            serial=self.link.next_serial(),
            sent_ms=context.at_ms,
            is_acknowledgement=is_acknowledgement,
            subscription=subscription,
            has_nothing_to_revoke=not self.partitions_to_revoke(),
        )
        self.may_be_member = True
        context.add_action(
            SendConsumerHeartbeat(
                serial=self.in_flight.serial,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=settings.instance_id,
                rack_id=settings.rack_id if is_full else None,
                rebalance_timeout_ms=settings.rebalance_timeout_ms if is_full else -1,
                subscribed_topics=(
                    tuple(sorted(topics)) if is_full or topics != known_topics else None
                ),
                subscribed_regex=sent_regex,
                server_assignor=settings.server_assignor if is_full else None,
                owned=self._reported_by_id() if is_full or is_acknowledgement else None,
            )
        )

    def _reported_by_id(self) -> dict[bytes, tuple[int, ...]]:
        """Return the partitions to report as owned.

        A reconciling member may add assigned partitions before the response arrives. The
        coordinator would give a partition that is not reported to another member.
        """
        reported = {(topic_id, number) for (_, number), topic_id in self.owned_ids.items()}
        if self.state is _S.RECONCILING:
            reported |= self.assignment or frozenset()
        numbers: dict[bytes, list[int]] = {}
        for topic_id, number in reported:
            numbers.setdefault(topic_id, []).append(number)
        return {topic_id: tuple(sorted(each)) for topic_id, each in sorted(numbers.items())}

    def send_leave(self, context: HandlerContext, epoch: int) -> int | None:
        """Send the heartbeat that leaves, without waiting for the response.

        Returns:
            The serial of the request; None if there is no coordinator or no membership.
        """
        self._needs_member_id = True
        if not self.may_be_member or self.link.coordinator_serial is None:
            return None
        self.may_be_member = False
        serial = self.link.next_serial()
        context.add_action(
            SendConsumerHeartbeat(
                serial=serial,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.settings.instance_id,
            )
        )
        return serial

    # Heartbeat responses

    def accept_heartbeat(
        self,
        context: HandlerContext,
        sent: SentHeartbeat,
        event: ConsumerHeartbeatResponseReceived,
    ) -> None:
        """Take the epoch, the assignment and the interval of an accepted heartbeat."""
        self.link.reset_backoff()
        if self.state is _S.JOINING and event.member_id:
            self.member_id = event.member_id  # v0: the coordinator makes it
        self.epoch = event.member_epoch
        self.accepted_subscription = sent.subscription
        self.may_have_regex = sent.subscription[1] is not None
        self.is_full_heartbeat_needed = self.is_subscription_refused = False
        if event.heartbeat_interval_ms > 0:
            self._interval_ms = event.heartbeat_interval_ms
        if self.is_in_group:
            is_new = self._receive_assignment(context, event.assignment)
            if sent.is_acknowledgement and not is_new:
                self.needs_acknowledgement = False
            self._continue_reconciliation(context)
            self._extend_session(context, sent)
        if sent.subscription != (self.topics, self.regex):
            self.request_heartbeat(context)
        if not self.is_heartbeat_due:
            self._schedule_heartbeat(context, sent)

    def _continue_reconciliation(self, context: HandlerContext) -> None:
        match self.state:
            case _S.JOINING:
                self.transition_to(context, _S.RECONCILING)
            case _S.STABLE if self.needs_acknowledgement:
                self.transition_to(context, _S.RECONCILING)
            case _S.ACKNOWLEDGING if (
                self.needs_acknowledgement or self.unknown_topic_ids() or self.partitions_to_add()
            ):
                self.is_heartbeat_due = False  # the acknowledgement: it comes after this assignment
                self.transition_to(context, _S.RECONCILING)
            case _S.ACKNOWLEDGING:
                self.transition_to(context, _S.STABLE)

    def _receive_assignment(
        self, context: HandlerContext, assigned: Mapping[bytes, tuple[int, ...]] | None
    ) -> bool:
        """Take the assignment of a response; return True if it is another one."""
        is_first = self.assignment is None
        if assigned is None and not is_first:
            return False
        received = frozenset(
            (topic_id, number) for topic_id, each in (assigned or {}).items() for number in each
        )
        if received == self.assignment:
            return False
        self.assignment = received
        self.needs_acknowledgement = True
        self.is_assigned_call_due |= is_first
        used = {topic_id for topic_id, _ in received} | set(self.owned_ids.values())
        self.topic_names = {each: name for each, name in self.topic_names.items() if each in used}
        self.resolve_topic_ids(context)
        return True

    def resolve_topic_ids(self, context: HandlerContext) -> None:
        """Ask for the names of assigned topics that are not known."""
        context.cancel_timer(MemberTimer.METADATA)
        self.resolving_serial = None
        unknown = self.unknown_topic_ids()
        if unknown:
            self.resolving_serial = self.link.next_serial()
            context.add_action(
                ResolveTopicIds(serial=self.resolving_serial, topic_ids=tuple(sorted(unknown)))
            )

    def _extend_session(self, context: HandlerContext, sent: SentHeartbeat) -> None:
        """Extend the time for which the coordinator certainly keeps this member.

        It cannot have started a session or a rebalance timeout before the heartbeat was sent. A
        rebalance timeout under way began after the last accepted heartbeat without one.
        """
        settings = self.settings
        if self._clean_ms is None or (
            sent.has_nothing_to_revoke and not self.partitions_to_revoke()
        ):
            self._clean_ms = sent.sent_ms
        deadline_ms = min(
            sent.sent_ms + settings.session_timeout_ms,
            self._clean_ms + settings.rebalance_timeout_ms,
        )
        if deadline_ms > context.at_ms:
            self.link.is_session_expired = False
            self.link.set_session_deadline(context, deadline_ms)
        elif self.link.session_deadline_ms is None:
            self.link.session_deadline_ms = deadline_ms
            self.link.expire_session(context)

    def _schedule_heartbeat(self, context: HandlerContext, sent: SentHeartbeat) -> None:
        settings = self.settings
        trusted_ms = min(settings.session_timeout_ms, settings.rebalance_timeout_ms)
        interval_ms = max(1, min(self._interval_ms, trusted_ms // 3))
        deadline_ms = max(context.at_ms, sent.sent_ms + interval_ms)
        context.arm_timer(MemberTimer.HEARTBEAT, deadline_ms - context.at_ms)

    def apply_heartbeat_error(
        self,
        context: HandlerContext,
        reaction: HeartbeatReaction,
        error: ErrorCode,
        reason: str,
    ) -> None:
        """Apply the reaction to an error response."""
        match reaction:
            case HeartbeatReaction.RETRY | HeartbeatReaction.REPORT:
                self.repeat_heartbeat(context)
                self.link.start_backoff(context)
                if reaction is HeartbeatReaction.REPORT and self.state is not _S.PREPARE_LEAVING:
                    self.is_subscription_refused = True
                    context.add_action(
                        ReportProblem(problem=Problem.SUBSCRIPTION_REFUSED, reason=reason)
                    )
            case HeartbeatReaction.FIND_COORDINATOR:
                self.drop_coordinator(context)
            case HeartbeatReaction.LOSE_MEMBERSHIP:
                self.lose_membership(context)
            case HeartbeatReaction.CHECK:
                self.request_heartbeat(context)
            case HeartbeatReaction.FAIL:
                self.fail_fatally(context, error, reason)

    # Steps

    def advance(self, context: HandlerContext) -> None:
        """Start the next steps that nothing blocks."""
        self._advance_partitions(context)
        link = self.link
        if not self.needs_coordinator or link.is_backing_off:
            return
        if link.coordinator_serial is None:
            if link.lookup_serial is None:
                link.start_lookup(context)
        elif self.is_leave_due and self.requested_leave_epoch is not None:
            serial = self.send_leave(context, self.requested_leave_epoch)
            self.awaited_serial = serial if self.state is _S.LEAVING else None
        elif self.is_heartbeat_due and self.in_flight is None:
            self.send_heartbeat(context)

    def _advance_partitions(self, context: HandlerContext) -> None:
        """Call the listener, or change the state after its last call."""
        if self.open_callback is not None and self.open_callback.partitions:
            return
        if self.has_lost_partitions:
            self.has_lost_partitions = False
            if self.owned_ids:  # The callback that just ended may have been about all of them
                self._call_listener(context, ListenerCallback.LOST, self.owned_ids)
                return
        match self.state:
            case _S.PREPARE_LEAVING:
                self._release(context)
            case _S.FENCED:
                self._start_joining(context)
            case _S.STALE if self.is_in_poll or self.settings.max_poll_interval_ms is None:
                self._start_joining(context)
            case _S.RECONCILING:
                self._reconcile(context)

    def _reconcile(self, context: HandlerContext) -> None:
        """Revoke first, then add; acknowledge when the partitions are those of the assignment."""
        if to_revoke := self.partitions_to_revoke():
            self.is_assigned_call_due = True
            self._call_listener(context, ListenerCallback.REVOKED, to_revoke)
            return
        to_add = self.partitions_to_add()
        is_empty_call_due = self.is_assigned_call_due and not self.unknown_topic_ids()
        if to_add or is_empty_call_due:
            self.is_assigned_call_due = False
            self.needs_acknowledgement = True
            self.owned_ids |= to_add
            self._call_listener(context, ListenerCallback.ASSIGNED, to_add)
            if to_add:
                return
        if self.needs_acknowledgement:
            self.transition_to(context, _S.ACKNOWLEDGING)
            self.request_heartbeat(context)

    def _release(self, context: HandlerContext) -> None:
        """Give up all partitions, then leave."""
        if self.owned_ids:
            callback = ListenerCallback.LOST if self.is_release_lost else ListenerCallback.REVOKED
            self._call_listener(context, callback, self.owned_ids)
            return
        self.leave_epoch(context)
        self._needs_member_id = True
        if self.is_leave_due:
            self.transition_to(context, _S.LEAVING)
            context.arm_timer(MemberTimer.REQUEST, self.settings.request_timeout_ms)
        else:
            self.finish_leaving(context)

    def _call_listener(
        self,
        context: HandlerContext,
        callback: ListenerCallback,
        partitions: Iterable[TopicPartition],
    ) -> None:
        self.open_callback = CallListener(
            serial=self.link.next_serial(),
            callback=callback,
            partitions=tuple(sorted(partitions)),
        )
        context.add_action(self.open_callback)
