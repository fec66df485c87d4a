"""A member that owns partitions, such as a consumer.

`Ownership` is the protocol that is embedded in a `MembershipStateMachine`. It decides when
partitions are given up and which callback of the listener is due (KIP-429):

- Under the eager protocol all partitions are revoked before joining. Under the cooperative protocol
  the member keeps working on its partitions. It revokes those that the new assignment lacks, and
  then rejoins, so that no other member gets a partition before it is revoked.
- ``revoked`` is called before ``assigned``. ``lost`` is called when the group no longer waits for
  this member, so that other members may own the partitions already.
- ``revoked`` and ``lost`` are not called for an empty set. ``assigned`` is called at the end of
  every
  rebalance.
- No step waits for a callback without partitions. If the next callback is due before that one was
  called, it is replaced: the listener sees the two rebalances as one.

`Ownership.deliverable` holds the partitions that may be delivered.
"""

from __future__ import annotations

import msgspec

from partage.member.coordinator_link import CoordinatorLink
from partage.member.events import (
    AssignmentApplied,
    AssignmentDecoded,
    AssignmentDecodeFailed,
    AssignmentReleased,
    CallbackCompleted,
    DrainRequested,
    Event,
    JoinPrepared,
    JoinPrepareFailed,
    LeaveRequested,
    MetadataChanged,
    RejoinRequested,
    StartRequested,
    SubscriptionChanged,
)
from partage.member.member import CommitIdentity
from partage.member.outcome import (
    Action,
    ApplyAssignment,
    CallListener,
    DecodeAssignment,
    DiscardAssignment,
    EncodeSubscription,
    ListenerCallback,
    Outcome,
    PrepareJoin,
    Problem,
    ReleaseAssignment,
    ReportProblem,
)
from partage.member.settings import MemberSettings
from partage.member.state_machine import MembershipStateMachine
from partage.member.states import ACTIVE_STATES, MemberState
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition

Partitions = frozenset[TopicPartition]
_NOTHING: Partitions = frozenset()


#: The states in which a subscription starts the member again.
_RESTARTING_STATES = frozenset(
    {MemberState.UNSUBSCRIBED, MemberState.FATAL, MemberState.PREPARE_LEAVING, MemberState.LEAVING}
)


class PreparingJoin(msgspec.Struct):
    """Preparing to join; ``has_subscription`` once `EncodeSubscription` was requested."""

    serial: int
    generation: int
    has_subscription: bool = False


class ApplyingAssignment(msgspec.Struct):
    """Applying an assignment; ``target`` is its partitions, None until it is decoded."""

    serial: int
    target: Partitions | None = None
    is_callback_sent: bool = False


class ReleasingAssignment(msgspec.Struct):
    """Giving up all partitions before leaving."""

    serial: int
    is_lost: bool


OwnershipStep = PreparingJoin | ApplyingAssignment | ReleasingAssignment


