"""Target assignments: when they are computed, by which assignor, and what a failure does."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.coordinator.consumer_group.actions import ComputeTarget, ResolveRegexes
from partage.coordinator.consumer_group.events import (
    GroupConfig,
    RegexesResolved,
    TopicImage,
)
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.events import DeleteGroup
from partage.coordinator.outcome import GroupEventType
from partage.coordinator.replies import DeleteGroupReply
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings

from .harness import ConsumerHarness, joining, parts, spread, topic


def waiting_harness(
    *,
    topics: Mapping[str, TopicImage] | None = None,
    settings: ConsumerGroupSettings | None = None,
) -> ConsumerHarness:
    """Return a harness whose actions the test completes."""
    harness = ConsumerHarness(topics=topics, settings=settings)
    harness.runs_actions = False
    return harness


def only_action(harness: ConsumerHarness) -> ComputeTarget:
    """Return the only pending action."""
    (action,) = harness.actions
    harness.actions.clear()
    assert isinstance(action, ComputeTarget)
    return action


def test_heartbeat_that_needs_a_target_waits_for_it() -> None:
    harness = waiting_harness()
    ticket = harness.send("A", 0, **joining("t"))
    assert ticket not in harness.replies
    action = only_action(harness)
    assert (action.group_epoch, action.assignor, action.is_homogeneous) == (2, "uniform", True)
    assert list(action.members) == ["A"]
    assert [each.name for each in action.topics.values()] == ["t"]
    harness.complete(action, spread(action))
    reply = harness.replies[ticket]
    assert isinstance(reply, ConsumerGroupHeartbeatReply)
    assert (reply.member_epoch, reply.assignment) == (2, parts(t=range(6)))


def test_topics_of_a_computation_are_in_the_order_of_their_ids() -> None:
    """Two brokers with different hash seeds compute and store the same bytes."""
    names = [f"t{number}" for number in range(9)]
    harness = waiting_harness(topics={name: topic(name, 1) for name in reversed(names)})
    harness.send("A", 0, **joining(*names))
    assert [each.name for each in only_action(harness).topics.values()] == names


def test_members_that_join_meanwhile_get_the_next_target() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    action = only_action(harness)
    joined = harness.join("B", "t")
    assert (joined.member_epoch, joined.assignment) == (1, {})
    assert not harness.actions
    harness.complete(action, spread(action))
    assert harness.epochs == ("Assigning", 3, 2)
    ticket = harness.send("B", 1)
    harness.complete(following := only_action(harness), spread(following))
    assert harness.replies[ticket].member_epoch == 3


def test_failed_assignor_leaves_the_previous_target_in_force() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    harness.complete(first := only_action(harness), spread(first))
    ticket = harness.send("B", 0, **joining("t"))
    harness.complete(only_action(harness), None, "ValueError: no")
    reply = harness.replies[ticket]
    assert isinstance(reply, ConsumerGroupHeartbeatReply)
    assert (reply.error, reply.member_epoch, reply.assignment) == (ErrorCode.NONE, 2, {})
    assert harness.group.members["A"].target == parts(t=range(6))
    (failed,) = (
        event
        for event in harness.group_events
        if event.event_type is GroupEventType.ASSIGNOR_FAILED
    )
    assert failed.reason == "assignor uniform: ValueError: no"
    harness.beat("B")
    assert not harness.actions
    harness.advance(1_000)
    harness.send("B", 2)
    assert only_action(harness).group_epoch == 3


def test_member_that_leaves_during_the_computation_gets_its_reply() -> None:
    harness = waiting_harness()
    ticket = harness.send("A", 0, **joining("t"))
    harness.leave("A")
    assert harness.replies[ticket].error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.complete(action := only_action(harness), spread(action))
    assert harness.epochs == ("Empty", 3, 3)


def test_target_of_a_removed_group_of_the_same_name_is_ignored() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    stale = only_action(harness)
    harness.leave("A")
    ticket = harness.ticket()
    harness.handle(DeleteGroup(at_ms=harness.now_ms, reply_to=ticket, group_id="g"))
    assert harness.replies[ticket] == DeleteGroupReply(error=ErrorCode.NONE)
    harness.complete(stale, spread(stale))
    assert "g" not in harness.shard.groups
    waiting = harness.send("B", 0, **joining("t"))
    harness.complete(stale, spread(stale))
    assert waiting not in harness.replies
    harness.complete(action := only_action(harness), spread(action))
    assert harness.replies[waiting].assignment == parts(t=range(6))


def test_repeated_join_during_the_computation_keeps_one_owner_per_partition() -> None:
    """The first join reports that it owns nothing, but the repeated one got partitions since."""
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    harness.complete(first := only_action(harness), spread(first))
    harness.send("B", 0, **joining("t"))
    harness.complete(second := only_action(harness), spread(second))
    harness.beat("A")
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    harness.send("C", 0, **joining("t"))
    harness.leave("C")
    halves = {"A": parts(t=(0, 1, 2)), "B": parts(t=(3, 4, 5))}
    harness.complete(only_action(harness), halves)
    waiting = harness.send("B", 0, **joining("t"))
    action = only_action(harness)
    again = harness.join("B", "t")
    assert again.assignment == parts(t=(3, 4, 5))
    harness.complete(action, {"A": parts(t=range(6)), "B": {}})
    assert harness.replies[waiting].assignment == parts(t=(3, 4, 5))
    assert harness.beat("B").assignment == {}
    assert harness.group.members["B"].must_revoke
    assert harness.beat("A").assignment is None


def test_repeated_heartbeat_outdates_one_that_waits() -> None:
    """The repeated heartbeat shows partitions that the first one does not report as owned."""
    harness = waiting_harness()
    harness.has_full_targets = False
    harness.send("B", 0, **joining("t"))
    harness.complete(first := only_action(harness), spread(first))
    waiting = harness.send("B", 2, **joining("t", "u"))
    action = only_action(harness)
    again = harness.ask("B", 2, **joining("t", "u"))
    assert again.assignment == parts(t=range(6))
    harness.complete(action, {"B": {}})
    assert harness.replies[waiting].assignment == parts(t=range(6))
    assert harness.beat("B").assignment == {}
    assert harness.group.members["B"].must_revoke


def test_member_that_reconnects_learns_what_it_must_give_up() -> None:
    """The connection of the heartbeat that waits is lost, so its response is not read."""
    harness = waiting_harness(topics={"t": topic("t", 2), "u": topic("u", 2)})
    harness.send("A", 0, **joining("t"))
    harness.complete(first := only_action(harness), spread(first))
    lost = harness.send("A", 2, subscribed_topics=["u"])
    action = only_action(harness)
    again = harness.ask("A", 2, **joining("u") | {"owned": parts(t=(0, 1))})
    assert again.assignment == {}
    harness.complete(action, spread(action))
    assert harness.replies[lost].member_epoch == 2
    told = harness.beat("A", owned={})
    assert (told.member_epoch, told.assignment) == (3, parts(u=(0, 1)))


def test_target_that_takes_partitions_away_is_told_after_a_reconnection() -> None:
    harness = waiting_harness()
    harness.has_full_targets = False
    harness.send("A", 0, **joining("t"))
    harness.complete(first := only_action(harness), spread(first))
    lost = harness.send("A", 2, subscribed_topics=["t", "u"])
    action = only_action(harness)
    again = harness.ask("A", 2, **joining("t", "u") | {"owned": parts(t=range(6))})
    assert again.assignment == parts(t=range(6))
    harness.complete(action, {"A": parts(t=(0,))})
    assert harness.replies[lost].assignment is None
    assert not harness.group.members["A"].must_revoke
    assert harness.beat("A").assignment == parts(t=(0,))
    assert harness.group.members["A"].must_revoke


def test_heartbeat_without_news_keeps_the_report_of_one_that_waits() -> None:
    """A delayed copy of an earlier heartbeat shows its member no partitions."""
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    harness.complete(first := only_action(harness), spread(first))
    harness.send("B", 0, **joining("t"))
    harness.complete(second := only_action(harness), spread(second))
    kept = harness.ask("A", 2).assignment
    assert kept is not None
    assert harness.group.members["A"].must_revoke
    harness.change_topics(topic("t", 8))
    acknowledged = harness.send("A", 2, owned=kept)
    action = only_action(harness)
    assert harness.ask("A", 2).assignment is None
    harness.complete(action, spread(action))
    assert harness.replies[acknowledged].member_epoch == 4
    assert not harness.group.members["A"].must_revoke


def test_exchange_of_as_many_partitions_is_told() -> None:
    harness = waiting_harness()
    harness.has_full_targets = False
    harness.send("A", 0, **joining("t"))
    harness.complete(only_action(harness), {"A": parts(t=(0, 1))})
    ticket = harness.send("A", 2, subscribed_topics=["t", "u"], owned=parts(t=(0,)))
    harness.complete(only_action(harness), {"A": parts(t=(0, 2))})
    assert harness.replies[ticket].assignment == parts(t=(0, 2))


def test_heartbeat_with_one_field_keeps_the_others() -> None:
    harness = ConsumerHarness(topics={"t": topic("t", 1), "u": topic("u", 1)})
    fields = {"rebalance_timeout_ms": 7_000, "rack_id": "r", "server_assignor": "range"}
    harness.ask("A", 0, **(joining("t") | fields))
    harness.beat("A", subscribed_topics=["u"])
    record = harness.group.members["A"].subscription
    assert record.subscribed_topics == ("u",)
    assert {name: getattr(record, name) for name in fields} == fields


def test_targets_are_computed_at_most_once_per_interval() -> None:
    harness = ConsumerHarness(settings=ConsumerGroupSettings())
    harness.join("A", "t")
    joined = harness.join("B", "t")
    assert (joined.member_epoch, joined.assignment) == (2, {})
    assert harness.epochs == ("Assigning", 3, 2)
    harness.advance(999)
    harness.beat("A")
    assert harness.epochs == ("Assigning", 3, 2)
    harness.advance(1)
    harness.beat("A")
    assert harness.epochs == ("Reconciling", 3, 3)


def test_config_of_the_group_sets_session_interval_and_heartbeats() -> None:
    settings = ConsumerGroupSettings(session_timeout_min_ms=100, heartbeat_interval_min_ms=10)
    harness = ConsumerHarness(settings=settings)
    harness.configure(
        GroupConfig(session_timeout_ms=200, heartbeat_interval_ms=20, assignment_interval_ms=0)
    )
    assert harness.join("A", "t").heartbeat_interval_ms == 20
    harness.join("B", "t")
    assert harness.epochs == ("Reconciling", 3, 3)
    harness.advance(200)
    assert harness.group.is_empty


def test_configs_outside_the_limits_of_the_broker_are_limited() -> None:
    harness = ConsumerHarness()
    harness.configure(GroupConfig(session_timeout_ms=1, heartbeat_interval_ms=99_999))
    assert harness.join("A", "t").heartbeat_interval_ms == 15_000
    harness.advance(44_999)
    assert not harness.group.is_empty


def test_assignment_interval_is_limited_by_the_broker() -> None:
    settings = ConsumerGroupSettings(assignment_interval_ms=0, assignment_interval_max_ms=50)
    harness = ConsumerHarness(settings=settings)
    harness.configure(GroupConfig(assignment_interval_ms=99_999))
    harness.join("A", "t")
    harness.join("B", "t")
    assert harness.epochs == ("Assigning", 3, 2)
    harness.advance(50)
    harness.beat("A")
    assert harness.epochs == ("Reconciling", 3, 3)


def test_assignor_with_the_most_votes_computes_the_target() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", server_assignor="range")
    assert harness.describe().assignor == "range"
    harness.join("B", "t", server_assignor="uniform")
    assert harness.describe().assignor == "uniform"
    epoch = harness.group.epoch
    harness.beat("A", server_assignor="uniform")
    assert harness.group.epoch == epoch
    harness.beat("A", server_assignor="range")
    harness.beat("B", server_assignor="range")
    assert harness.group.epoch == epoch + 1
    assert harness.describe().assignor == "range"


def test_assignor_in_the_config_of_the_group_wins_over_votes() -> None:
    harness = waiting_harness()
    harness.configure(GroupConfig(assignor="range"))
    harness.send("A", 0, **joining("t"), server_assignor="uniform")
    action = only_action(harness)
    assert action.assignor == "range"
    assert harness.describe().assignor == "range"
    harness.complete(action, spread(action))
    epoch = harness.group.epoch
    harness.beat("A", server_assignor="range")
    harness.beat("A", server_assignor="uniform")
    assert harness.group.epoch == epoch  # votes change nothing meanwhile


def test_changed_assignor_of_the_group_takes_effect_with_the_next_heartbeat() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    harness.run_actions()
    assert harness.epochs == ("Stable", 2, 2)
    for config, assignor in (
        (GroupConfig(assignor="range"), "range"),
        (GroupConfig(assignor="uniform"), "uniform"),
        (GroupConfig(assignor="range", heartbeat_interval_ms=7_000), "range"),
        (GroupConfig(), "uniform"),  # deleted: the votes decide
    ):
        harness.configure(config)
        assert not harness.actions
        epoch = harness.group.epoch
        harness.send("A", epoch)
        action = only_action(harness)
        assert (action.assignor, action.group_epoch) == (assignor, epoch + 1)
        harness.complete(action, spread(action))
        harness.beat("A")
        before = harness.short_path_count
        harness.beat("A")
        assert harness.short_path_count == before + 1
        assert (harness.epochs, harness.actions) == (("Stable", epoch + 1, epoch + 1), [])


def test_unchanged_assignor_of_the_group_causes_no_target() -> None:
    harness = waiting_harness()
    harness.configure(GroupConfig(assignor="range"))
    harness.send("A", 0, **joining("t"))
    harness.run_actions()
    harness.configure(GroupConfig(assignor="range", session_timeout_ms=50_000))
    harness.beat("A")
    assert (harness.actions, harness.epochs) == ([], ("Stable", 2, 2))


def test_assignor_of_the_group_that_the_broker_does_not_have_is_ignored() -> None:
    harness = ConsumerHarness()
    harness.configure(GroupConfig(assignor="gone"))
    harness.join("A", "t", server_assignor="range")
    assert harness.describe().assignor == "range"
    harness.configure(GroupConfig(assignor="missing"))
    harness.beat("A")
    assert harness.epochs == ("Stable", 2, 2)


def test_assignor_that_changes_while_its_coordinator_moves_takes_effect() -> None:
    harness = ConsumerHarness()
    harness.configure(GroupConfig(assignor="range"))
    harness.join("A", "t")
    harness.restart()
    harness.configure(GroupConfig(assignor="range"))
    harness.beat("A")
    assert harness.epochs == ("Stable", 2, 2)
    harness.restart()
    harness.configure(GroupConfig(assignor="uniform"))
    harness.beat("A")
    assert harness.epochs == ("Stable", 3, 3)


def test_assignor_that_changes_during_a_computation_computes_the_next_target() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    old = only_action(harness)
    harness.configure(GroupConfig(assignor="range"))
    harness.complete(old, spread(old))
    assert harness.epochs == ("Assigning", 3, 2)
    harness.send("A", 2)
    new = only_action(harness)
    assert (old.assignor, new.assignor) == ("uniform", "range")


def test_changed_assignor_of_the_group_does_not_wait_after_a_failure() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    harness.complete(only_action(harness), None, "ValueError: no")
    harness.beat("A")
    assert not harness.actions
    harness.configure(GroupConfig(assignor="range"))
    harness.send("A", 1)
    assert only_action(harness).assignor == "range"


def test_new_partitions_and_topics_raise_the_epoch_at_the_next_heartbeat() -> None:
    harness = ConsumerHarness(topics={"t": topic("t", 2)})
    harness.join("A", "t", "u")
    harness.change_topics(topic("t", 2), topic("v", 9))
    assert harness.beat("A").member_epoch == 2
    harness.change_topics(topic("t", 2), topic("u", 1))
    reply = harness.beat("A")
    assert (reply.member_epoch, reply.assignment) == (3, parts(t=(0, 1), u=(0,)))
    harness.change_topics(topic("t", 3), topic("u", 1))
    assert harness.beat("A").assignment == parts(t=(0, 1, 2), u=(0,))
    harness.change_topics(topic("t", 3))
    reply = harness.beat("A")
    assert (reply.member_epoch, reply.assignment) == (4, parts(t=(0, 1, 2)))
    assert harness.beat("A", owned=parts(t=(0, 1, 2))).member_epoch == 5


def test_topic_that_was_created_again_is_another_topic() -> None:
    harness = ConsumerHarness(topics={"t": topic("t", 1)})
    harness.join("A", "t")
    harness.change_topics(topic("t", 1, version=1))
    assert harness.beat("A").assignment == {}
    reply = harness.beat("A", owned={})
    assert reply.assignment == {topic("t", 1, version=1).topic_id: (0,)}


def test_racks_of_replicas_raise_the_epoch() -> None:
    harness = ConsumerHarness(topics={"t": topic("t", 1)})
    harness.join("A", "t")
    racks = (frozenset({"a", "b"}),)
    harness.change_topics(msgspec.structs.replace(topic("t", 1), racks=racks))
    assert harness.beat("A").member_epoch == 3


def test_regex_gets_topics_with_the_heartbeat_after_its_resolution() -> None:
    topics = {"ra": topic("ra", 2), "rb": topic("rb", 1), "t": topic("t", 1)}
    harness = ConsumerHarness(topics=topics)
    joined = harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    assert (joined.member_epoch, joined.assignment) == (1, {})
    assert harness.epochs == ("Assigning", 2, 1)
    reply = harness.beat("A")
    assert (reply.member_epoch, reply.assignment) == (2, parts(ra=(0, 1), rb=(0,)))
    emptied = harness.beat("A", subscribed_regex="")
    assert (emptied.member_epoch, emptied.assignment) == (2, {})
    assert not harness.group.regexes
    assert harness.epochs == ("Reconciling", 3, 3)


def test_regex_is_resolved_again_after_topics_changed() -> None:
    harness = ConsumerHarness(topics={"ra": topic("ra", 1)})
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    harness.beat("A")
    harness.change_topics(topic("ra", 1), topic("rb", 1))
    harness.beat("A")
    assert harness.epochs == ("Stable", 2, 2)
    harness.advance(10_000)
    harness.beat("A")
    assert harness.beat("A").assignment == parts(ra=(0,), rb=(0,))


def test_topic_that_is_created_during_a_match_is_matched_later() -> None:
    harness = waiting_harness(topics={"ra": topic("ra", 1)})
    harness.send("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    version = harness.version
    (first,) = [each for each in harness.actions if isinstance(each, ResolveRegexes)]
    harness.actions.clear()
    harness.change_topics(topic("ra", 1), topic("rb", 1))
    harness.handle(
        RegexesResolved(
            at_ms=harness.now_ms,
            group_id="g",
            sequence=first.sequence,
            topics={"r.*": frozenset({"ra"})},
            version=version,
        )
    )
    harness.advance(10_000)
    harness.send("A", 1)
    assert any(isinstance(each, ResolveRegexes) for each in harness.actions)


def test_regex_is_resolved_again_after_the_refresh_interval() -> None:
    harness = ConsumerHarness(topics={"ra": topic("ra", 1)})
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    harness.beat("A")
    harness.runs_actions = False
    harness.now_ms += harness.settings.consumer.regex_refresh_interval_ms - 1
    harness.beat("A")
    assert not harness.actions
    harness.now_ms += 1
    for _ in range(2):  # a resolution under way is not repeated
        harness.beat("A")
        (action,) = harness.actions
        assert isinstance(action, ResolveRegexes)
        assert action.regexes == {"r.*"}


def test_known_regex_of_a_second_member_counts_at_once() -> None:
    harness = ConsumerHarness(topics={"ra": topic("ra", 2)})
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    harness.beat("A")
    harness.ask("B", 0, **{**joining(), "subscribed_regex": "r.*"})
    assert harness.epochs == ("Reconciling", 3, 3)
    assert harness.group.members["B"].target == parts(ra=(1,))


def test_restart_continues_a_reconciliation() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    harness.beat("A")
    harness.restart()
    assert harness.epochs == ("Reconciling", 3, 3)
    assert harness.beat("A", owned=parts(t=(0, 1, 2))).member_epoch == 3
    assert harness.beat("B").assignment == parts(t=(3, 4, 5))
    harness.restart()
    assert harness.epochs == ("Stable", 3, 3)
    assert harness.beat("A").member_epoch == 3
    assert harness.epochs == ("Stable", 3, 3)


def test_restart_during_a_computation_repeats_it() -> None:
    harness = waiting_harness()
    harness.send("A", 0, **joining("t"))
    stale = only_action(harness)
    harness.restart()
    harness.complete(stale, spread(stale))
    assert harness.epochs == ("Assigning", 2, 1)
    ticket = harness.send("A", 0, **joining("t"))
    harness.complete(action := only_action(harness), spread(action))
    assert harness.replies[ticket].assignment == parts(t=range(6))
