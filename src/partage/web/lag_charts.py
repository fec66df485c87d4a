"""Charts of lag over time, as SVG: a sparkline, and a chart with axes.

They are simple enough to need no library. Drawing on the server needs no script in the browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from partage.web.axes import label_x, round_up, short_number, time_ticks
from partage.web.formats import age, clock, number
from partage.web.lag_history import COARSE_MS, Point
from partage.web.markup import Markup, concatenate, element

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 24
WIDTH: Final = 960
HEIGHT: Final = 180
# The same left margin as in the timeline chart, so that times are aligned.
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 12, 10, 24
# Samples of one minute are the coarsest that `LagHistory` keeps.
_GAP_MS: Final = COARSE_MS


def sparkline(points: Sequence[Point]) -> Markup:
    """Return a sparkline of lag samples; empty for fewer than two samples."""
    if len(points) < 2:
        return Markup("")
    highest = max(point.value for point in points)
    drawn = _path(hold_values(points), (1, 1), (SPARK_WIDTH - 2, SPARK_HEIGHT - 2), max(highest, 1))
    said = f"lag in the last {age(points[-1].at_ms - points[0].at_ms)}: {_said(points)}"
    return element(
        "svg",
        element("title", said),
        element("path", d=drawn, class_="line"),
        class_="spark",
        viewBox=f"0 0 {SPARK_WIDTH} {SPARK_HEIGHT}",
        width=SPARK_WIDTH,
        height=SPARK_HEIGHT,
        role="img",
        aria_label=said,
    )


def lag_chart(points: Sequence[Point], from_ms: int, to_ms: int) -> Markup:
    """Return a chart of a group's lag, in records, between two times."""
    top = round_up(max((point.value for point in points), default=0))
    span = max(to_ms - from_ms, 1)
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    said = f"lag from {clock(from_ms)} to {clock(to_ms)} UTC: {_said(points)}"
    return element(
        "svg",
        element("title", said),
        [_level(top * quarter // 4, 1 - quarter / 4, height) for quarter in range(5)],
        [
            _time(label, _LEFT + width * (at - from_ms) / span, height)
            for at, label in time_ticks(from_ms, to_ms, 8)
        ],
        _line(points, from_ms, span, top, (width, height)),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=said,
    )


def hold_values(points: Sequence[Point]) -> list[Point]:
    """Return the points, with the last value repeated at the end of each gap.

    A coordinator publishes only changes of the lag. A line across the gap would show a slow growth
    where the lag was constant.
    """
    held: list[Point] = []
    for point in points:
        if held and point.at_ms - held[-1].at_ms > _GAP_MS:
            held.append(Point(point.at_ms, held[-1].value))
        held.append(point)
    return held


def _said(points: Sequence[Point]) -> str:
    if not points:
        return "unknown"
    highest = max(points, key=lambda point: point.value)
    return (
        f"now {number(points[-1].value)}, "
        f"highest {number(highest.value)} at {clock(highest.at_ms)} UTC"
    )


def _level(value: int, share: float, height: int) -> Markup:
    y = _TOP + height * share
    return concatenate(
        element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"),
        element("text", short_number(value), x=_LEFT - 8, y=y + 4, class_="label end"),
    )


def _time(label: str, x: float, height: int) -> Markup:
    return concatenate(
        element("line", x1=x, x2=x, y1=_TOP + height, y2=_TOP + height + 4, class_="axis"),
        element("text", label, x=label_x(label, x, WIDTH), y=HEIGHT - 6, class_="label middle"),
    )


def _line(
    points: Sequence[Point], from_ms: int, span: int, top: int, size: tuple[int, int]
) -> Markup:
    if not points:
        text = "no samples yet"
        return element("text", text, x=WIDTH // 2, y=HEIGHT // 2, class_="label middle")
    width, height = size
    placed = [
        (_LEFT + width * (at - from_ms) / span, _TOP + height * (1 - value / top))
        for at, value in hold_values(points)
    ]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
    floor = _TOP + height
    under = f"M{placed[0][0]:.1f} {floor}L{line}L{placed[-1][0]:.1f} {floor}Z"
    x, y = placed[-1]
    return concatenate(
        element("path", d=under, class_="under"),
        element("path", d=f"M{line}", class_="line"),
        element("circle", cx=x, cy=y, r=3, class_="dot"),
    )


def _path(points: Sequence[Point], corner: tuple[int, int], size: tuple[int, int], top: int) -> str:
    span = max(points[-1].at_ms - points[0].at_ms, 1)
    return "M" + "L".join(
        f"{corner[0] + size[0] * (at - points[0].at_ms) / span:.1f} "
        f"{corner[1] + size[1] * (1 - value / top):.1f}"
        for at, value in points
    )