class Ownership:
    """A member and the partitions it owns; the state is that after the last event."""

    def __init__(self, settings: MemberSettings, rebalance_protocol: RebalanceProtocol) -> None:
        self.membership = MembershipStateMachine(settings)
        self.rebalance_protocol = rebalance_protocol
        self.topics: frozenset[str] = frozenset()
        self.owned: Partitions = _NOTHING
        self.open_callback: CallListener | None = None  # The listener call in progress
        # True if the owned partitions are lost and the listener is still to be called
        self.has_lost_partitions = False
        self.step: OwnershipStep | None = None
        # Leave once other members can take the partitions.
        self.drain_request: DrainRequested | None = None
        # True if the current rebalance is the one that the drain started.
        self._is_drain_rebalance = False

    # Queries of the shell

    @property
    def deliverable(self) -> Partitions:
        """Partitions whose records may be delivered to the user now.

        It is empty for a member that is in no generation or whose session expired. It excludes
        partitions that are about to be given up or that an open callback is about. The shell sends
        `Polled` first, so that a stalled process does not rely on outdated state.
        """
        membership = self.membership
        if (
            not membership.is_in_generation
            or membership.link.is_session_expired
            or self.has_lost_partitions
        ):
            return _NOTHING
        told = (
            frozenset(self.open_callback.partitions) if self.open_callback is not None else _NOTHING
        )
        return self.owned - self._partitions_to_give_up() - told

    @property
    def commit_identity(self) -> CommitIdentity | None:
        """Identity for offset commits; None while the coordinator cannot accept a commit."""
        return self.membership.commit_identity

    @property
    def has_coordinator(self) -> bool:
        """True if the coordinator is connected, and the session has not expired."""
        link = self.membership.link
        return link.coordinator_serial is not None and not link.is_session_expired

    @property
    def session_deadline_ms(self) -> int | None:
        """The time at which the session may end; None while it is not timed."""
        return self.membership.link.session_deadline_ms

    @property
    def link(self) -> CoordinatorLink:
        """The link between the member and its coordinator."""
        return self.membership.link

    @property
    def is_in_group(self) -> bool:
        """True if the member belongs to a generation, as far as it knows."""
        return self.membership.is_in_generation

    @property
    def is_membership_wanted(self) -> bool:
        """True between start and leave."""
        return self.membership.is_membership_wanted

    def _partitions_to_give_up(self) -> Partitions:
        """Owned partitions that the current step takes away."""
        match self.step:
            case PreparingJoin() if self.rebalance_protocol is RebalanceProtocol.EAGER:
                return self.owned
            case PreparingJoin():
                return frozenset(p for p in self.owned if p[0] not in self.topics)
            case ApplyingAssignment(target=target) if target is not None:
                return self.owned - target
            case ReleasingAssignment():
                return self.owned
        return _NOTHING

    # Events

    def handle(self, event: Event) -> Outcome:
        """Handle ``event`` and return its outcome.

        See `Outcome` for the duties of the caller.
        """
        outcome = Outcome()
        match event:
            case SubscriptionChanged():
                self._on_subscription_changed(outcome, event)
            case DrainRequested():
                self._on_drain_requested(outcome, event)
            case AssignmentDecoded():
                self._on_assignment_decoded(outcome, event)
            case AssignmentDecodeFailed():
                self._on_assignment_decode_failed(outcome, event)
            case CallbackCompleted():
                self._on_callback_completed(event)
            case _:
                self._forward(outcome, event)
        self._advance(outcome, event.at_ms)
        return outcome

    def _forward(self, outcome: Outcome, event: Event) -> None:
        """Forward an event to the membership, and start the steps that it requests."""
        if isinstance(event, JoinPrepared | JoinPrepareFailed) and self._is_preparing(event.serial):
            self.step = None
        below = self.membership.handle(event)
        if isinstance(event, LeaveRequested) or self.membership.state is MemberState.UNSUBSCRIBED:
            self.drain_request = None
        outcome.timers += below.timers
        for action in below.actions:
            if not self._accept_action(action):
                outcome.actions.append(action)
            elif isinstance(action, ApplyAssignment):
                outcome.actions.append(_decode_action(action))

    def _is_preparing(self, serial: int) -> bool:
        return isinstance(self.step, PreparingJoin) and self.step.serial == serial

    def _accept_action(self, action: Action) -> bool:
        """Start the step that ``action`` requests; return False if the shell must perform the
        action.
        """
        match action:
            case PrepareJoin(serial=serial, generation=generation):
                self.step = PreparingJoin(serial, generation)
            case ApplyAssignment(serial=serial):
                self.step = ApplyingAssignment(serial)
            case ReleaseAssignment(serial=serial, is_lost=as_lost):
                self.step = ReleasingAssignment(serial, as_lost)
            case DiscardAssignment():
                self.step = None
                self.has_lost_partitions = bool(self.owned)
            case _:
                return False
        return True

    def _on_subscription_changed(self, outcome: Outcome, event: SubscriptionChanged) -> None:
        is_out = self.membership.state in _RESTARTING_STATES
        if event.is_by_pattern:
            if is_out:
                return  # The user has not restarted the member
        else:
            self.drain_request = None
        changed = event.topics != self.topics
        self.topics = event.topics
        if is_out:
            self._forward(outcome, StartRequested(at_ms=event.at_ms))
        elif changed and not self._is_subscription_pending:
            again: Event
            if event.is_by_pattern:
                reason = "other topics match the pattern"
                again = MetadataChanged(at_ms=event.at_ms, reason=reason, is_own_subscription=True)
            else:
                again = RejoinRequested(at_ms=event.at_ms, reason="the subscription has changed")
            self._forward(outcome, again)

    def _on_drain_requested(self, outcome: Outcome, event: DrainRequested) -> None:
        """Start one more rebalance as a member, and leave the group after it.

        An empty subscription in that rebalance would look simpler. But not every leader holds back
        owned partitions of topics that their owner is not subscribed to: librdkafka's leader does
        not.
        """
        if self.drain_request is not None:
            return
        self.drain_request = event
        if self.rebalance_protocol is RebalanceProtocol.EAGER or not self.owned:
            self._leave(outcome, event, event.at_ms)
        elif not self._is_subscription_pending:
            self._forward(outcome, RejoinRequested(at_ms=event.at_ms, reason=event.reason))

    def _leave(self, outcome: Outcome, drain: DrainRequested, at_ms: int) -> None:
        self._forward(
            outcome, LeaveRequested(at_ms=at_ms, reason=drain.reason, sends_leave_group=True)
        )

    @property
    def _is_handing_over(self) -> bool:
        """True if the rebalance of the drain is over, so that other members can take the
        partitions.
        """
        return self.drain_request is not None and self._is_drain_rebalance

    @property
    def _is_subscription_pending(self) -> bool:
        """True if the next join encodes the current subscription anyway."""
        return isinstance(self.step, PreparingJoin) and not self.step.has_subscription

    def _on_assignment_decoded(self, outcome: Outcome, event: AssignmentDecoded) -> None:
        task = self.step
        if not isinstance(task, ApplyingAssignment) or task.serial != event.serial:
            return
        if self._is_handing_over:
            task.target = _NOTHING
            return
        if event.is_subscribed:
            task.target = frozenset(event.partitions)
            # The leader may know topics that match the pattern before this member does.
            self.topics |= {topic for topic, _ in event.partitions}
            if event.rejoin_reason is not None:
                self._forward(
                    outcome, RejoinRequested(at_ms=event.at_ms, reason=event.rejoin_reason)
                )
            return
        reason = "the assignment does not match the subscription, which has changed"
        self._forward(outcome, RejoinRequested(at_ms=event.at_ms, reason=reason))
        self.step = None
        self._forward(outcome, AssignmentApplied(at_ms=event.at_ms, serial=event.serial))

    def _on_assignment_decode_failed(self, outcome: Outcome, event: AssignmentDecodeFailed) -> None:
        """Own nothing until the leader can assign again."""
        task = self.step
        if not isinstance(task, ApplyingAssignment) or task.serial != event.serial:
            return
        task.target = _NOTHING
        outcome.actions.append(
            ReportProblem(problem=Problem.ASSIGNMENT_FAILED, reason=event.reason)
        )
        again = RejoinRequested(at_ms=event.at_ms, reason="the assignment failed", has_backoff=True)
        self._forward(outcome, again)

    # Steps of a rebalance

    def _advance(self, outcome: Outcome, at_ms: int) -> None:
        """Start the next step after the listener finished the last one."""
        if self.open_callback is not None and self.open_callback.partitions:
            return
        if self.has_lost_partitions:
            self.has_lost_partitions = False
            if self.owned:  # The callback that just ended may have been about all of them
                self._call_listener(outcome, ListenerCallback.LOST, self.owned)
                return
        if (
            self.drain_request is not None
            and not self.owned
            and self.membership.state in ACTIVE_STATES
        ):
            # All partitions are given up or lost: do not wait for the coordinator
            self._leave_drained(outcome, at_ms)
            return
        to_give_up = self._partitions_to_give_up()
        match self.step:
            case ReleasingAssignment(is_lost=as_lost) if to_give_up:
                self._call_listener(
                    outcome,
                    ListenerCallback.LOST if as_lost else ListenerCallback.REVOKED,
                    to_give_up,
                )
            case PreparingJoin() | ApplyingAssignment() if to_give_up:
                self._revoke(outcome, to_give_up, at_ms)
            case PreparingJoin() as task if not task.has_subscription:
                self._encode_subscription(outcome, task)
            case ApplyingAssignment(target=target) if target is not None and self._is_handing_over:
                self._leave_drained(outcome, at_ms)
            case ApplyingAssignment(target=target) as task if target is not None:
                self._apply(outcome, task, target, at_ms)
            case ReleasingAssignment(serial=serial):
                self.step = None
                self._forward(outcome, AssignmentReleased(at_ms=at_ms, serial=serial))
                self._advance(outcome, at_ms)

    def _revoke(self, outcome: Outcome, partitions: Partitions, at_ms: int) -> None:
        if isinstance(self.step, ApplyingAssignment) and not self._is_handing_over:
            reason = "rejoin after revoking partitions for other members"
            self._forward(outcome, RejoinRequested(at_ms=at_ms, reason=reason))
        # After a session without an answer, other members may own the partitions.
        is_late = self.membership.link.is_session_expired
        callback = ListenerCallback.LOST if is_late else ListenerCallback.REVOKED
        self._call_listener(outcome, callback, partitions)

    def _apply(
        self, outcome: Outcome, task: ApplyingAssignment, target: Partitions, at_ms: int
    ) -> None:
        """Own the new partitions, and finish after the listener was called.

        A member that must rejoin is first notified of its partitions in this generation. A member
        without new partitions does not make the group wait for its user.
        """
        if not task.is_callback_sent:
            task.is_callback_sent = True
            added = target - self.owned
            self.owned = target
            self._call_listener(outcome, ListenerCallback.ASSIGNED, added)
            if added:
                return
        self.step = None
        self._forward(outcome, AssignmentApplied(at_ms=at_ms, serial=task.serial))
        self._advance(outcome, at_ms)

    def _encode_subscription(self, outcome: Outcome, task: PreparingJoin) -> None:
        """Encode the subscription after everything was given up."""
        task.has_subscription = True
        self._is_drain_rebalance = self.drain_request is not None
        owned = tuple(sorted(self.owned))
        outcome.actions.append(
            EncodeSubscription(serial=task.serial, generation=task.generation, owned=owned)
        )

    def _leave_drained(self, outcome: Outcome, at_ms: int) -> None:
        """Leave after the drain gave up all partitions."""
        assert self.drain_request is not None, "leaves without a drain request"
        self.step = None
        self._leave(outcome, self.drain_request, at_ms)
        self._advance(outcome, at_ms)

    def _call_listener(
        self, outcome: Outcome, call: ListenerCallback, partitions: Partitions
    ) -> None:
        serial = self.membership.link.next_serial()
        self.open_callback = CallListener(
            serial=serial, callback=call, partitions=tuple(sorted(partitions))
        )
        outcome.actions.append(self.open_callback)

    def _on_callback_completed(self, event: CallbackCompleted) -> None:
        told = self.open_callback
        if told is None or told.serial != event.serial:
            return
        self.open_callback = None
        if told.callback is not ListenerCallback.ASSIGNED:
            self.owned -= frozenset(told.partitions)


def _decode_action(action: ApplyAssignment) -> DecodeAssignment:
    return DecodeAssignment(
        serial=action.serial,
        generation=action.generation,
        protocol=action.protocol,
        assignment=action.assignment,
    )
