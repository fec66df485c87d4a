"""The invariants of a member find states that break them: without this, other tests check nothing.

Each case brings a member into a valid state, breaks one fact, and names the violation.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partage.member.consumer_group.invariants import (
    check_consumer_member,
    deliverable_partitions_are_safe,
)
from partage.member.consumer_group.membership import SentHeartbeat
from partage.member.consumer_group.outcome import JOIN_EPOCH
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.outcome import CallListener, ListenerCallback
from partage.member.timers import MemberTimer
from partage.model.topic_partition import TopicPartition

from .group_with_members import GroupWithMembers, MemberNode

_S = ConsumerMemberState
OTHER = TopicPartition("other", 0)
OTHER_ID = b"o" * 16


def call(callback: ListenerCallback, *partitions: TopicPartition) -> CallListener:
    return CallListener(serial=99, callback=callback, partitions=partitions)


def node_in(state: ConsumerMemberState) -> MemberNode:
    """Return a member that came to a state in the usual way."""
    node = GroupWithMembers(A=None)["A"]
    if state is _S.STALE:
        node.subscribe("ta", "tb")
    elif state is _S.JOINING:
        node.poll()
        node.subscribe("ta", "tb")
    elif state is not _S.UNSUBSCRIBED:
        node.subscribe("ta", "tb")
        node.exchange()
        if state is not _S.STABLE:
            node.leave()
        if state is _S.LEAVING:
            node.complete_callback()
    assert node.member.state is state
    return node


class BrokenMember:
    """A member in a valid state; its methods break one fact each."""

    def __init__(self, state: ConsumerMemberState) -> None:
        node = node_in(state)
        self.member = node.member
        self.link = self.member.link
        self.armed = dict(node.timers.armed)

    def check(self) -> None:
        check_consumer_member(self.member, self.armed)

    def toggle(self, key: MemberTimer) -> None:
        """Arm a timer that is not armed, or stop one that is."""
        if key in self.armed:
            del self.armed[key]
        else:
            self.armed[key] = 0

    def send_heartbeat(self) -> None:
        self.member.in_flight = SentHeartbeat(
            serial=99,
            sent_ms=0,
            is_acknowledgement=False,
            subscription=(frozenset(), None),
            has_nothing_to_revoke=True,
        )

    def owe_heartbeat(self) -> None:
        self.member.is_heartbeat_due = True

    def await_leave(self) -> None:
        self.member.awaited_serial = 99

    def forget_leave(self) -> None:
        self.member.awaited_serial = None
        self.member.may_be_member = False

    def leave_twice(self) -> None:
        self.member.may_be_member = True

    def back_off(self) -> None:
        self.link.is_backing_off = True
        self.armed[MemberTimer.RETRY] = 0

    def lose_coordinator(self) -> None:
        self.link.coordinator_serial = self.link.lookup_serial = None

    def resolve_known_topics(self) -> None:
        self.member.resolving_serial = 99

    def forget_topic_names(self) -> None:
        self.member.owned_ids.clear()
        self.member.topic_names.clear()

    def enter_group(self) -> None:
        self.member.epoch, self.link.lookup_serial = 1, 99
        self.armed[MemberTimer.SESSION] = 0

    def leave_group(self) -> None:
        self.member.epoch, self.member.assignment = JOIN_EPOCH, None
        for key in (MemberTimer.SESSION, MemberTimer.HEARTBEAT):
            self.armed.pop(key, None)

    def keep_assignment(self) -> None:
        self.member.assignment = frozenset()

    def own(self) -> None:
        self.member.owned_ids[OTHER] = OTHER_ID

    def own_with_callback(self) -> None:
        self.own()
        self.member.open_callback = call(ListenerCallback.LOST, OTHER)

    def own_less(self) -> None:
        self.member.owned_ids.popitem()

    def reconcile_nothing(self) -> None:
        self.member.state = _S.RECONCILING

    def revoke_unowned(self) -> None:
        self.member.open_callback = call(ListenerCallback.REVOKED, OTHER)

    def revoke_nothing(self) -> None:
        self.member.open_callback = call(ListenerCallback.REVOKED)


_B = BrokenMember
CASES: list[tuple[ConsumerMemberState, Callable[[BrokenMember], None], str]] = [
    (_S.STABLE, _B.send_heartbeat, "heartbeat timer"),
    (_S.STABLE, _B.owe_heartbeat, "heartbeat timer"),
    (_S.UNSUBSCRIBED, _B.send_heartbeat, "a heartbeat in"),
    (_S.UNSUBSCRIBED, _B.owe_heartbeat, "a heartbeat in"),
    (_S.STABLE, _B.await_leave, "awaits a leave"),
    (_S.LEAVING, _B.forget_leave, "awaits a leave"),
    (_S.LEAVING, _B.leave_twice, "leaves twice"),
    (_S.PREPARE_LEAVING, _B.await_leave, "awaits a leave"),
    (_S.UNSUBSCRIBED, _B.back_off, "backs off"),
    (_S.STALE, _B.back_off, "backs off"),
    (_S.JOINING, _B.lose_coordinator, "no lookup is in progress"),
    (_S.STABLE, _B.lose_coordinator, "no lookup is in progress"),
    (_S.PREPARE_LEAVING, _B.lose_coordinator, "no lookup is in progress"),
    (_S.STABLE, _B.resolve_known_topics, "topic names"),
    (_S.STABLE, _B.forget_topic_names, "topic names"),
    (_S.UNSUBSCRIBED, _B.enter_group, "with epoch 1"),
    (_S.STABLE, _B.leave_group, "without an epoch"),
    (_S.JOINING, _B.keep_assignment, "an assignment in"),
    (_S.STALE, _B.own, "owned outside the group"),
    (_S.UNSUBSCRIBED, _B.own_with_callback, "with "),
    (_S.JOINING, _B.own_with_callback, "with "),
    (_S.LEAVING, _B.own_with_callback, "with "),
    (_S.STABLE, _B.own, "stable with"),
    (_S.STABLE, _B.own_less, "stable with"),
    (_S.STABLE, _B.reconcile_nothing, "reconciling, and nothing blocks it"),
    (_S.STABLE, _B.revoke_unowned, "partitions not owned"),
    (_S.STABLE, _B.revoke_nothing, "has no partitions"),
]


@pytest.mark.parametrize(
    ("state", "violate", "message"), CASES, ids=lambda each: getattr(each, "__name__", str(each))
)
def test_violated_invariant_is_found(
    state: ConsumerMemberState, violate: Callable[[BrokenMember], None], message: str
) -> None:
    member = BrokenMember(state)
    member.check()
    violate(member)
    with pytest.raises(AssertionError, match=message):
        member.check()


@pytest.mark.parametrize("key", MemberTimer, ids=str)
@pytest.mark.parametrize(
    "state",
    [_S.UNSUBSCRIBED, _S.STALE, _S.JOINING, _S.STABLE, _S.PREPARE_LEAVING, _S.LEAVING],
    ids=str,
)
def test_missing_or_superfluous_timer_is_found(
    state: ConsumerMemberState, key: MemberTimer
) -> None:
    member = BrokenMember(state)
    member.toggle(key)
    with pytest.raises(AssertionError):
        member.check()


@pytest.mark.parametrize("unsafe", ["unowned", "open_callback", "no_epoch", "expired_session"])
def test_unsafe_delivery_is_found(unsafe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    member = BrokenMember(_S.STABLE).member
    owned = member.owned
    assert owned
    delivered = owned | {OTHER} if unsafe == "unowned" else owned
    monkeypatch.setattr(type(member), "deliverable", delivered)
    if unsafe == "open_callback":
        member.open_callback = call(ListenerCallback.REVOKED, *owned)
    elif unsafe == "no_epoch":
        member.epoch = JOIN_EPOCH
    elif unsafe == "expired_session":
        member.link.is_session_expired = True
    with pytest.raises(AssertionError, match="deliver"):
        deliverable_partitions_are_safe(member)
