"""Groups of a cluster and their history."""

from __future__ import annotations

import pytest

from partage.model.groups import GroupDescription
from partage.store.group_events import GroupEventRecord, encode_event
from partage.web import cluster_history as module
from partage.web.cluster_history import ClusterHistory, ClusterSnapshot, ReceivedEvent
from partage.web.lag_history import Point
from pipelines.event_script import events

from .groups import group
from .test_event_timeline import STORY


def taken(*given: GroupEventRecord) -> list[ReceivedEvent]:
    return [ReceivedEvent(event, encode_event(event)) for event in given]


def look(
    at_ms: int, *groups: GroupDescription, told: list[ReceivedEvent] | None = None
) -> ClusterSnapshot:
    return ClusterSnapshot(at_ms=at_ms, took_ms=3, groups=groups, events=told or [])


def test_groups_are_those_of_last_snapshot() -> None:
    watched = ClusterHistory()
    assert watched.at_ms is None
    watched.add(look(1_000, group("a"), group("b", lag=5, m="0")))
    assert sorted(each.group for each in watched.groups()) == ["a", "b"]
    watched.add(look(2_000, group("b", lag=7, m="0")))
    assert watched.group("a") is None
    assert watched.history("a") is None
    memory = watched.history("b")
    assert memory is not None
    assert memory.lags.since(0) == [Point(1_000, 5), Point(2_000, 7)]


def test_briefly_unlisted_group_keeps_history() -> None:
    watched = ClusterHistory()
    watched.add(look(1_000, group("g", m="0"), told=taken(*events(STORY))))
    watched.add(look(2_000))
    assert watched.history("g") is None
    watched.add(look(2_000 + module.UNLISTED_KEPT_MS - 1_000, group("g", lag=3, m="0")))
    memory = watched.history("g")
    assert memory is not None
    assert [point.at_ms for point in memory.lags.since(0)] == [1_000, 301_000]
    assert memory.timeline().is_from_events


def test_unlisted_group_after_outage_keeps_history() -> None:
    watched = ClusterHistory()
    watched.add(look(1_000, group("g", m="0")))
    watched.record_failure(2_000, "down")
    watched.add(look(2_000_000))
    watched.add(look(2_001_000, group("g", m="0")))
    memory = watched.history("g")
    assert memory is not None
    assert [point.at_ms for point in memory.lags.since(0)] == [1_000, 2_001_000]


def test_deleted_group_loses_history(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = ClusterHistory()
    watched.add(look(1_000, group("a", m="0")))
    watched.add(look(2_000))
    watched.add(look(2_001 + module.UNLISTED_KEPT_MS))
    watched.add(look(400_000, group("a", m="0")))
    late = watched.history("a")
    assert late is not None
    assert [point.at_ms for point in late.lags.since(0)] == [400_000]
    # Or earlier, if other groups need the room.
    monkeypatch.setattr(module, "GROUP_HISTORIES_MAX", 2)
    watched.add(look(500_000, group("b"), group("c")))
    watched.add(look(501_000, group("a"), group("b")))
    last = watched.history("a")
    assert last is not None
    assert [point.at_ms for point in last.lags.since(0)] == [501_000]


def test_state_since_is_known_after_change() -> None:
    """The start of a state from before the page is unknown, unless an event reports it."""
    watched = ClusterHistory()
    watched.add(look(1_000, group("old", m="0")))
    watched.add(look(2_000, group("old", m="0"), group("new")))
    watched.add(look(3_000, group("old"), group("new")))
    old, new = watched.history("old"), watched.history("new")
    assert old is not None
    assert new is not None
    assert (old.since_ms, old.is_since_known) == (3_000, True)
    assert (new.since_ms, new.is_since_known) == (2_000, True)
    told = ClusterHistory()
    told.add(look(60_000, group("g", a="0-1", b="2-3"), told=taken(*events(STORY))))
    memory = told.history("g")
    assert memory is not None
    assert (memory.since_ms, memory.is_since_known) == (12_500, True)
    begun = ClusterHistory()
    begun.add(look(1_000, group("g", m="0")))
    first = begun.history("g")
    assert first is not None
    assert (first.since_ms, first.is_since_known) == (1_000, False)


def test_events_precede_polling() -> None:
    watched = ClusterHistory()
    watched.add(look(60_000, group("g", a="0-1", b="2-3"), group("silent", m="0")))
    watched.add(
        look(
            62_000, group("g", a="0-1", b="2-3"), group("silent", m="0"), told=taken(*events(STORY))
        )
    )
    told, silent = watched.history("g"), watched.history("silent")
    assert told is not None
    assert told.timeline().is_from_events
    assert silent is not None
    assert not silent.timeline().is_from_events


def test_lag_events_precede_first_poll() -> None:
    lag = "5.0 lag 0:100 1:20\n15.0 lag 0:50\n"
    watched = ClusterHistory()
    watched.add(look(20_000, group("g", lag=7), told=taken(*events(lag))))
    watched.add(look(22_000, group("g", lag=8), told=taken(*events("99.0 lag 0:1"))))
    memory = watched.history("g")
    assert memory is not None
    expected = [Point(5_000, 120), Point(15_000, 50), Point(20_000, 7), Point(22_000, 8)]
    assert memory.lags.since(0) == expected


def test_events_before_listing_are_kept() -> None:
    watched = ClusterHistory()
    watched.add(look(1_000, told=taken(*events(STORY))))
    watched.add(look(2_000, group("g"), told=taken(*events("3.0 joined z"))))
    memory = watched.history("g")
    assert memory is not None
    assert memory.timeline().is_from_events
    watched.add(look(3_000, told=taken(*events(STORY))))
    watched.add(look(4_000 + module.UNLISTED_KEPT_MS))
    watched.add(look(5_000 + module.UNLISTED_KEPT_MS, group("g")))
    later = watched.history("g")
    assert later is not None
    assert not later.timeline().is_from_events, "events of a deleted group are dropped"


def test_failures_are_recorded_and_cleared() -> None:
    watched = ClusterHistory()
    watched.record_failure(500, "no broker responds")
    assert (watched.failure, watched.failing_since_ms) == ("no broker responds", 500)
    watched.add(look(1_000, group("g")))
    assert watched.failure is None
    watched.record_failure(2_000, "down")
    watched.record_failure(3_000, "still gone")
    assert (watched.failure, watched.failing_since_ms) == ("still gone", 2_000)
    assert watched.at_ms == 1_000
    assert watched.group("g") is not None, "what was seen last stays to be seen"
    watched.add(look(4_000, group("g")))
    assert (watched.failure, watched.failing_since_ms) == (None, None)


def test_number_of_histories_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_HISTORIES_MAX", 10)
    watched = ClusterHistory()
    watched.add(look(1_000, *[group(f"g{n}") for n in range(15)]))
    assert len(watched) == 15
    assert sum(watched.history(f"g{n}") is not None for n in range(15)) == 10


def test_event_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENT_BYTES_MAX", 10_000)
    watched = ClusterHistory()
    groups = [group(f"g{n}") for n in range(20)]
    for at in range(1, 11):
        told = [each for of in groups for each in taken(*events(STORY, of.group))]
        watched.add(look(at * 1_000, *groups, told=told))
        kept = [watched.history(of.group) for of in groups]
        assert sum(each.events.bytes for each in kept if each is not None) <= 10_000
