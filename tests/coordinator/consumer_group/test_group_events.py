"""Group events of consumer groups, which operators read."""

from __future__ import annotations

from partage.coordinator.consumer_group.events import GroupConfig
from partage.coordinator.events import Leave, LeavingMember
from partage.coordinator.outcome import GroupEvent, GroupEventType, RebalanceCause
from partage.model.settings import ConsumerGroupSettings, GroupSettings, MigrationPolicy

from .harness import ConsumerHarness, joining, parts, topic
from .test_migration import join, migrating, start_classic


def pop_events(harness: ConsumerHarness) -> list[GroupEvent]:
    """Return the events since the last call."""
    events, harness.group_events = harness.group_events, []
    return events


def epochs(harness: ConsumerHarness) -> list[tuple[int, RebalanceCause | None, str | None]]:
    """Return the new epochs since the last call, with cause and member."""
    return [
        (event.generation, event.cause, event.member_id)
        for event in pop_events(harness)
        if event.event_type is GroupEventType.EPOCH_RAISED
    ]


def types(events: list[GroupEvent]) -> list[tuple[GroupEventType, str | None]]:
    """Return the types of events with their members."""
    return [(event.event_type, event.member_id) for event in events]


def pair() -> ConsumerHarness:
    """Return a stable group of A and B with halves of topic t, whose events were read."""
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    harness.beat("B")
    pop_events(harness)
    return harness


def test_events_have_identity_of_member() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i-1")
    harness.join("B", "t")
    harness.leave("B")
    about = [
        event
        for event in harness.group_events
        if event.event_type in (GroupEventType.JOINED, GroupEventType.LEFT)
    ]
    assert types(about) == [
        (GroupEventType.JOINED, "A"),
        (GroupEventType.JOINED, "B"),
        (GroupEventType.LEFT, "B"),
    ]
    members = [event.member for event in about if event.member is not None]
    assert [(each.client_id, each.client_host, each.instance_id) for each in members] == [
        ("client", "/host", "i-1"),
        ("client", "/host", None),
        ("client", "/host", None),
    ]


def test_rebalance_is_reported_from_epoch_to_last_member() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    pop_events(harness)
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=range(6)))
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    harness.beat("B")
    events = pop_events(harness)
    assert types(events) == [
        (GroupEventType.JOINED, "B"),
        (GroupEventType.EPOCH_RAISED, "B"),
        (GroupEventType.TARGET_ASSIGNED, "B"),
        (GroupEventType.RECONCILING, "B"),
        (GroupEventType.RECONCILING, "A"),
        (GroupEventType.RECONCILED, "A"),
        (GroupEventType.RECONCILED, "B"),
    ]
    assert all(event.is_consumer_group and event.generation == 3 for event in events[1:])
    target = events[2]
    assert (target.target_epoch, target.assignor, target.moved) == (3, "uniform", 3)
    steps = [event.progress[0] for event in events[3:]]
    assert [
        (each.member.member_id, each.epoch, each.state, each.assigned, each.revoking)
        for each in steps
    ] == [
        ("B", 3, "unreleased partitions", {}, {}),
        ("A", 2, "unrevoked partitions", {"t": (0, 1, 2)}, {"t": (3, 4, 5)}),
        ("A", 3, "stable", {"t": (0, 1, 2)}, {}),
        ("B", 3, "stable", {"t": (3, 4, 5)}, {}),
    ]


def test_heartbeat_that_changes_nothing_causes_no_event() -> None:
    harness = pair()
    harness.beat("A")
    harness.beat("B", owned=parts(t=(3, 4, 5)))
    assert pop_events(harness) == []


def test_epoch_has_its_cause_and_member() -> None:
    harness = pair()
    harness.beat("A", subscribed_topics=("t", "u"))
    assert epochs(harness) == [(4, RebalanceCause.SUBSCRIPTION_CHANGED, "A")]
    harness.beat("B", server_assignor="range")
    assert epochs(harness) == [(5, RebalanceCause.ASSIGNOR_CHANGED, "B")]
    harness.change_topics(topic("t", 7))
    harness.beat("B")
    assert epochs(harness) == [(6, RebalanceCause.TOPICS_CHANGED, None)]
    harness.leave("B")
    assert epochs(harness) == [(7, RebalanceCause.MEMBER_LEFT, "B")]
    harness.advance(60_000)
    assert epochs(harness) == [(8, RebalanceCause.SESSION_EXPIRED, "A")]


def test_changed_assignor_of_the_group_is_a_cause() -> None:
    harness = pair()
    changes: tuple[str | None, ...] = ("range", "uniform", "gone", None, "range", None)
    for assignor in changes:
        harness.configure(GroupConfig(assignor=assignor))
        harness.beat("A")
    assert epochs(harness) == [
        (epoch, RebalanceCause.ASSIGNOR_CHANGED, None) for epoch in range(4, 9)
    ]
    harness.configure(GroupConfig(assignor="uniform"))
    harness.change_topics(topic("t", 7))
    harness.beat("A")
    assert epochs(harness) == [(9, RebalanceCause.TOPICS_CHANGED, None)]


