"""Timeline of a group from events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.coordinator.outcome import GroupEventType, RebalanceCause
from partage.store.group_events import EventMember, GroupEventRecord, encode_event
from partage.web.event_timeline import BYTES_MAX, EVENTS_MAX, EventTimeline
from partage.web.timeline_chart import member_codes, timeline_chart
from pipelines.event_script import CONSUMERS, events

from .html_page import drawing

STORY = """
    0.0   joined a
    0.0   rebalance "member joined" a
    3.0   generation 1 a@0.0[]
    3.1   assigned 1 a[0-3]
    10.0  joined b
    10.0  rebalance "member joined" b
    12.0  generation 2 a@12.0[] b@10.0[]
    12.5  assigned 2 a[0,1] b[2,3]
"""


def told(*given: GroupEventRecord) -> EventTimeline:
    found = EventTimeline()
    for event in given:
        found.add(event, encode_event(event))
    return found


def test_timeline_has_owners_and_causes() -> None:
    timeline = told(*events(STORY)).timeline()
    assert timeline is not None
    assert timeline.is_from_events
    assert [
        (mark.cause, mark.member, mark.took_ms, mark.moved) for mark in timeline.rebalances
    ] == [
        ("member joined", "a", 3_100, 0),
        ("member joined", "b", 2_500, 2),
    ]
    still = sorted((span.partition, span.member) for span in timeline.spans if span.to_ms is None)
    assert still == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert [span.from_ms for span in timeline.spans] == sorted(
        span.from_ms for span in timeline.spans
    )


def test_epochs_order_events_of_brokers() -> None:
    """The last events of the first broker arrive after events of the second broker."""
    first = list(events(f"broker 1 epoch 4\n{STORY}"))
    second = list(
        events(
            """
            broker 2 epoch 5
            20.0  loaded 2 a[0,1] b[2,3]
            21.0  left b
            """
        )
    )
    in_time = told(*first, *second)
    late = told(*first[:4], *second, *first[4:])
    assert late.timeline() == in_time.timeline()


def test_timeline_without_events_is_none() -> None:
    assert EventTimeline().timeline() is None
    assert told(*events("1.0 refused a 3")).timeline() is None


PARTITIONS = st.dictionaries(st.sampled_from("tu"), st.lists(st.integers(0, 3), max_size=3))
WHO = st.sampled_from("abc")
TIMES = st.integers(0, 100_000)
MEMBERS = st.builds(
    EventMember,
    member_id=WHO,
    instance_id=st.none() | WHO,
    joined_ms=st.none() | TIMES,
    owned=st.none() | PARTITIONS,
    assigned_ms=st.none() | TIMES,
    assigned=st.none() | PARTITIONS,
    partition_count=st.none() | st.integers(0, 9),
    member_epoch=st.none() | st.integers(-2, 5),
    state=st.sampled_from(["", "stable", "unrevoked partitions"]),
    revoking=st.none() | PARTITIONS,
)
EVENTS = st.builds(
    GroupEventRecord,
    version=st.just(1),
    event=st.sampled_from([*map(str, GroupEventType), "lag", "dropped", "unknown kind"]),
    at_ms=TIMES,
    group_id=st.just("g"),
    generation=st.integers(-1, 5),
    cause=st.none() | st.sampled_from([*map(str, RebalanceCause), "<b>"]),
    member_id=st.none() | WHO,
    instance_id=st.none() | WHO,
    session_timeout_ms=st.none() | st.integers(0, 10_000),
    leader=st.none() | WHO,
    members=st.none() | st.lists(MEMBERS, max_size=3),
    part=st.integers(0, 3),
    parts=st.integers(0, 3),
    lag=st.none() | st.just({"t": {0: 5}}),
    epoch=st.none() | st.integers(0, 3),
    group_type=st.none() | st.just("consumer"),
    target_epoch=st.none() | st.integers(0, 5),
)


@given(st.lists(EVENTS, max_size=20))
def test_arbitrary_events_are_accepted(given_events: list[GroupEventRecord]) -> None:
    """Any client can write to the topic."""
    timeline = told(*given_events).timeline()
    if timeline is not None:
        assert {span.member for span in timeline.spans} <= timeline.members.keys()
        codes = member_codes([span.member for span in timeline.spans])
        drawing(timeline_chart(timeline, codes, 0, 100_000))


def test_lag_parts_are_summed() -> None:
    found = EventTimeline()
    parts = [
        GroupEventRecord(
            version=1,
            event="lag",
            at_ms=5,
            group_id="g",
            generation=1,
            lag={"t": {n: 10}},
            part=n,
            parts=2,
        )
        for n in (1, 2)
    ]
    assert [found.add(part, b"") for part in parts] == [None, 20]
    assert found.bytes == 0


def test_state_since_last_change() -> None:
    found = told(*events(STORY))
    assert found.state_since_ms("Stable") == 12_500
    assert found.state_since_ms("Empty") is None
    assert found.generation == 2


def test_state_of_consumer_group_since_last_change() -> None:
    *before, last = events(CONSUMERS)
    found = told(*before)
    assert found.state_since_ms("Reconciling") == 10_200
    assert found.state_since_ms("Stable") is None
    found = told(*before, last)
    assert found.state_since_ms("Stable") == 13_500
    raised = told(*events(CONSUMERS + '20.0 epoch 4 "subscribed topics changed"'))
    assert raised.state_since_ms("Assigning") == 20_000


def test_timeline_of_consumer_group_has_owners_and_rebalances() -> None:
    timeline = told(*events(CONSUMERS)).timeline()
    assert timeline is not None
    assert [(mark.cause, mark.outcome, mark.took_ms) for mark in timeline.rebalances] == [
        ("member joined", "reconciled", 100),
        ("member joined", "reconciled", 3_500),
    ]
    assert len(timeline.spans) == 6


def test_event_timeline_is_bounded() -> None:
    found = EventTimeline()
    large = GroupEventRecord(
        version=1, event="joined", at_ms=1, group_id="g", generation=1, member_id="m" * 10_000
    )
    for _ in range(2 * EVENTS_MAX):
        found.add(large, encode_event(large))
        assert found.bytes <= BYTES_MAX
    before = found.bytes
    found.drop_older_half()
    assert found.bytes <= before / 2 + 20_000
    small = list(events(STORY))
    for _ in range(EVENTS_MAX):
        for event in small:
            found.add(event, encode_event(event))
    timeline = found.timeline()
    assert timeline is not None
    assert len(timeline.rebalances) <= EVENTS_MAX / 4 + 1
