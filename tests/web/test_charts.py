"""Charts: well-formed, within their frame, with the same content as text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.web.axes import LETTER_WIDTH, round_up, short_number, time_ticks
from partage.web.lag_charts import hold_values, lag_chart, sparkline
from partage.web.lag_history import Point
from partage.web.timeline import OwnershipSpan, Timeline, TimelineMember, TimelineRebalance
from partage.web.timeline_chart import (
    BARS_MAX,
    PARTITIONS_MAX,
    colour_class,
    member_codes,
    timeline_chart,
)

from .html_page import drawing

NOW = 1_795_335_000_000


@given(st.integers(0, 10**18))
def test_round_up(value: int) -> None:
    top = round_up(value)
    assert top >= max(value, 1)
    assert top % 4 == 0
    assert top <= max(2 * value, 4)


@given(st.integers(0, NOW), st.integers(1, 10**11), st.integers(2, 12))
def test_time_ticks(from_ms: int, span: int, most: int) -> None:
    ticks = time_ticks(from_ms, from_ms + span, most)
    assert len(ticks) <= most
    assert all(from_ms <= at <= from_ms + span for at, _ in ticks)
    assert len({after[0] - before[0] for before, after in pairwise(ticks)}) <= 1


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1_500, "1.5k"), (20_000_000, "20M")]
)
def test_short_number(value: int, text: str) -> None:
    assert short_number(value) == text


POINTS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**15)), min_size=1, max_size=40
).map(lambda points: [Point(NOW + at, value) for at, value in sorted(points)])


def numbers_of(path: str) -> list[tuple[float, float]]:
    pairs = path.strip("MZ").replace("L", " ").split()
    return list(zip(map(float, pairs[::2]), map(float, pairs[1::2]), strict=True))


@given(POINTS)
def test_lag_chart_stays_within_frame(points: list[Point]) -> None:
    root = drawing(lag_chart(points, points[0].at_ms, points[-1].at_ms))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for path in root.iter("path"):
        for x, y in numbers_of(path.attrib["d"]):
            assert 0 <= x <= width
            assert 0 <= y <= height
    assert f"now {points[-1].value:,}" in root.attrib["aria-label"]
    spark = sparkline(points)
    assert (spark == "") == (len(points) < 2)
    if spark:
        line = drawing(spark).find("path")
        assert line is not None
        assert len(numbers_of(line.attrib["d"])) == len(hold_values(points))


def test_lag_stays_constant_until_the_sample_after_a_gap() -> None:
    """A coordinator publishes only changes of the lag."""
    points = [Point(NOW, 0), Point(NOW + 10_000, 1), Point(NOW + 2_000_000, 5)]
    held = [*points[:2], Point(NOW + 2_000_000, 1), points[2]]
    assert hold_values(points) == held
    (line,) = [
        each
        for each in drawing(lag_chart(points, NOW, NOW + 2_000_000)).iter("path")
        if each.attrib["class"] == "line"
    ]
    _, (_, low), (corner_x, corner_y), (end_x, _) = numbers_of(line.attrib["d"])
    assert (corner_x, corner_y) == (end_x, low)


@pytest.mark.parametrize("chart", ["lag", "owners"])
def test_time_label_at_the_edge_is_not_cut(chart: str) -> None:
    """The last tick of these ten minutes is at the right edge of the chart."""
    if chart == "lag":
        text = lag_chart([Point(NOW, 1)], NOW - 600_000, NOW)
    else:
        span = OwnershipSpan(topic="t", partition=0, member="a", from_ms=NOW - 1, to_ms=None)
        text = timeline_chart(the_timeline(span), member_codes("a"), NOW - 600_000, NOW)
    root = drawing(text)
    width = float(root.attrib["viewBox"].split()[2])
    labels = [each for each in root.iter("text") if each.attrib["class"] == "label middle"]
    assert len(labels) > 2
    for label in labels:
        assert label.text
        half = LETTER_WIDTH * len(label.text) / 2
        assert half <= float(label.attrib["x"]) <= width - half


def test_lag_chart_without_samples() -> None:
    assert "no samples yet" in lag_chart([], NOW, NOW + 1)


SPANS = st.lists(
    st.builds(
        lambda partition, member, began, took: OwnershipSpan(
            topic="t",
            partition=partition,
            member=member,
            from_ms=NOW + began,
            to_ms=None if took is None else NOW + began + took,
        ),
        st.integers(0, 5),
        st.sampled_from(["a", "b", "<c>"]),
        st.integers(-50_000, 50_000),
        st.none() | st.integers(0, 50_000),
    ),
    max_size=30,
)
MARKS = st.lists(
    st.builds(
        lambda began, took: TimelineRebalance(
            started_ms=NOW + began,
            ended_ms=None if took is None else NOW + began + took,
            cause="<x>",
        ),
        st.integers(-50_000, 50_000),
        st.none() | st.integers(0, 50_000),
    ),
    max_size=20,
)


@given(SPANS, MARKS)
def test_timeline_chart_stays_within_frame(
    spans: list[OwnershipSpan], marks: list[TimelineRebalance]
) -> None:
    timeline = Timeline(
        spans=sorted(spans, key=lambda span: span.from_ms),
        rebalances=sorted(marks, key=lambda mark: mark.started_ms),
        members={"a": TimelineMember(name="a", client_id="client & <b>")},
        since_ms=NOW,
        is_from_events=True,
    )
    root = drawing(timeline_chart(timeline, member_codes(["a", "b"]), NOW, NOW + 50_000))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter("rect"):
        x, y, wide, high = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + wide <= width + 2
        assert y >= 0
        assert y + high <= height
    bars = [rect for rect in root.iter("rect") if rect.attrib["class"] == "bar"]
    within = [s for s in spans if s.from_ms <= NOW + 50_000 and (s.to_ms or NOW) >= NOW]
    assert len(bars) == len(within)


def the_timeline(*spans: OwnershipSpan, marks: list[TimelineRebalance] | None = None) -> Timeline:
    readers = {name: TimelineMember(name=name, client_id=f"client-{name}") for name in "ab"}
    return Timeline(
        spans=list(spans),
        rebalances=marks or [],
        members=readers,
        since_ms=NOW,
        is_from_events=True,
    )


def test_concurrent_owners_do_not_overlap() -> None:
    both = [
        OwnershipSpan(topic="t", partition=0, member=name, from_ms=NOW, to_ms=None)
        for name in ("a", "b")
    ]
    root = drawing(timeline_chart(the_timeline(*both), member_codes("ab"), NOW, NOW + 1_000))
    first, second = (r for r in root.iter("rect") if r.attrib["class"] == "bar")
    assert float(first.attrib["y"]) + float(first.attrib["height"]) <= float(second.attrib["y"])


def test_rebalance_label_has_number_and_cause() -> None:
    marks = [
        TimelineRebalance(started_ms=NOW + 1_000, ended_ms=NOW + 1_500, cause="member joined"),
        TimelineRebalance(
            started_ms=NOW + 1_001, ended_ms=NOW + 1_600, cause="member joined again"
        ),
        TimelineRebalance(started_ms=NOW + 30_000, ended_ms=None, cause="member left"),
    ]
    span = OwnershipSpan(topic="t", partition=0, member="a", from_ms=NOW, to_ms=None)
    root = drawing(
        timeline_chart(the_timeline(span, marks=marks), member_codes("ab"), NOW, NOW + 60_000)
    )
    groups = [each for each in root.iter("g") if each.attrib["class"] == "rebalance"]
    said = [each.findtext("title") for each in groups]
    assert said[0] is not None
    assert said[0].endswith("member joined, took 500 ms")
    labels = [each.findtext("text") for each in groups]
    # The second rebalance is too near to the first one for a label.
    assert labels == ["1 member joined", None, "3 member left"]
    assert said[2] is not None
    assert said[2].endswith("under way")


def test_timeline_chart_limits_rows_and_bars() -> None:
    spans = [
        OwnershipSpan(topic="t", partition=n % 100, member="a", from_ms=NOW + n, to_ms=NOW + n + 1)
        for n in range(2 * BARS_MAX)
    ]
    root = drawing(timeline_chart(the_timeline(*spans), member_codes("ab"), NOW, NOW + 10_000))
    classes = [rect.attrib["class"] for rect in root.iter("rect")]
    assert classes.count("bed") == PARTITIONS_MAX
    assert classes.count("bar") <= BARS_MAX


def test_member_codes_and_colours() -> None:
    codes = member_codes([f"m{n}" for n in range(60)])
    assert [codes["m0"], codes["m25"], codes["m26"], codes["m52"]] == ["A", "Z", "AA", "BA"]
    assert len(set(codes.values())) == 60
    assert [colour_class(code) for code in ("A", "H", "I", "AA")] == ["m0", "m7", "m0", "m2"]