def test_upgraded_group_gets_a_target_by_its_configured_assignor() -> None:
    for assignor in (None, "range"):
        harness = migrating()
        harness.configure(GroupConfig(assignor=assignor))
        start_classic(harness, instance_id="i")
        harness.join("A", "t", instance_id="i")
        events = pop_events(harness)
        targets = [e for e in events if e.event_type is GroupEventType.TARGET_ASSIGNED]
        assert [each.assignor for each in targets] == ([] if assignor is None else [assignor])


def test_assignor_that_the_broker_lost_is_a_cause() -> None:
    harness = pair()
    harness.configure(GroupConfig(assignor="range"))
    harness.beat("A")
    harness.settings = GroupSettings(
        consumer=ConsumerGroupSettings(assignment_interval_ms=0, assignors=("uniform",))
    )
    harness.restart()
    harness.configure(GroupConfig(assignor="range"))
    pop_events(harness)
    harness.beat("A")
    assert epochs(harness) == [(5, RebalanceCause.ASSIGNOR_CHANGED, None)]


def test_members_removed_together_raise_one_epoch() -> None:
    harness = pair()
    leaving = (LeavingMember(member_id="A"), LeavingMember(member_id="B"))
    harness.handle(
        Leave(at_ms=harness.now_ms, reply_to=harness.ticket(), group_id="g", members=leaving)
    )
    assert types(pop_events(harness)) == [
        (GroupEventType.LEFT, "A"),
        (GroupEventType.LEFT, "B"),
        (GroupEventType.EPOCH_RAISED, None),
        (GroupEventType.EMPTIED, None),
    ]


def test_resolved_regex_is_a_cause() -> None:
    harness = ConsumerHarness(topics={"ra": topic("ra", 1)})
    harness.ask("A", 0, **{**joining(), "subscribed_regex": "r.*"})
    assert epochs(harness) == [(2, RebalanceCause.REGEX_CHANGED, None)]


def test_member_that_does_not_revoke_is_a_cause() -> None:
    harness = ConsumerHarness()
    harness.ask("A", 0, **{**joining("t"), "rebalance_timeout_ms": 5_000})
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=range(6)))
    pop_events(harness)
    harness.advance(5_000)
    assert epochs(harness) == [(4, RebalanceCause.NOT_REVOKED, "A")]


def test_expired_member_has_the_session_timeout_of_the_group() -> None:
    harness = pair()
    harness.advance(45_000)
    expired = [e for e in pop_events(harness) if e.event_type is GroupEventType.EXPIRED]
    assert [each.member and each.member.session_timeout_ms for each in expired] == [45_000] * 2


def test_failed_assignor_names_the_member_that_waits() -> None:
    harness = ConsumerHarness()
    harness.runs_actions = False
    harness.send("A", 0, **joining("t"))
    (action,) = harness.actions
    harness.actions.clear()
    harness.complete(action, None, "ValueError: no")
    failed = harness.group_events[-2]
    assert (failed.event_type, failed.member_id) == (GroupEventType.ASSIGNOR_FAILED, "A")
    assert failed.reason == "assignor uniform: ValueError: no"


def test_static_member_that_leaves_for_a_while_is_reported_once() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", instance_id="i")
    pop_events(harness)
    harness.ask("A", -2, instance_id="i")
    harness.ask("A", -2, instance_id="i")
    harness.join("C", "t", instance_id="i")
    events = pop_events(harness)
    assert types(events) == [
        (GroupEventType.LEFT_FOR_A_WHILE, "A"),
        (GroupEventType.FENCED, "A"),
        (GroupEventType.RECONCILED, "C"),
    ]
    assert [event.member and event.member.instance_id for event in events] == ["i"] * 3


def test_member_that_takes_an_instance_id_leaves_under_its_own() -> None:
    harness = pair()
    harness.join("S", "t", instance_id="i")
    harness.ask("S", -2, instance_id="i")
    pop_events(harness)
    harness.join("B", "t", instance_id="i")
    assert types(pop_events(harness))[:2] == [
        (GroupEventType.LEFT, "B"),
        (GroupEventType.EPOCH_RAISED, "B"),
    ]


def test_upgrade_and_downgrade_are_reported_with_members() -> None:
    harness = migrating()
    start_classic(harness)
    pop_events(harness)
    harness.join("A", "t")
    upgraded, *rest = pop_events(harness)
    assert (upgraded.event_type, upgraded.target_epoch) == (GroupEventType.UPGRADED, 1)
    assert [(each.member.member_id, each.assigned) for each in upgraded.progress] == [
        ("P", {"t": (0, 1, 2, 3, 4, 5)})
    ]
    assert [event.event_type for event in rest][:2] == [
        GroupEventType.JOINED,
        GroupEventType.EPOCH_RAISED,
    ]
    harness.leave("A")
    assert [event.event_type for event in pop_events(harness)] == [
        GroupEventType.LEFT,
        GroupEventType.DOWNGRADED,
        GroupEventType.REBALANCE_STARTED,
    ]


def test_empty_group_changes_its_protocol_without_removal() -> None:
    harness = ConsumerHarness(
        settings=ConsumerGroupSettings(
            assignment_interval_ms=0, migration_policy=MigrationPolicy.DISABLED
        )
    )
    harness.join("A", "t")
    harness.leave("A")
    pop_events(harness)
    join(harness, "C")
    assert pop_events(harness)[0].event_type is GroupEventType.DOWNGRADED
