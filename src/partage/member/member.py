"""The state of a member, and the steps that its handlers share."""

from __future__ import annotations

import msgspec

from partage.member.coordinator_link import CoordinatorLink
from partage.member.events import CommitRejected, CoordinatorResponse, LeaveRequested
from partage.member.handler_context import HandlerContext
from partage.member.outcome import (
    DiscardAssignment,
    LeftGroup,
    PrepareJoin,
    ReportFatalError,
    SendLeave,
)
from partage.member.reactions import NOT_A_MEMBER_ERRORS, CoordinatorRequest, Reaction
from partage.member.settings import MemberSettings
from partage.member.states import (
    ACTIVE_STATES,
    COMMITTING_STATES,
    HEARTBEATING_STATES,
    PARKED_STATES,
    PREDECESSORS,
    MemberState,
)
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

NO_GENERATION = -1


class CommitIdentity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The identity that offset commits use; a coordinator rejects it once it is stale."""

    generation: int
    member_id: str
    instance_id: str | None


class Member:
    """The state of one member of one group."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.link = CoordinatorLink(settings)
        self.state = MemberState.UNSUBSCRIBED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        self.is_leader = False
        self.awaited_serial: int | None = None  # The serial that the current state waits for
        self.is_in_poll = False  # True while the user waits in poll
        self.is_rejoin_pending = False  # Since the metadata was last encoded
        # True between start and leave; after a leave, the member starts again if it is True.
        self.is_membership_wanted = False
        self.join_reason = ""  # Sent in JoinGroup (KIP-800)
        self.pending_topic_changes: list[str] = []  # Topic changes to rejoin for after the delay
        self.leave_request = LeaveRequested(at_ms=0, reason="")
        self.was_request_parked = False  # When the leave began
        # True if the response to the JoinGroup under way is due, as a rejected commit has shown
        self.is_join_response_due = False
        # True if a JoinGroup was given up since the generation began: it may have been answered
        self.has_unanswered_join = False
        self.offered_protocol_names: frozenset[str] = frozenset()

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.settings.instance_id is not None

    @property
    def is_in_generation(self) -> bool:
        """True if the member belongs to a generation, as far as it knows."""
        return self.generation != NO_GENERATION

    @property
    def commit_identity(self) -> CommitIdentity | None:
        """Identity for offset commits; None while the coordinator cannot accept a commit."""
        if not self.is_in_generation or self.state not in COMMITTING_STATES:
            return None
        return CommitIdentity(
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
        )

    def transition_to(self, context: HandlerContext, state: MemberState) -> None:
        """Change the state, and stop the timers that do not belong to the new one.

        The state changes only here.
        """
        before = self.state
        assert before in PREDECESSORS[state], f"{before} -> {state}"
        self.state = state
        self.awaited_serial = None
        self.is_join_response_due = False
        if before is MemberState.JOINING and state is MemberState.UNJOINED:
            self.has_unanswered_join = True
        if before in PARKED_STATES or before is MemberState.LEAVING:
            context.cancel_timer(MemberTimer.REQUEST)
        if before in ACTIVE_STATES and state not in ACTIVE_STATES:
            context.cancel_timer(MemberTimer.POLL)
            self.link.stop_backoff(context)
            self.clear_topic_changes(context)
            self.is_rejoin_pending = False
        self._update_session_timers(context)

    def _update_session_timers(self, context: HandlerContext) -> None:
        link = self.link
        is_timed = self.is_in_generation and self.state in HEARTBEATING_STATES
        if is_timed and link.session_deadline_ms is None:
            link.start_session(context)
        elif not is_timed and link.session_deadline_ms is not None:
            link.stop_session(context)

    def next_awaited_serial(self) -> int:
        """Draw the serial that the current state waits for from now on."""
        self.awaited_serial = self.link.next_serial()
        return self.awaited_serial

    def advance(self, context: HandlerContext) -> None:
        """Start the next step if nothing blocks it."""
        link = self.link
        if self.state not in ACTIVE_STATES or link.is_backing_off:
            return
        if link.coordinator_serial is None:
            if link.lookup_serial is None:
                link.start_lookup(context)
        elif self.state is MemberState.UNJOINED:
            self.transition_to(context, MemberState.PREPARING)
            self.is_rejoin_pending = False
            self.clear_topic_changes(context)  # The next leader reads the current topics
            context.add_action(
                PrepareJoin(serial=self.next_awaited_serial(), generation=self.generation)
            )

    def clear_topic_changes(self, context: HandlerContext) -> None:
        """Drop the collected topic changes: the member joins anyway."""
        if self.pending_topic_changes:
            self.pending_topic_changes.clear()
            context.cancel_timer(MemberTimer.METADATA)

    def request_rejoin(self, context: HandlerContext, reason: str) -> None:
        """Rejoin now, or after the current rebalance."""
        if not self.is_rejoin_pending:
            self.join_reason = reason
        self.is_rejoin_pending = True
        if self.state is MemberState.STABLE:
            self.transition_to(context, MemberState.UNJOINED)

    def start(self, context: HandlerContext) -> None:
        """Start, or start again after a leave or a fatal error."""
        self.is_membership_wanted = True
        if self.state in (MemberState.UNSUBSCRIBED, MemberState.FATAL):
            self.join_reason = ""
            must_be_polled = self.settings.max_poll_interval_ms is not None and not self.is_in_poll
            self.transition_to(
                context, MemberState.STALE if must_be_polled else MemberState.UNJOINED
            )

    def finish_leaving(self, context: HandlerContext) -> None:
        """Finish leaving; start again if that was requested meanwhile."""
        self.transition_to(context, MemberState.UNSUBSCRIBED)
        context.add_action(LeftGroup())
        if self.is_membership_wanted:
            self.start(context)

    def send_leave_group(self, context: HandlerContext, reason: str, is_parked: bool) -> int | None:
        """Send LeaveGroup without waiting for the response.

        Returns:
            The serial of the request; None if there is no member id or no coordinator.
        """
        if not self.member_id or self.link.coordinator_serial is None:
            return None
        leave = SendLeave(
            serial=self.link.next_serial(),
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            reason=reason,
            is_parked=is_parked,
        )
        context.add_action(leave)
        if is_parked:
            self.link.clear_coordinator()  # The shell closes that connection
        return leave.serial

    def drop_coordinator(self, context: HandlerContext) -> None:
        """Disconnect, and look up the coordinator again after a back-off."""
        self.link.disconnect(context)
        self.continue_without_coordinator(context)

    def continue_without_coordinator(self, context: HandlerContext) -> None:
        """Keep the partitions and local steps, but drop the requests in flight."""
        if self.state is MemberState.LEAVING:
            self.finish_leaving(context)
        elif self.state in ACTIVE_STATES:
            self.link.start_backoff(context)
            if self.state in PARKED_STATES:
                self.transition_to(context, MemberState.UNJOINED)

    def apply_reaction(
        self,
        context: HandlerContext,
        answer: Reaction,
        event: CoordinatorResponse | CommitRejected,
        request: CoordinatorRequest,
    ) -> None:
        """Apply the reaction to an error response."""
        why = f"{request} failed with {event.error.name}"
        match answer:
            case Reaction.REJOIN | Reaction.REJOIN_AFTER_BACKOFF:
                self.join_reason = why
                if answer is Reaction.REJOIN_AFTER_BACKOFF:
                    self.link.start_backoff(context)
                self.transition_to(context, MemberState.UNJOINED)
            case Reaction.FIND_COORDINATOR:
                self.drop_coordinator(context)
            case Reaction.LOSE_GENERATION | Reaction.LOSE_MEMBERSHIP:
                self.lose_generation(context, why, forgets_id=answer is Reaction.LOSE_MEMBERSHIP)
            case Reaction.REBALANCE:
                if self.state in (MemberState.STABLE, MemberState.RECONCILING):
                    self.request_rejoin(context, "the group rebalances")
            case Reaction.RETRY_AFTER_BACKOFF:
                context.arm_timer(MemberTimer.HEARTBEAT, self.link.next_backoff_ms())
            case Reaction.FAIL:
                self.fail_fatally(context, event.error, why)

    def lose_generation(self, context: HandlerContext, reason: str, *, forgets_id: bool) -> None:
        """Rejoin after the group continued without this member: its partitions are lost."""
        self.discard_assignment(context, reason, forgets_id=forgets_id)
        self.join_reason = reason
        if self.state in ACTIVE_STATES and self.state is not MemberState.UNJOINED:
            self.transition_to(context, MemberState.UNJOINED)

    def discard_assignment(self, context: HandlerContext, reason: str, *, forgets_id: bool) -> None:
        """Discard the assignment of the embedded protocol, and leave the generation."""
        has_more = self.is_in_generation or self.state is MemberState.PREPARING
        if has_more and self.state is not MemberState.PREPARE_LEAVING:
            context.add_action(DiscardAssignment(reason=reason))
        self.reset_generation(context, forgets_id=forgets_id)

    def reset_generation(self, context: HandlerContext, *, forgets_id: bool) -> None:
        """Leave the generation."""
        self.generation = NO_GENERATION
        self.has_unanswered_join = False
        self.protocol = None
        self.is_leader = False
        if forgets_id:
            self.member_id = ""
        self._update_session_timers(context)

    def fail_fatally(self, context: HandlerContext, error: ErrorCode, reason: str) -> None:
        """Enter the fatal state, and send LeaveGroup if the coordinator still has this member."""
        if not self.is_static and error not in NOT_A_MEMBER_ERRORS:
            self.send_leave_group(context, reason, is_parked=False)
        self.discard_assignment(context, reason, forgets_id=True)
        if self.state in ACTIVE_STATES:
            self.transition_to(context, MemberState.FATAL)
            self.is_membership_wanted = False
            context.add_action(ReportFatalError(error=error, reason=reason))
