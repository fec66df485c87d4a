"""Cases that scenarios cannot express: crossing responses, and a subscription by pattern."""

from __future__ import annotations

from partage.member import events, outcome
from partage.member.timers import MemberTimer
from partage.model.topic_partition import TopicPartition

from .scenario_runner import ScenarioRunner

JOINED = ("subscribe t", "found", "join", "sync t0", "told")


class ManualRunner(ScenarioRunner):
    """A runner whose embedded protocol answers only on request."""

    def __init__(self) -> None:
        self.asked: list[outcome.Action] = []
        self.is_slow = False
        super().__init__()

    def embedded(self, action: outcome.Action) -> None:
        self.asked.append(action)
        if not self.is_slow:
            super().embedded(action)

    def asked_for(self, kind: type[outcome.Action]) -> list[outcome.Action]:
        return [action for action in self.asked if isinstance(action, kind)]


def joined() -> ManualRunner:
    story = ManualRunner()
    for command in ("member", *JOINED):
        story.play(command)
    story.asked.clear()
    story.is_slow = True
    return story


def test_encode_subscription_is_requested_once() -> None:
    story = joined()
    story.play("rejoin for fun")
    story.play("tick 3000")
    story.play("beat REBALANCE_IN_PROGRESS")
    assert len(story.asked_for(outcome.EncodeSubscription)) == 1


def test_subscription_changed_while_encoding_causes_rejoin() -> None:
    story = joined()
    story.play("rejoin for fun")
    (asked,) = story.asked_for(outcome.EncodeSubscription)
    story.play("subscribe t u")
    story.is_slow = False
    assert isinstance(asked, outcome.EncodeSubscription)
    story.embedded(asked)
    assert story.core.membership.is_rejoin_pending


def test_results_of_lost_generation_are_ignored() -> None:
    story = joined()
    story.play("rejoin for fun")
    story.play("tick 3000")
    story.play("beat UNKNOWN_MEMBER_ID")
    story.play("told")
    old, new = story.asked_for(outcome.EncodeSubscription)
    story.is_slow = False
    story.embedded(old)
    assert story.core.membership.state == "Preparing"
    story.embedded(new)
    assert story.core.membership.state == "Joining"


def test_assignment_decoded_too_late_is_ignored() -> None:
    story = joined()
    story.is_slow = False
    story.play("rejoin for fun")
    story.play("join generation=2")
    story.is_slow = True
    story.play("sync t0 t1")
    (asked,) = story.asked_for(outcome.DecodeAssignment)
    story.play("tick 3000")
    story.play("beat UNKNOWN_MEMBER_ID")
    story.is_slow = False
    story.embedded(asked)
    assert story.core.owned == {("t", 0)}, "and the listener is being told that it is lost"
    assert not story.core.deliverable
    story.play("told")
    assert not story.core.owned


def test_response_to_earlier_heartbeat_is_ignored() -> None:
    story = joined()
    story.play("tick 3000")
    earlier = story.serials[outcome.SendHeartbeat]
    story.play("lost")
    story.play("tick 100")
    story.play("found")
    assert story.serials[outcome.SendHeartbeat] != earlier
    late = events.HeartbeatResponseReceived(
        at_ms=story.now_ms, serial=earlier, error=events.ErrorCode.UNKNOWN_MEMBER_ID
    )
    story.handle(late)
    assert story.core.deliverable == {("t", 0)}


def test_rejoin_restores_expired_session() -> None:
    story = joined()
    story.is_slow = False
    story.play("stall 20000")
    story.play("rejoin after a long sleep")
    assert not story.core.deliverable
    story.play("join generation=2")
    assert story.core.deliverable == {("t", 0)}


def test_assigned_pattern_topic_may_be_unknown_yet() -> None:
    story = joined()
    story.is_slow = False
    story.play("rejoin for fun")
    story.play("join generation=2")
    story.play("sync t0 u0")
    story.play("told")
    both: set[TopicPartition] = {("t", 0), ("u", 0)}
    story.play("rejoin for more fun")
    assert story.core.deliverable == both, "nothing is revoked that the leader rightly gave"


def test_callback_completes_once() -> None:
    story = joined()
    late = events.CallbackCompleted(at_ms=0, serial=story.serials[outcome.CallListener])
    story.handle(late)
    story.play("leave")
    story.handle(late)
    assert story.core.open_callback is not None


def test_no_timer_remains_after_leave() -> None:
    story = joined()
    story.play("leave")
    story.play("told")
    assert set(story.timers.armed) == {MemberTimer.REQUEST}
    story.play("goodbye")
    assert not story.timers.armed
