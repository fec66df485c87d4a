"""The timer queue against a simple model: a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.runtime.timers import TimerQueue

keys = st.sampled_from("abcd")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers(0, 30)),
        st.tuples(st.just("cancel"), keys, st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(steps)
def test_random_timers_match_model(script: list[tuple[str, str, int]]) -> None:
    timers: TimerQueue[str] = TimerQueue()
    model: dict[str, int] = {}
    now_ms = 0
    for what, key, ms in script:
        if what == "set":
            timers.set(key, now_ms + ms)
            model[key] = now_ms + ms
        elif what == "cancel":
            timers.set(key, None)
            model.pop(key, None)
        else:
            now_ms += ms
            fired = [(model[key], key) for key in timers.pop_due(now_ms)]
            expected = {(at_ms, key) for key, at_ms in model.items() if at_ms <= now_ms}
            assert set(fired) == expected
            assert [at_ms for at_ms, _ in fired] == sorted(at_ms for at_ms, _ in expected)
            for _, key in fired:
                del model[key]
        assert timers.armed == model
        wake_ms = timers.wake_at_ms()
        assert not model or (wake_ms is not None and wake_ms <= min(model.values()))


@given(steps, st.dictionaries(keys, st.tuples(keys, st.integers(-5, 5) | st.none())))
def test_changes_while_firing_apply_at_once(
    script: list[tuple[str, str, int]], reactions: dict[str, tuple[str, int | None]]
) -> None:
    timers: TimerQueue[str] = TimerQueue()
    model: dict[str, int] = {}
    now_ms = 0
    for what, key, ms in script:
        if what != "pass":
            deadline_ms = now_ms + ms if what == "set" else None
            change(timers, model, key, deadline_ms)
            continue
        now_ms += ms
        for _, fired in zip(range(20), timers.pop_due(now_ms), strict=False):
            assert model[fired] == min(model.values()) <= now_ms
            del model[fired]
            if fired in reactions:
                other, after_ms = reactions[fired]
                change(timers, model, other, None if after_ms is None else now_ms + after_ms)
        assert timers.armed == model


def change(
    timers: TimerQueue[str], model: dict[str, int], key: str, deadline_ms: int | None
) -> None:
    timers.set(key, deadline_ms)
    if deadline_ms is None:
        model.pop(key, None)
    else:
        model[key] = deadline_ms


def test_postponed_timers_fire_in_new_order() -> None:
    timers: TimerQueue[str] = TimerQueue()
    timers.set("a", 5)
    timers.set("b", 7)
    timers.set("a", 9)
    assert list(timers.pop_due(10)) == ["b", "a"]


def test_postponed_timer_does_not_change_the_wake_up() -> None:
    timers: TimerQueue[str] = TimerQueue()
    assert timers.is_wake_changed
    seen = []
    for key, deadline_ms in (("a", 10), ("a", 20), ("a", 15), ("b", 30), ("a", 5)):
        timers.is_wake_changed = False
        timers.set(key, deadline_ms)
        seen.append(timers.is_wake_changed)
    assert seen == [True, False, False, True, True]
    assert timers.wake_at_ms() == 5


def test_postponing_does_not_grow_queue() -> None:
    timers: TimerQueue[int] = TimerQueue()
    members = range(1_000)
    for member in members:
        timers.set(member, 10_000)
    for beat_ms in range(0, 1_000_000, 3_000):
        assert list(timers.pop_due(beat_ms)) == []
        for member in members:
            timers.set(member, beat_ms + 10_000)
        assert timers.queue_length <= len(members)


def test_cancelled_timers_are_purged() -> None:
    timers: TimerQueue[int] = TimerQueue()
    for key in range(100_000):
        timers.set(key, 1_000_000)
        timers.set(key, None)
        assert timers.queue_length <= 1_100
    for key in range(100_000):
        timers.set(0, 1_000_000 - key)
        assert timers.queue_length <= 1_100
    assert timers.armed == {0: 900_001}
    assert list(timers.pop_due(900_001)) == [0]
    assert list(timers.pop_due(2_000_000)) == []
    assert timers.wake_at_ms() is None
