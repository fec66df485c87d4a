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

from enum import StrEnum

import msgspec

from partage.member.events import (
    Adopted,
    CallbackDone,
    Decoded,
    DecodeFailed,
    Drain,
    Event,
    Leave,
    MetadataChanged,
    Partition,
    Prepared,
    PrepareFailed,
    RejoinWanted,
    Released,
    Start,
    Subscribed,
)
from partage.member.member import Identity
from partage.member.membership import Membership
from partage.member.outcome import (
    Abandon,
    Action,
    Adopt,
    Call,
    Decode,
    Describe,
    Outcome,
    Prepare,
    Problem,
    Release,
    Report,
    Tell,
)
from partage.member.settings import MemberSettings
from partage.member.states import INSIDE, MemberState

Partitions = frozenset[Partition]
_NOTHING: Partitions = frozenset()


#: The states in which a subscription starts the member again.
_NOT_WANTED = frozenset(
    {MemberState.OUT, MemberState.FAILED, MemberState.RELEASING, MemberState.LEAVING}
)


class RebalanceProtocol(StrEnum):
    """The way in which partitions change hands (KIP-429)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class Preparing(msgspec.Struct):
    """Preparing to join; ``has_subscription`` once `EncodeSubscription` was requested."""

    serial: int
    generation: int
    described: bool = False


class Adopting(msgspec.Struct):
    """Applying an assignment; ``target`` is its partitions, None until it is decoded."""

    serial: int
    target: Partitions | None = None
    is_told: bool = False


class Releasing(msgspec.Struct):
    """Giving up all partitions before leaving."""

    serial: int
    as_lost: bool


Task = Preparing | Adopting | Releasing


class Ownership:
    """A member and the partitions it owns; the state is that after the last event."""

    def __init__(self, settings: MemberSettings, rebalance_protocol: RebalanceProtocol) -> None:
        self.membership = Membership(settings)
        self.rebalance_protocol = rebalance_protocol
        self.topics: frozenset[str] = frozenset()
        self.owned: Partitions = _NOTHING
        self.told: Tell | None = None  # The listener call in progress
        # True if the owned partitions are lost and the listener is still to be called
        self.is_lost = False
        self.task: Task | None = None
        self.drain: Drain | None = None  # Leave once other members can take the partitions
        self._is_last = False  # True if the current rebalance is the one that the drain started

    # Queries of the shell

    @property
    def deliverable(self) -> Partitions:
        """Partitions whose records may be delivered to the user now.

        It is empty for a member that is in no generation or whose session expired. It excludes
        partitions that are about to be given up or that an open callback is about. The shell sends
        `Polled` first, so that a stalled process does not rely on outdated state.
        """
        membership = self.membership
        if not membership.is_in_generation or membership.link.is_lapsed or self.is_lost:
            return _NOTHING
        told = frozenset(self.told.partitions) if self.told is not None else _NOTHING
        return self.owned - self._to_give_up() - told

    @property
    def commits_as(self) -> Identity | None:
        """Identity for offset commits; None while the coordinator cannot accept a commit."""
        return self.membership.commits_as

    def _to_give_up(self) -> Partitions:
        """Owned partitions that the current step takes away."""
        match self.task:
            case Preparing() if self.rebalance_protocol is RebalanceProtocol.EAGER:
                return self.owned
            case Preparing():
                return frozenset(p for p in self.owned if p[0] not in self.topics)
            case Adopting(target=target) if target is not None:
                return self.owned - target
            case Releasing():
                return self.owned
        return _NOTHING

    # Events

    def handle(self, event: Event) -> Outcome:
        """Handle ``event`` and return its outcome.

        See `Outcome` for the duties of the caller.
        """
        outcome = Outcome()
        match event:
            case Subscribed():
                self._subscribed(outcome, event)
            case Drain():
                self._drain(outcome, event)
            case Decoded():
                self._decoded(outcome, event)
            case DecodeFailed():
                self._decode_failed(outcome, event)
            case CallbackDone():
                self._callback_done(event)
            case _:
                self._pass_on(outcome, event)
        self._go_on(outcome, event.at_ms)
        return outcome

    def _pass_on(self, outcome: Outcome, event: Event) -> None:
        """Forward an event to the membership, and start the steps that it requests."""
        if isinstance(event, Prepared | PrepareFailed) and self._is_preparing(event.serial):
            self.task = None
        below = self.membership.handle(event)
        if isinstance(event, Leave) or self.membership.state is MemberState.OUT:
            self.drain = None
        outcome.timers += below.timers
        for action in below.actions:
            if not self._take(action):
                outcome.actions.append(action)
            elif isinstance(action, Adopt):
                outcome.actions.append(_decode(action))

    def _is_preparing(self, serial: int) -> bool:
        return isinstance(self.task, Preparing) and self.task.serial == serial

    def _take(self, action: Action) -> bool:
        """Start the step that ``action`` requests; return False if the shell must perform the
        action.
        """
        match action:
            case Prepare(serial=serial, generation=generation):
                self.task = Preparing(serial, generation)
            case Adopt(serial=serial):
                self.task = Adopting(serial)
            case Release(serial=serial, as_lost=as_lost):
                self.task = Releasing(serial, as_lost)
            case Abandon():
                self.task = None
                self.is_lost = bool(self.owned)
            case _:
                return False
        return True

    def _subscribed(self, outcome: Outcome, event: Subscribed) -> None:
        is_out = self.membership.state in _NOT_WANTED
        if event.by_pattern:
            if is_out:
                return  # The user has not restarted the member
        else:
            self.drain = None
        changed = event.topics != self.topics
        self.topics = event.topics
        if is_out:
            self._pass_on(outcome, Start(at_ms=event.at_ms))
        elif changed and not self._is_undescribed:
            again: Event
            if event.by_pattern:
                reason = "other topics match the pattern"
                again = MetadataChanged(at_ms=event.at_ms, reason=reason, is_own=True)
            else:
                again = RejoinWanted(at_ms=event.at_ms, reason="the subscription has changed")
            self._pass_on(outcome, again)

    def _drain(self, outcome: Outcome, event: Drain) -> None:
        """Start one more rebalance as a member, and leave the group after it.

        An empty subscription in that rebalance would look simpler. But not every leader holds back
        owned partitions of topics that their owner is not subscribed to: librdkafka's leader does
        not.
        """
        if self.drain is not None:
            return
        self.drain = event
        if self.rebalance_protocol is RebalanceProtocol.EAGER or not self.owned:
            self._leave(outcome, event, event.at_ms)
        elif not self._is_undescribed:
            self._pass_on(outcome, RejoinWanted(at_ms=event.at_ms, reason=event.reason))

    def _leave(self, outcome: Outcome, drain: Drain, at_ms: int) -> None:
        self._pass_on(outcome, Leave(at_ms=at_ms, reason=drain.reason, tells=True))

    @property
    def _is_handing_over(self) -> bool:
        """True if the rebalance of the drain is over, so that other members can take the
        partitions.
        """
        return self.drain is not None and self._is_last

    @property
    def _is_undescribed(self) -> bool:
        """True if the next join encodes the current subscription anyway."""
        return isinstance(self.task, Preparing) and not self.task.described

    def _decoded(self, outcome: Outcome, event: Decoded) -> None:
        task = self.task
        if not isinstance(task, Adopting) or task.serial != event.serial:
            return
        if self._is_handing_over:
            task.target = _NOTHING
            return
        if event.fits:
            task.target = frozenset(event.partitions)
            # The leader may know topics that match the pattern before this member does.
            self.topics |= {topic for topic, _ in event.partitions}
            if event.again is not None:
                self._pass_on(outcome, RejoinWanted(at_ms=event.at_ms, reason=event.again))
            return
        reason = "the assignment does not match the subscription, which has changed"
        self._pass_on(outcome, RejoinWanted(at_ms=event.at_ms, reason=reason))
        self.task = None
        self._pass_on(outcome, Adopted(at_ms=event.at_ms, serial=event.serial))

    def _decode_failed(self, outcome: Outcome, event: DecodeFailed) -> None:
        """Own nothing until the leader can assign again."""
        task = self.task
        if not isinstance(task, Adopting) or task.serial != event.serial:
            return
        task.target = _NOTHING
        outcome.actions.append(Report(problem=Problem.ASSIGNMENT_FAILED, reason=event.reason))
        again = RejoinWanted(at_ms=event.at_ms, reason="the assignment failed", backs_off=True)
        self._pass_on(outcome, again)

    # Steps of a rebalance

    def _go_on(self, outcome: Outcome, at_ms: int) -> None:
        """Start the next step after the listener finished the last one."""
        if self.told is not None and self.told.partitions:
            return
        if self.is_lost:
            self.is_lost = False
            if self.owned:  # The callback that just ended may have been about all of them
                self._tell(outcome, Call.LOST, self.owned)
                return
        if self.drain is not None and not self.owned and self.membership.state in INSIDE:
            # All partitions are given up or lost: do not wait for the coordinator
            self._go(outcome, at_ms)
            return
        to_give_up = self._to_give_up()
        match self.task:
            case Releasing(as_lost=as_lost) if to_give_up:
                self._tell(outcome, Call.LOST if as_lost else Call.REVOKED, to_give_up)
            case Preparing() | Adopting() if to_give_up:
                self._revoke(outcome, to_give_up, at_ms)
            case Preparing() as task if not task.described:
                self._prepare(outcome, task)
            case Adopting(target=target) if target is not None and self._is_handing_over:
                self._go(outcome, at_ms)
            case Adopting(target=target) as task if target is not None:
                self._adopt(outcome, task, target, at_ms)
            case Releasing(serial=serial):
                self.task = None
                self._pass_on(outcome, Released(at_ms=at_ms, serial=serial))
                self._go_on(outcome, at_ms)

    def _revoke(self, outcome: Outcome, partitions: Partitions, at_ms: int) -> None:
        if isinstance(self.task, Adopting) and not self._is_handing_over:
            reason = "rejoin after revoking partitions for other members"
            self._pass_on(outcome, RejoinWanted(at_ms=at_ms, reason=reason))
        self._tell(outcome, Call.REVOKED, partitions)

    def _adopt(self, outcome: Outcome, task: Adopting, target: Partitions, at_ms: int) -> None:
        """Own the new partitions, and finish after the listener was called.

        A member that must rejoin is first notified of its partitions in this generation. A member
        without new partitions does not make the group wait for its user.
        """
        if not task.is_told:
            task.is_told = True
            added = target - self.owned
            self.owned = target
            self._tell(outcome, Call.ASSIGNED, added)
            if added:
                return
        self.task = None
        self._pass_on(outcome, Adopted(at_ms=at_ms, serial=task.serial))
        self._go_on(outcome, at_ms)

    def _prepare(self, outcome: Outcome, task: Preparing) -> None:
        """Encode the subscription after everything was given up."""
        task.described = True
        self._is_last = self.drain is not None
        owned = tuple(sorted(self.owned))
        outcome.actions.append(
            Describe(serial=task.serial, generation=task.generation, owned=owned)
        )

    def _go(self, outcome: Outcome, at_ms: int) -> None:
        """Leave after the drain gave up all partitions."""
        assert self.drain is not None, "leaves without a drain request"
        self.task = None
        self._leave(outcome, self.drain, at_ms)
        self._go_on(outcome, at_ms)

    def _tell(self, outcome: Outcome, call: Call, partitions: Partitions) -> None:
        serial = self.membership.link.next_serial()
        self.told = Tell(serial=serial, call=call, partitions=tuple(sorted(partitions)))
        outcome.actions.append(self.told)

    def _callback_done(self, event: CallbackDone) -> None:
        told = self.told
        if told is None or told.serial != event.serial:
            return
        self.told = None
        if told.call is not Call.ASSIGNED:
            self.owned -= frozenset(told.partitions)


def _decode(action: Adopt) -> Decode:
    return Decode(
        serial=action.serial,
        generation=action.generation,
        protocol=action.protocol,
        assignment=action.assignment,
    )
