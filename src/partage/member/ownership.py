"""A member that owns partitions, as a consumer does: the core's upper door.

`Ownership` is the protocol embedded in a `Membership`. It decides which partitions are given up
when, and which callback the listener is due (KIP-429):

- Under the eager protocol everything is revoked before joining. Under the cooperative one the
  member goes on with what it owns; what its new assignment lacks is revoked then, and the member
  joins again, so that nobody else was given any of it before.
- Revoked comes before assigned. Lost comes where nobody waits for the partitions any more: they
  may be somebody else's already.
- Revoked and lost are not called for nothing; assigned is called at the end of every rebalance.
- Nobody waits for a call about nothing. If the next call is due before the listener has heard it,
  that one takes its place: to the listener the two rebalances are one.

What may be delivered is `Ownership.deliverable`, at any moment.
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


#: The states in which a subscription means a new start.
_NOT_WANTED = frozenset(
    {MemberState.OUT, MemberState.FAILED, MemberState.RELEASING, MemberState.LEAVING}
)


class RebalanceProtocol(StrEnum):
    """How partitions change hands (KIP-429)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class Preparing(msgspec.Struct):
    """Getting ready to join; ``described`` once the subscription is being written."""

    serial: int
    generation: int
    described: bool = False


class Adopting(msgspec.Struct):
    """Taking an assignment over; ``target`` is it, once it is read."""

    serial: int
    target: Partitions | None = None
    is_told: bool = False


class Releasing(msgspec.Struct):
    """Giving everything up."""

    serial: int
    as_lost: bool


Task = Preparing | Adopting | Releasing


class Ownership:
    """One member and what it owns, as of the last event."""

    def __init__(self, settings: MemberSettings, rebalance_protocol: RebalanceProtocol) -> None:
        self.membership = Membership(settings)
        self.rebalance_protocol = rebalance_protocol
        self.topics: frozenset[str] = frozenset()
        self.owned: Partitions = _NOTHING
        self.told: Tell | None = None  # the call that the listener is at
        self.is_lost = False  # what is owned is somebody else's, and the listener must hear it
        self.task: Task | None = None
        self.drain: Drain | None = None  # to be gone once others can take what is owned
        self._is_last = False  # the rebalance under way is the one that a drain began

    # What a shell asks.

    @property
    def deliverable(self) -> Partitions:
        """The partitions whose records may be handed to the user now.

        None of a member that is in no generation or may have been dropped; and none that is about
        to be given up, or whose callback is still under way. A shell hands in `Polled` first, so
        that a process that stood still does not go by what it knew before.
        """
        membership = self.membership
        if not membership.is_in_generation or membership.link.is_lapsed or self.is_lost:
            return _NOTHING
        told = frozenset(self.told.partitions) if self.told is not None else _NOTHING
        return self.owned - self._to_give_up() - told

    @property
    def commits_as(self) -> Identity | None:
        """In whose name to commit now; None while no commit can be accepted."""
        return self.membership.commits_as

    def _to_give_up(self) -> Partitions:
        """What of the owned partitions the task takes away."""
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

    # Events.

    def handle(self, event: Event) -> Outcome:
        """What comes of ``event``; see `Outcome` for what must be done with it."""
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
        """Have the membership handle an event, and do what it asks of its embedded protocol."""
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
        """Whether the action was for the embedded protocol, which is this."""
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
                return  # nobody has asked it to come back
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
        """Have the group rebalance once more with us in it, and then leave it.

        Subscribing to nothing in that rebalance looks better and is not: not all leaders hold back
        what a member owns of topics that it does not subscribe to (librdkafka's do not).
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
        """Whether the others are at hand."""
        return self.drain is not None and self._is_last

    @property
    def _is_undescribed(self) -> bool:
        """Whether the coming join will say what we subscribe to anyway."""
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
            # A leader may know topics that match our pattern before we have heard of them.
            self.topics |= {topic for topic, _ in event.partitions}
            if event.again is not None:
                self._pass_on(outcome, RejoinWanted(at_ms=event.at_ms, reason=event.again))
            return
        reason = "the assignment does not match the subscription, which has changed"
        self._pass_on(outcome, RejoinWanted(at_ms=event.at_ms, reason=reason))
        self.task = None
        self._pass_on(outcome, Adopted(at_ms=event.at_ms, serial=event.serial))

    def _decode_failed(self, outcome: Outcome, event: DecodeFailed) -> None:
        """The leader could not assign: nothing is owned, until it can."""
        task = self.task
        if not isinstance(task, Adopting) or task.serial != event.serial:
            return
        task.target = _NOTHING
        outcome.actions.append(Report(problem=Problem.ASSIGNMENT_FAILED, reason=event.reason))
        again = RejoinWanted(at_ms=event.at_ms, reason="the assignment failed", backs_off=True)
        self._pass_on(outcome, again)

    # Giving and taking.

    def _go_on(self, outcome: Outcome, at_ms: int) -> None:
        """The next step, once the listener is done with the last one."""
        if self.told is not None and self.told.partitions:
            return
        if self.is_lost:
            self.is_lost = False
            if self.owned:  # of which the call just done may have been about all
                self._tell(outcome, Call.LOST, self.owned)
                return
        if self.drain is not None and not self.owned and self.membership.state in INSIDE:
            self._go(outcome, at_ms)  # all is given up, or was lost: no coordinator is waited for
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
        """Nothing is left to revoke: own what is new, and when the listener has heard, all is done.

        A member that joins again at once is told first what it was given in this generation; one
        that was given nothing keeps nobody waiting while its user works.
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
        """Nothing is left to give up before joining."""
        task.described = True
        self._is_last = self.drain is not None
        owned = tuple(sorted(self.owned))
        outcome.actions.append(
            Describe(serial=task.serial, generation=task.generation, owned=owned)
        )

    def _go(self, outcome: Outcome, at_ms: int) -> None:
        """Nothing is owned any more: leave."""
        assert self.drain is not None, "leaves, and nobody has asked for it"
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
