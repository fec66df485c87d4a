"""The invariants of a member find states that break them: without this, other tests check nothing.

Each case brings a member into a valid state, breaks one fact, and names the violation.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.member import invariants
from partage.member.member import NO_GENERATION
from partage.member.outcome import CallListener, ListenerCallback
from partage.member.ownership import ApplyingAssignment, PreparingJoin, ReleasingAssignment
from partage.member.states import MemberState
from partage.member.timers import MemberTimer
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition

from .scenario_runner import ScenarioRunner
from .test_scenarios import story_in

_S = MemberState
OTHER = TopicPartition("other", 0)


def call(callback: ListenerCallback, *partitions: TopicPartition) -> CallListener:
    return CallListener(serial=99, callback=callback, partitions=partitions)


class BrokenMember:
    """A member in a valid state; its methods break one fact each."""

    def __init__(self, story: ScenarioRunner) -> None:
        self.core = story.core
        self.member = story.core.membership
        self.link = self.member.link
        self.armed = dict(story.timers.armed)

    def check(self) -> None:
        invariants.check_ownership(self.core, self.armed)

    def toggle(self, key: MemberTimer) -> None:
        """Arm a timer that is not armed, or stop one that is."""
        if key in self.armed:
            del self.armed[key]
        else:
            self.armed[key] = 0

    def lose_coordinator(self) -> None:
        self.link.coordinator_serial = None

    def lose_request_of_leave(self) -> None:
        self.link.coordinator_serial = None
        self.member.was_request_parked = False

    def look_up_known_coordinator(self) -> None:
        self.link.lookup_serial = 99

    def toggle_awaited_serial(self) -> None:
        self.member.awaited_serial = 99 if self.member.awaited_serial is None else None

    def toggle_session(self) -> None:
        self.link.session_deadline_ms = 0 if self.link.session_deadline_ms is None else None

    def change_topics(self) -> None:
        self.member.pending_topic_changes.append("t")

    def change_topics_with_timer(self) -> None:
        self.change_topics()
        self.armed[MemberTimer.METADATA] = 0

    def know_coordinator(self) -> None:
        self.link.coordinator_serial, self.link.lookup_serial = 99, None

    def request_rejoin(self) -> None:
        self.member.is_rejoin_pending = True

    def forget_member_id(self) -> None:
        self.member.member_id = ""

    def leave_generation(self) -> None:
        self.member.generation = NO_GENERATION

    def enter_generation(self) -> None:
        self.member.member_id, self.member.generation = "a", 1

    def lead(self) -> None:
        self.member.is_leader = True

    def own(self) -> None:
        self.core.owned |= {OTHER}

    def own_while_assigned_is_called(self) -> None:
        self.own()
        self.core.open_callback = call(ListenerCallback.ASSIGNED, OTHER)

    def own_while_some_are_lost(self) -> None:
        self.own()
        self.core.owned |= {TopicPartition("other", 1)}
        self.core.open_callback = call(ListenerCallback.LOST, OTHER)

    def revoke_unowned(self) -> None:
        self.core.open_callback = call(ListenerCallback.REVOKED, OTHER)

    def revoke_nothing(self) -> None:
        self.core.open_callback = call(ListenerCallback.REVOKED)

    def lose_silently(self) -> None:
        self.core.open_callback = call(ListenerCallback.ASSIGNED)
        self.core.has_lost_partitions = True

    def prepare_behind_empty_callback(self) -> None:
        self.core.open_callback = call(ListenerCallback.ASSIGNED)
        self.core.step = PreparingJoin(serial=1, generation=1)

    def apply_behind_empty_callback(self) -> None:
        self.core.open_callback = call(ListenerCallback.ASSIGNED)
        self.core.step = ApplyingAssignment(serial=1, target=frozenset())

    def release_behind_empty_callback(self) -> None:
        self.core.open_callback = call(ListenerCallback.ASSIGNED)
        self.core.step = ReleasingAssignment(serial=1, is_lost=False)


def broken(state: MemberState) -> BrokenMember:
    if state is not _S.LEAVING:
        return BrokenMember(story_in(state))
    story = story_in(_S.STABLE)
    for command in ("leave", "told"):
        story.play(command)
    assert story.core.membership.state is state
    return BrokenMember(story)


_B = BrokenMember
CASES: list[tuple[MemberState, Callable[[BrokenMember], None], str]] = [
    (_S.STABLE, _B.toggle_session, "session"),
    (_S.JOINING, _B.toggle_session, "session"),
    (_S.JOINING, _B.toggle_awaited_serial, "awaits"),
    (_S.STABLE, _B.toggle_awaited_serial, "awaits"),
    (_S.JOINING, _B.lose_coordinator, "without a coordinator"),
    (_S.SYNCING, _B.lose_coordinator, "without a coordinator"),
    (_S.LEAVING, _B.lose_request_of_leave, "without a coordinator"),
    (_S.STABLE, _B.lose_coordinator, "no lookup is in progress"),
    (_S.STABLE, _B.look_up_known_coordinator, "looks up a known coordinator"),
    (_S.UNJOINED, _B.know_coordinator, "nothing blocks it"),
    (_S.STABLE, _B.request_rejoin, "a rejoin is pending"),
    (_S.STABLE, _B.change_topics, "pending topic changes"),
    (_S.LEAVING, _B.change_topics_with_timer, "pending topic changes"),
    (_S.JOINING, _B.forget_member_id, "without a member id"),
    (_S.LEAVING, _B.enter_generation, "in a generation"),
    (_S.SYNCING, _B.leave_generation, "in no generation"),
    (_S.UNJOINED, _B.lead, "is leader in no generation"),
    (_S.UNJOINED, _B.own, "owned in no generation"),
    (_S.UNJOINED, _B.own_while_assigned_is_called, "no callback is open"),
    (_S.UNJOINED, _B.own_while_some_are_lost, "no callback is open"),
    (_S.JOINING, _B.own, "joins with"),
    (_S.SYNCING, _B.own, "joins with"),
    (_S.ASSIGNING, _B.own, "joins with"),
    (_S.STABLE, _B.revoke_unowned, "partitions that are not owned"),
    (_S.STABLE, _B.revoke_nothing, "has no partitions"),
    (_S.STABLE, _B.lose_silently, "lost, and no callback is open"),
    (_S.STABLE, _B.prepare_behind_empty_callback, "waits for"),
    (_S.STABLE, _B.apply_behind_empty_callback, "waits for"),
    (_S.STABLE, _B.release_behind_empty_callback, "waits for"),
]


@pytest.mark.parametrize(
    ("state", "violate", "message"), CASES, ids=lambda each: getattr(each, "__name__", str(each))
)
def test_violated_invariant_is_found(
    state: MemberState, violate: Callable[[BrokenMember], None], message: str
) -> None:
    member = broken(state)
    member.check()
    violate(member)
    with pytest.raises(AssertionError, match=message):
        member.check()


@pytest.mark.parametrize("key", MemberTimer, ids=str)
@pytest.mark.parametrize(
    "state", [_S.UNJOINED, _S.PREPARING, _S.JOINING, _S.SYNCING, _S.STABLE, _S.LEAVING], ids=str
)
def test_missing_or_superfluous_timer_is_found(state: MemberState, key: MemberTimer) -> None:
    member = broken(state)
    member.toggle(key)
    with pytest.raises(AssertionError):
        member.check()


def test_parked_leave_needs_no_coordinator() -> None:
    member = broken(_S.LEAVING)
    member.lose_coordinator()
    member.member.was_request_parked = True
    member.check()


def test_cooperative_member_may_own_partitions_while_it_joins() -> None:
    member = broken(_S.JOINING)
    member.core.rebalance_protocol = RebalanceProtocol.COOPERATIVE
    member.own()
    member.check()


@pytest.mark.parametrize("unsafe", ["unowned", "open_callback", "no_generation", "expired_session"])
def test_unsafe_delivery_is_found(unsafe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    member = broken(_S.STABLE)
    owned = member.core.owned
    assert owned
    delivered = owned | {OTHER} if unsafe == "unowned" else owned
    monkeypatch.setattr(type(member.core), "deliverable", delivered)
    if unsafe == "open_callback":
        member.core.open_callback = call(ListenerCallback.REVOKED, *owned)
    elif unsafe == "no_generation":
        member.leave_generation()
    elif unsafe == "expired_session":
        member.link.is_session_expired = True
    with pytest.raises(AssertionError, match="deliver"):
        invariants.deliverable_partitions_are_owned(member.core)
