"""The checker finds each violation: each test breaks one rule."""

from __future__ import annotations

from interop.checker import Event, History, judge, repeated, repetitions
from interop.range_oracle import range_assignment

T = "t"


def told(name: str, *events: Event, killed_at: float | None = None) -> History:
    return History(name, list(events), killed_at=killed_at)


def partitions(event: str, at: float, *numbers: int) -> Event:
    return {"event": event, "at": at, "partitions": [[T, number] for number in numbers]}


def record(at: float, partition: int, offset: int) -> Event:
    return {"event": "record", "at": at, "topic": T, "partition": partition, "offset": offset}


def committed(at: float, partition: int, offset: int) -> Event:
    return {"event": "committed", "at": at, "offsets": [[T, partition, offset]]}


def a_good_story() -> list[History]:
    """Return histories in which m0 hands partition 1 over to m1."""
    m0 = told(
        "m0",
        partitions("assigned", 1, 0, 1),
        record(2, 0, 0),
        record(2, 1, 0),
        committed(3, 1, 1),
        committed(3, 0, 1),
        partitions("revoked", 4, 0, 1),
        partitions("assigned", 5, 0),
        record(6, 0, 1),
    )
    m1 = told("m1", partitions("assigned", 5, 1), record(6, 1, 1), record(6, 1, 2))
    return [m0, m1]


def test_valid_histories_have_no_violations() -> None:
    wanted = [(T, 0, 0), (T, 0, 1), (T, 1, 0), (T, 1, 1), (T, 1, 2)]
    assert judge(a_good_story(), wanted) == []
    assert repeated(a_good_story()) == set()


def test_unconsumed_record_is_reported() -> None:
    assert judge(a_good_story(), [(T, 0, 2)]) == ["1 records were not consumed: [('t', 0, 2)]"]


def test_record_of_unowned_partition_is_reported() -> None:
    (violation,) = judge([told("m0", partitions("assigned", 1, 0), record(2, 1, 0))])
    assert "without owning it" in violation


def test_record_after_revocation_is_reported() -> None:
    events = [partitions("assigned", 1, 0), partitions("revoked", 2, 0), record(3, 0, 0)]
    (violation,) = judge([told("m0", *events)])
    assert "without owning it" in violation


def test_gap_in_offsets_is_reported() -> None:
    events = [partitions("assigned", 1, 0), record(2, 0, 0), record(3, 0, 2)]
    (violation,) = judge([told("m0", *events)])
    assert violation == "m0 consumed ('t', 0) at 2 after 0"


def test_commit_beyond_position_is_reported() -> None:
    events = [partitions("assigned", 1, 0), record(2, 0, 0), committed(3, 0, 2)]
    (violation,) = judge([told("m0", *events)])
    assert "beyond its position" in violation


def test_commit_for_unowned_partition_is_reported() -> None:
    (violation,) = judge([told("m0", partitions("assigned", 1, 0), committed(3, 1, 1))])
    assert "committed t 1 without owning it" in violation


def test_concurrent_owners_are_reported() -> None:
    m0 = told("m0", partitions("assigned", 1, 0), partitions("revoked", 5, 0))
    m1 = told("m1", partitions("assigned", 4, 0))
    (violation,) = judge([m0, m1])
    assert "belonged to m0 until 5.000 and to m1 since 4.000" in violation


def test_owner_without_revocation_is_reported() -> None:
    (violation,) = judge(
        [told("m0", partitions("assigned", 1, 0)), told("m1", partitions("assigned", 4, 0))]
    )
    assert "until inf" in violation


def test_skipped_records_of_next_owner_are_reported() -> None:
    m0 = told(
        *("m0", partitions("assigned", 1, 0), record(2, 0, 0), committed(2, 0, 1)),
        partitions("revoked", 3, 0),
    )
    m1 = told("m1", partitions("assigned", 4, 0), record(5, 0, 2))
    assert judge([m0, m1]) == ["m1 began ('t', 0) at 2, not at 1"]


def test_repeated_committed_records_are_reported() -> None:
    m0 = told(
        *("m0", partitions("assigned", 1, 0), record(2, 0, 0), committed(2, 0, 1)),
        partitions("revoked", 3, 0),
    )
    m1 = told("m1", partitions("assigned", 4, 0), record(5, 0, 0))
    assert judge([m0, m1]) == ["m1 began ('t', 0) at 0, not at 1"]
    assert repeated([m0, m1]) == {(T, 0, 0)}


def test_story_of_a_repeated_record_names_its_readers() -> None:
    m0 = told(
        "m0",
        partitions("assigned", 1, 0, 1),
        record(2, 0, 0),
        record(2, 1, 0),
        {"event": "error", "at": 2.5, "message": "commit: refused"},
        partitions("revoked", 3, 0, 1),
    )
    m1 = told("m1", partitions("assigned", 4, 0), record(5, 0, 0), committed(6, 0, 1))
    m2 = told("m2", partitions("assigned", 4, 1))
    (story,) = repetitions([m0, m1, m2])
    assert story == (
        "('t', 0) was read twice from 0 on: 1.000 m0 assigned; 2.000 m0 read it; "
        "2.500 m0 error: commit: refused; 3.000 m0 revoked; 4.000 m1 assigned; 5.000 m1 read it; "
        "6.000 m1 committed 1"
    )
    assert repetitions(a_good_story()) == []


def test_uncommitted_records_may_repeat_after_kill() -> None:
    events = [partitions("assigned", 1, 0), record(2, 0, 0), record(2, 0, 1), record(2, 0, 2)]
    m0 = told("m0", *events, committed(3, 0, 2), killed_at=4)
    for start in (2, 3):
        m1 = told("m1", partitions("assigned", 10, 0), record(11, 0, start))
        assert judge([m0, m1]) == []
    for start in (1, 4):
        m1 = told("m1", partitions("assigned", 10, 0), record(11, 0, start))
        assert judge([m0, m1]) == [f"m1 began ('t', 0) at {start}, not at 2 to 3"]


def test_revocation_of_unowned_partition_is_reported() -> None:
    (violation,) = judge([told("m0", partitions("revoked", 1, 0))])
    assert violation == "m0 gave up ('t', 0), which it did not own"


def test_range_oracle_gives_remainder_to_first_members() -> None:
    owned = range_assignment({"b": ["x", "y"], "a": ["x"], "c": ["y"]}, {"x": 5, "y": 3, "z": 9})
    assert owned == {
        "a": {("x", 0), ("x", 1), ("x", 2)},
        "b": {("x", 3), ("x", 4), ("y", 0), ("y", 1)},
        "c": {("y", 2)},
    }
