"""Group events as JSON records, and their decoding."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.coordinator.outcome import (
    GroupEvent,
    GroupEventType,
    MemberProgress,
    RebalanceCause,
)
from partage.coordinator.records import GroupRecord, MemberRecord
from partage.store import group_events
from partage.store.group_events import (
    VERSION,
    EventMember,
    GroupEventRecord,
    LagSample,
    decode_event,
    dropped_record,
    encode_event,
    event_records,
    lag_records,
    order_by_epoch,
)
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from partage.wire.primitives import MalformedError


def saved_member(name: str, subscription: bytes = b"", assignment: bytes = b"") -> MemberRecord:
    return MemberRecord(
        member_id=name,
        instance_id=f"{name}-instance",
        client_id="c",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        subscription=subscription,
        assignment=assignment,
    )


def generation(*members: MemberRecord, protocol_type: str = "consumer") -> GroupRecord:
    return GroupRecord(
        group_id="g",
        protocol_type=protocol_type,
        generation=7,
        protocol="range",
        leader="a",
        members=members,
    )


def notice(happening: GroupEventType, **fields: Any) -> GroupEvent:
    return GroupEvent(at_ms=1_000, group_id="g", event_type=happening, generation=7, **fields)


def told(happening: GroupEventType, **fields: Any) -> list[GroupEventRecord]:
    """Return the records as a reader decodes them."""
    events = event_records(notice(happening, **fields))
    return [decode_event(encode_event(event)) for event in events if event is not None]


def partitions(topic: str, *numbers: int) -> list[ConsumerTopicPartitions]:
    return [ConsumerTopicPartitions(topic=topic, partitions=list(numbers))]


def owning(*numbers: int) -> bytes:
    owned = partitions("t", *numbers)
    return encode_subscription(Subscription(topics=["t"], owned_partitions=owned))


def assigned(*numbers: int) -> bytes:
    return encode_assignment(Assignment(assigned_partitions=partitions("t", *numbers)))


def test_member_removed_record() -> None:
    (event,) = told(
        GroupEventType.EXPIRED,
        member_id="a",
        reason="gone",
        cause=RebalanceCause.SESSION_EXPIRED,
        member=saved_member("a"),
    )
    assert event == GroupEventRecord(
        version=VERSION,
        event="expired",
        at_ms=1_000,
        group_id="g",
        generation=7,
        cause="session expired",
        reason="gone",
        member_id="a",
        client_id="c",
        client_host="/10.0.0.1",
        instance_id="a-instance",
        session_timeout_ms=10_000,
    )


def test_generation_started_has_join_times_and_owned() -> None:
    saved = generation(saved_member("a", owning(3, 1)), saved_member("b", owning()))
    (event,) = told(GroupEventType.GENERATION_STARTED, group_record=saved, times_ms=(900, None))
    assert (event.protocol_type, event.protocol, event.leader) == ("consumer", "range", "a")
    common = {"client_id": "c", "client_host": "/10.0.0.1"}
    assert event.members == [
        EventMember(
            member_id="a", instance_id="a-instance", joined_ms=900, owned={"t": [1, 3]}, **common
        ),
        EventMember(member_id="b", instance_id="b-instance", joined_ms=None, owned={}, **common),
    ]


def test_assigned_has_partitions_and_times() -> None:
    saved = generation(saved_member("a", b"", assigned(2, 0)), saved_member("b"))
    (event,) = told(GroupEventType.ASSIGNED, group_record=saved, times_ms=(950, None))
    members = event.members or []
    assert [(m.assigned_ms, m.assigned, m.owned) for m in members] == [
        (950, {"t": [0, 2]}, None),
        (None, {}, None),
    ]


@pytest.mark.parametrize(
    ("content", "protocol_type"), [(b"\x00", "consumer"), (assigned(1), "connect")]
)
def test_invalid_assignment_is_omitted(content: bytes, protocol_type: str) -> None:
    saved = generation(saved_member("a", b"", content), protocol_type=protocol_type)
    (event,) = told(GroupEventType.ASSIGNED, group_record=saved, times_ms=(950,))
    assert [member.assigned for member in event.members or []] == [None]


def progress(name: str, *numbers: int, revoking: tuple[int, ...] = ()) -> MemberProgress:
    return MemberProgress(
        member=saved_member(name),
        epoch=7,
        state="unrevoked partitions" if revoking else "stable",
        assigned={"t": numbers} if numbers else {},
        revoking={"t": revoking} if revoking else {},
    )


def test_consumer_group_record_has_epochs_and_partitions() -> None:
    (event,) = told(
        GroupEventType.RECONCILING,
        is_consumer_group=True,
        target_epoch=6,
        progress=(progress("a", 2, 0, revoking=(1,)),),
    )
    assert (event.group_type, event.generation, event.target_epoch) == ("consumer", 7, 6)
    assert event.members == [
        EventMember(
            member_id="a",
            client_id="c",
            client_host="/10.0.0.1",
            instance_id="a-instance",
            assigned={"t": [0, 2]},
            member_epoch=7,
            state="unrevoked partitions",
            revoking={"t": [1]},
        )
    ]


def test_target_record_has_assignor_and_moved_partitions() -> None:
    fields = {"is_consumer_group": True, "target_epoch": 7, "assignor": "uniform", "moved": 3}
    (event,) = told(GroupEventType.TARGET_ASSIGNED, **fields)
    assert (event.protocol, event.moved, event.members) == ("uniform", 3, None)


def test_loaded_consumer_group_is_split_into_records() -> None:
    members = tuple(progress(f"m{n}", n) for n in range(5_000))
    steps = list(
        event_records(notice(GroupEventType.LOADED, is_consumer_group=True, progress=members))
    )
    parts = [event for event in steps if event is not None]
    assert None in steps, "the shell can do other work"
    assert [(each.part, each.parts) for each in parts] == [
        (n, len(parts)) for n in range(1, len(parts) + 1)
    ]
    assert len(parts) > 1
    assert max(len(encode_event(each)) for each in parts) < 512 * 1024
    names = [member.member_id for each in parts for member in each.members or []]
    assert names == [f"m{n}" for n in range(5_000)]


def test_member_with_too_many_partitions_has_their_number() -> None:
    (event,) = told(
        GroupEventType.RECONCILED,
        is_consumer_group=True,
        progress=(progress("a", *range(20_001)),),
    )
    (member,) = event.members or []
    assert (member.partition_count, member.assigned) == (20_001, None)


def test_large_generation_split_into_records() -> None:
    count = 5_000
    saved = generation(*(saved_member(f"m{n}", b"", assigned(n)) for n in range(count)))
    steps = list(
        event_records(notice(GroupEventType.ASSIGNED, group_record=saved, times_ms=(1,) * count))
    )
    events = [event for event in steps if event is not None]
    assert [(event.part, event.parts) for event in events] == [
        (n, len(events)) for n in range(1, len(events) + 1)
    ]
    assert len(events) > 1
    assert max(len(encode_event(event)) for event in events) < 512 * 1024
    names = [member.member_id for event in events for member in event.members or []]
    assert names == [f"m{n}" for n in range(count)]
    assert steps.count(None) >= count // 100, "a shell has to have its turns"


def test_large_members_yield_between_each() -> None:
    content = assigned(*range(10_000))
    saved = generation(*(saved_member(f"m{n}", b"", content) for n in range(20)))
    steps = list(
        event_records(notice(GroupEventType.ASSIGNED, group_record=saved, times_ms=(1,) * 20))
    )
    assert steps.count(None) == 19


def test_large_lag_split_into_records() -> None:
    lag = {name: {n: 10**6 + n for n in range(50_000)} for name in ("t", "u" * 249)}
    steps = list(lag_records(LagSample(at_ms=5, group_id="g", generation=2, lag=lag)))
    events = [event for event in steps if event is not None]
    assert [(e.part, e.parts) for e in events] == [(n, len(events)) for n in range(1, 8)]
    assert max(len(encode_event(event)) for event in events) < 512 * 1024
    assert steps.count(None) >= 90, "a shell has to have its turns"
    found: dict[str, dict[int, int]] = {}
    for event in events:
        for topic, partitions in (event.lag or {}).items():
            found.setdefault(topic, {}).update(partitions)
    assert found == lag


def test_too_many_partitions_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_events, "_PARTITIONS_MAX", 3)
    saved = generation(
        saved_member("a", b"", assigned(1, 2, 3, 4)), saved_member("b", b"", assigned(5, 6, 7))
    )
    (event,) = told(GroupEventType.ASSIGNED, group_record=saved, times_ms=(1, 1))
    members = event.members or []
    assert [(m.assigned, m.partition_count) for m in members] == [
        (None, 4),
        ({"t": [5, 6, 7]}, None),
    ]


def test_client_texts_are_truncated() -> None:
    (event,) = told(GroupEventType.COMMIT_REFUSED, member_id="m" * 10_000, reason="r" * 10_000)
    assert (event.member_id, event.reason) == ("m" * 255, "r" * 255)


def test_commit_refused_has_topics_and_count() -> None:
    (event,) = event_records(notice(GroupEventType.COMMIT_REFUSED, topics=("t", "u")), 12)
    assert event is not None
    assert (event.topics, event.count) == (["t", "u"], 12)


def test_lag_and_dropped_records() -> None:
    sample = LagSample(at_ms=5, group_id="g", generation=2, lag={"t": {0: 3, 11: 0}})
    (event,) = lag_records(sample)
    assert event is not None
    assert decode_event(encode_event(event)) == GroupEventRecord(
        version=VERSION, event="lag", at_ms=5, group_id="g", generation=2, lag={"t": {0: 3, 11: 0}}
    )
    assert decode_event(encode_event(dropped_record(6, 40))).count == 40


def test_unknown_fields_are_ignored() -> None:
    later = {
        "version": VERSION,
        "event": "merged",
        "at_ms": 1,
        "group_id": "g",
        "generation": 1,
        "colour": [1, 2],
    }
    assert decode_event(msgspec.json.encode(later)).event == "merged"


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b'{"version": "one"}', b"\xff\xfe"])
def test_invalid_event_raises_malformed(value: bytes) -> None:
    with pytest.raises(MalformedError, match="not a group event"):
        decode_event(value)


def of_epoch(epoch: int | None, number: int) -> bytes:
    event = GroupEventRecord(
        version=VERSION, event="left", at_ms=0, group_id="g", generation=number, epoch=epoch
    )
    return encode_event(event)


@given(
    tenures=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=12),
    first=st.integers(0, 2**40),
)
def test_records_of_several_brokers_ordered_by_epoch(
    tenures: list[tuple[int, int]], first: int
) -> None:
    """Each epoch belongs to one broker, and may have no events. Clocks do not matter."""
    written: list[bytes] = []
    by_broker: dict[int, list[bytes]] = {}
    for number, (broker, count) in enumerate(tenures):
        events = [of_epoch(first + number, n) for n in range(len(written), len(written) + count)]
        written += events
        by_broker.setdefault(broker, []).extend(events)
    read = [value for _, values in sorted(by_broker.items()) for value in values]
    assert [read[place] for place in order_by_epoch(read)] == written


def test_records_without_epoch_keep_order() -> None:
    """A single broker writes no epoch; a reader ignores values that are no events."""
    values = [of_epoch(None, 0), b"?", None, b'{"epoch": "7"}', of_epoch(None, 1)]
    assert order_by_epoch(values) == [0, 1, 2, 3, 4]
    assert order_by_epoch([of_epoch(3, 0), b"?", of_epoch(2, 1)]) == [1, 2, 0]


def test_single_broker_record_is_unchanged() -> None:
    assert encode_event(GroupEventRecord(
        version=VERSION, event="left", at_ms=0, group_id="g", generation=1
    )) == b'{"version":1,"event":"left","at_ms":0,"group_id":"g","generation":1}'  # fmt: skip


def test_member_without_session_timeout_has_identity() -> None:
    """The session timeout of a member with the consumer protocol is the group's."""
    member = msgspec.structs.replace(saved_member("a"), session_timeout_ms=0)
    (event,) = event_records(notice(GroupEventType.JOINED, member_id="a", member=member))
    assert event is not None
    assert (event.client_id, event.client_host, event.instance_id) == (
        "c",
        "/10.0.0.1",
        "a-instance",
    )
    assert event.session_timeout_ms is None
