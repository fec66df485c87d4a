"""A member: its state, and the steps that the handlers share."""

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
    """In whose name offsets are committed; a coordinator refuses it once it is stale."""

    generation: int
    member_id: str
    instance_id: str | None


class Member:
    """One member of one group."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.link = Link(settings)
        self.state = MemberState.OUT
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        self.is_leader = False
        self.awaited: int | None = None  # the serial of what the state waits for
        self.is_polled = False  # somebody waits in poll
        self.is_rejoin_wanted = False  # since the metadata was last written
        self.is_wanted = False  # to be in the group, once a leave under way is over
        self.reason = ""  # why it joins (KIP-800)
        self.gathered: list[str] = []  # changes of topics that it is still to join again for
        self.leave = Leave(at_ms=0, reason="")
        self.was_parked = False  # when the leave began
        self.protocol_names: frozenset[str] = frozenset()

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id (KIP-345)."""
        return self.settings.instance_id is not None

    @property
    def is_in_generation(self) -> bool:
        """Whether the member belongs to a generation, as far as it knows."""
        return self.generation != NO_GENERATION

    @property
    def commits_as(self) -> Identity | None:
        """In whose name to commit now; None while no commit can be accepted."""
        if not self.is_in_generation or self.state not in COMMITTING:
            return None
        return Identity(
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
        )

    def become(self, turn: Turn, state: MemberState) -> None:
        """The only place where the state changes, and with it which timers run."""
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
        """The serial of what the state waits for from now on."""
        self.awaited = self.link.next_serial()
        return self.awaited

    def advance(self, turn: Turn) -> None:
        """Do what nothing stands in the way of any more."""
        link = self.link
        if self.state not in INSIDE or link.is_backing_off:
            return
        if link.coordinator is None:
            if link.finding is None:
                link.find(turn)
        elif self.state is MemberState.WAITING:
            self.become(turn, MemberState.PREPARING)
            self.is_rejoin_wanted = False
            self.stop_gathering(turn)  # who leads next looks at the topics as they are
            turn.do(Prepare(serial=self.ask(), generation=self.generation))

    def stop_gathering(self, turn: Turn) -> None:
        """Nothing that has changed needs a join of its own any more."""
        if self.gathered:
            self.gathered.clear()
            turn.cancel(Timer.METADATA)

    def want_rejoin(self, turn: Turn, reason: str) -> None:
        """Join again: now, or once what is under way is over."""
        if not self.is_rejoin_wanted:
            self.reason = reason
        self.is_rejoin_wanted = True
        if self.state is MemberState.STABLE:
            self.become(turn, MemberState.WAITING)

    def begin(self, turn: Turn) -> None:
        """Be started, or started again."""
        self.is_wanted = True
        if self.state in (MemberState.OUT, MemberState.FAILED):
            self.reason = ""
            must_be_polled = self.settings.max_poll_interval_ms is not None and not self.is_polled
            self.become(turn, MemberState.DORMANT if must_be_polled else MemberState.WAITING)

    def out(self, turn: Turn) -> None:
        """Be out of the group, as was wanted."""
        self.become(turn, MemberState.OUT)
        turn.do(Left())
        if self.is_wanted:
            self.begin(turn)

    def say_goodbye(self, turn: Turn, reason: str, is_parked: bool) -> int | None:
        """Send LeaveGroup, once and without waiting for it; its serial, or None if it cannot be."""
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
            self.link.lost()  # the shell drops that connection
        return leave.serial

    def drop_coordinator(self, turn: Turn) -> None:
        """Have the coordinator looked for anew, in a while."""
        self.link.drop(turn)
        self.go_on_without_coordinator(turn)

    def go_on_without_coordinator(self, turn: Turn) -> None:
        """What is owned stays, and so does what is under way here; requests were for nothing."""
        if self.state is MemberState.LEAVING:
            self.out(turn)
        elif self.state in INSIDE:
            self.link.back_off(turn)
            if self.state in PARKED:
                self.become(turn, MemberState.WAITING)

    def react(
        self, turn: Turn, answer: Reaction, event: Answer | CommitAnswered, request: Request
    ) -> None:
        """Do what the table says about an answer that is an error."""
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
        """The group has gone on without us: what we own is somebody else's."""
        self.abandon(turn, reason, forgets_id=forgets_id)
        self.reason = reason
        if self.state in INSIDE and self.state is not MemberState.WAITING:
            self.become(turn, MemberState.WAITING)

    def abandon(self, turn: Turn, reason: str, *, forgets_id: bool) -> None:
        """Tell the embedded protocol that what it has is void, and be in no generation."""
        has_more = self.is_in_generation or self.state is MemberState.PREPARING
        if has_more and self.state is not MemberState.RELEASING:
            turn.do(Abandon(reason=reason))
        self.forget(turn, forgets_id=forgets_id)

    def forget(self, turn: Turn, *, forgets_id: bool) -> None:
        """Be in no generation."""
        self.generation = NO_GENERATION
        self.protocol = None
        self.is_leader = False
        if forgets_id:
            self.member_id = ""
        self._time_session(turn)

    def fail(self, turn: Turn, error: ErrorCode, reason: str) -> None:
        """Give up, and say so to the coordinator if it still has a place of ours."""
        if not self.is_static and error not in PLACELESS:
            self.say_goodbye(turn, reason, is_parked=False)
        self.abandon(turn, reason, forgets_id=True)
        if self.state in INSIDE:
            self.become(turn, MemberState.FAILED)
            self.is_wanted = False
            turn.do(Fail(error=error, reason=reason))
