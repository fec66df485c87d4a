"""The state of a member, and the steps that its handlers share."""

from __future__ import annotations

import msgspec

from partage.member.events import Answer, CommitAnswered, Leave
from partage.member.link import Link
from partage.member.outcome import Abandon, Fail, Left, Prepare, SendLeave
from partage.member.reactions import PLACELESS, Reaction, Request
from partage.member.settings import MemberSettings
from partage.member.states import BEATING, COMMITTING, INSIDE, PARKED, PREDECESSORS, MemberState
from partage.member.timers import Timer
from partage.member.turn import Turn
from partage.model.errors import ErrorCode

NO_GENERATION = -1


class Identity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The identity that offset commits use; a coordinator rejects it once it is stale."""

    generation: int
    member_id: str
    instance_id: str | None


class Member:
    """The state of one member of one group."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.link = Link(settings)
        self.state = MemberState.OUT
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        self.is_leader = False
        self.awaited: int | None = None  # The serial that the current state waits for
        self.is_polled = False  # True while the user waits in poll
        self.is_rejoin_wanted = False  # Since the metadata was last encoded
        self.is_wanted = False  # False once leave is requested; start again after the leave if True
        self.reason = ""  # Sent in JoinGroup (KIP-800)
        self.gathered: list[str] = []  # Topic changes to rejoin for after the delay
        self.leave = Leave(at_ms=0, reason="")
        self.was_parked = False  # When the leave began
        self.protocol_names: frozenset[str] = frozenset()

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.settings.instance_id is not None

    @property
    def is_in_generation(self) -> bool:
        """True if the member belongs to a generation, as far as it knows."""
        return self.generation != NO_GENERATION

    @property
    def commits_as(self) -> Identity | None:
        """Identity for offset commits; None while the coordinator cannot accept a commit."""
        if not self.is_in_generation or self.state not in COMMITTING:
            return None
        return Identity(
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
        )

    def become(self, turn: Turn, state: MemberState) -> None:
        """Change the state, and stop the timers that do not belong to the new one.

        The state changes only here.
        """
        before = self.state
        assert before in PREDECESSORS[state], f"{before} -> {state}"
        self.state = state
        self.awaited = None
        if before in PARKED or before is MemberState.LEAVING:
            turn.cancel(Timer.REQUEST)
        if before in INSIDE and state not in INSIDE:
            turn.cancel(Timer.POLL)
            self.link.stop_backing_off(turn)
            self.stop_gathering(turn)
            self.is_rejoin_wanted = False
        self._time_session(turn)

    def _time_session(self, turn: Turn) -> None:
        link = self.link
        is_timed = self.is_in_generation and self.state in BEATING
        if is_timed and link.session_ends_ms is None:
            link.time_session(turn)
        elif not is_timed and link.session_ends_ms is not None:
            link.untime_session(turn)

    def ask(self) -> int:
        """Draw the serial that the current state waits for from now on."""
        self.awaited = self.link.next_serial()
        return self.awaited

    def advance(self, turn: Turn) -> None:
        """Start the next step if nothing blocks it."""
        link = self.link
        if self.state not in INSIDE or link.is_backing_off:
            return
        if link.coordinator is None:
            if link.finding is None:
                link.find(turn)
        elif self.state is MemberState.WAITING:
            self.become(turn, MemberState.PREPARING)
            self.is_rejoin_wanted = False
            self.stop_gathering(turn)  # The next leader reads the current topics
            turn.do(Prepare(serial=self.ask(), generation=self.generation))

    def stop_gathering(self, turn: Turn) -> None:
        """Drop the collected topic changes: the member joins anyway."""
        if self.gathered:
            self.gathered.clear()
            turn.cancel(Timer.METADATA)

    def want_rejoin(self, turn: Turn, reason: str) -> None:
        """Rejoin now, or after the current rebalance."""
        if not self.is_rejoin_wanted:
            self.reason = reason
        self.is_rejoin_wanted = True
        if self.state is MemberState.STABLE:
            self.become(turn, MemberState.WAITING)

    def begin(self, turn: Turn) -> None:
        """Start, or start again after a leave or a fatal error."""
        self.is_wanted = True
        if self.state in (MemberState.OUT, MemberState.FAILED):
            self.reason = ""
            must_be_polled = self.settings.max_poll_interval_ms is not None and not self.is_polled
            self.become(turn, MemberState.DORMANT if must_be_polled else MemberState.WAITING)

    def out(self, turn: Turn) -> None:
        """Finish leaving; start again if that was requested meanwhile."""
        self.become(turn, MemberState.OUT)
        turn.do(Left())
        if self.is_wanted:
            self.begin(turn)

    def say_goodbye(self, turn: Turn, reason: str, is_parked: bool) -> int | None:
        """Send LeaveGroup without waiting for the response.

        Returns:
            The serial of the request; None if there is no member id or no coordinator.
        """
        if not self.member_id or self.link.coordinator is None:
            return None
        leave = SendLeave(
            serial=self.link.next_serial(),
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            reason=reason,
            is_parked=is_parked,
        )
        turn.do(leave)
        if is_parked:
            self.link.lost()  # The shell closes that connection
        return leave.serial

    def drop_coordinator(self, turn: Turn) -> None:
        """Disconnect, and look up the coordinator again after a back-off."""
        self.link.drop(turn)
        self.go_on_without_coordinator(turn)

    def go_on_without_coordinator(self, turn: Turn) -> None:
        """Keep the partitions and local steps, but drop the requests in flight."""
        if self.state is MemberState.LEAVING:
            self.out(turn)
        elif self.state in INSIDE:
            self.link.back_off(turn)
            if self.state in PARKED:
                self.become(turn, MemberState.WAITING)

    def react(
        self, turn: Turn, answer: Reaction, event: Answer | CommitAnswered, request: Request
    ) -> None:
        """Apply the reaction to an error response."""
        why = f"{request} failed with {event.error.name}"
        match answer:
            case Reaction.JOIN_AGAIN | Reaction.JOIN_LATER:
                self.reason = why
                if answer is Reaction.JOIN_LATER:
                    self.link.back_off(turn)
                self.become(turn, MemberState.WAITING)
            case Reaction.FIND_AGAIN:
                self.drop_coordinator(turn)
            case Reaction.LOSE_GENERATION | Reaction.LOSE_MEMBERSHIP:
                self.lose(turn, why, forgets_id=answer is Reaction.LOSE_MEMBERSHIP)
            case Reaction.REBALANCE:
                if self.state in (MemberState.STABLE, MemberState.ADOPTING):
                    self.want_rejoin(turn, "the group rebalances")
            case Reaction.TRY_LATER:
                turn.arm(Timer.HEARTBEAT, self.link.backoff_ms())
            case Reaction.FAIL:
                self.fail(turn, event.error, why)

    def lose(self, turn: Turn, reason: str, *, forgets_id: bool) -> None:
        """Rejoin after the group continued without this member: its partitions are lost."""
        self.abandon(turn, reason, forgets_id=forgets_id)
        self.reason = reason
        if self.state in INSIDE and self.state is not MemberState.WAITING:
            self.become(turn, MemberState.WAITING)

    def abandon(self, turn: Turn, reason: str, *, forgets_id: bool) -> None:
        """Discard the assignment of the embedded protocol, and leave the generation."""
        has_more = self.is_in_generation or self.state is MemberState.PREPARING
        if has_more and self.state is not MemberState.RELEASING:
            turn.do(Abandon(reason=reason))
        self.forget(turn, forgets_id=forgets_id)

    def forget(self, turn: Turn, *, forgets_id: bool) -> None:
        """Leave the generation."""
        self.generation = NO_GENERATION
        self.protocol = None
        self.is_leader = False
        if forgets_id:
            self.member_id = ""
        self._time_session(turn)

    def fail(self, turn: Turn, error: ErrorCode, reason: str) -> None:
        """Enter the fatal state, and send LeaveGroup if the coordinator still has this member."""
        if not self.is_static and error not in PLACELESS:
            self.say_goodbye(turn, reason, is_parked=False)
        self.abandon(turn, reason, forgets_id=True)
        if self.state in INSIDE:
            self.become(turn, MemberState.FAILED)
            self.is_wanted = False
            turn.do(Fail(error=error, reason=reason))
