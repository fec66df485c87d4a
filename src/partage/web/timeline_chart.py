"""Chart of a timeline, with a row per partition.

Bars have the letter and the colour of the member. Colours repeat after eight members, letters do
not. A gap in a row means that no member owned the partition.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from partage.model.topic_partition import TopicPartition
from partage.web.axes import LETTER_WIDTH, label_x, time_ticks
from partage.web.formats import clock, count, duration
from partage.web.markup import Markup, concatenate, element
from partage.web.timeline import OwnershipSpan, Timeline, TimelineRebalance

PARTITIONS_MAX: Final = 64
#: Limit for the browser's sake; the latest bars are drawn.
BARS_MAX: Final = 3_000
COLOURS: Final = 8
WIDTH: Final = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 12, 26, 24
_INNER = WIDTH - _LEFT - _RIGHT
_ROW, _LANE, _GAP = 18, 11, 3
# Number of letters in the left margin.
_LABEL_MAX = 22


def member_codes(names: Sequence[str]) -> dict[str, str]:
    """Return letters for members, in order: A, B, ..., Z, AA, AB, ..."""
    codes = {}
    for index, name in enumerate(dict.fromkeys(names)):
        code, rest = "", index + 1
        while rest:
            rest, letter = divmod(rest - 1, 26)
            code = chr(ord("A") + letter) + code
        codes[name] = code
    return codes


def colour_class(code: str) -> str:
    """Return the CSS class of a member's colour."""
    number = 0
    for letter in code:
        number = number * 26 + ord(letter) - ord("A") + 1
    return f"m{(number - 1) % COLOURS}"


def visible_partitions(timeline: Timeline, from_ms: int) -> list[TopicPartition]:
    """Return the partitions that had an owner after a time, sorted."""
    return sorted(
        {
            TopicPartition(span.topic, span.partition)
            for span in timeline.spans
            if span.to_ms is None or span.to_ms >= from_ms
        }
    )


def timeline_chart(
    timeline: Timeline, codes: Mapping[str, str], from_ms: int, to_ms: int
) -> Markup:
    """Return the chart between two times, in ms since the epoch.

    Only the first `PARTITIONS_MAX` partitions have a row.
    """
    partitions = visible_partitions(timeline, from_ms)[:PARTITIONS_MAX]
    bars: dict[TopicPartition, list[OwnershipSpan]] = {partition: [] for partition in partitions}
    for span in _latest(timeline.spans, bars, from_ms, to_ms):
        bars[TopicPartition(span.topic, span.partition)].append(span)
    scale = _Scale(from_ms, max(to_ms, from_ms + 1))
    y, beds, rows = _TOP, [], []
    for partition, spans in bars.items():
        bed, row, height = _row(partition, spans, codes, timeline, scale, y)
        beds.append(bed)
        rows.append(row)
        y += height
    numbered = [
        (number, mark)
        for number, mark in enumerate(timeline.rebalances, start=1)
        if _ends(mark, to_ms) >= from_ms
    ]
    said = (
        f"{count(len(partitions), 'partition')} and {count(len(numbered), 'rebalance')} from "
        f"{clock(from_ms)} to {clock(to_ms)} UTC; see the tables below"
    )
    return element(
        "svg",
        element("title", said),
        beds,
        _axis(scale, y),
        [_band(mark, scale, y) for _, mark in numbered],
        rows,
        _begins(numbered, scale, y),
        class_="chart timeline",
        viewBox=f"0 0 {WIDTH} {y + _BOTTOM}",
        role="img",
        aria_label=said,
    )


class _Scale:
    """Mapping of times to x positions."""

    def __init__(self, from_ms: int, to_ms: int) -> None:
        self.from_ms, self.to_ms = from_ms, to_ms

    def x(self, at_ms: int) -> float:
        at_ms = min(max(at_ms, self.from_ms), self.to_ms)
        share = (at_ms - self.from_ms) / (self.to_ms - self.from_ms)
        return _LEFT + _INNER * share


def _row(
    partition: TopicPartition,
    spans: Sequence[OwnershipSpan],
    codes: Mapping[str, str],
    timeline: Timeline,
    scale: _Scale,
    y: int,
) -> tuple[Markup, Markup, int]:
    """Return the background, the bars and the height of a partition's row.

    Concurrent owners are drawn below each other.
    """
    free_from: list[int] = []  # End of the last bar, by lane.
    drawn = []
    for span in spans:
        lane = next((n for n, end in enumerate(free_from) if end <= span.from_ms), len(free_from))
        free_from[lane : lane + 1] = [scale.to_ms + 1 if span.to_ms is None else span.to_ms]
        drawn.append((lane, span))
    is_single = len(free_from) < 2
    bar = _ROW - _GAP if is_single else _LANE
    height = _ROW if is_single else _LANE * len(free_from) + _GAP
    label = _shortened(f"{partition.topic}-{partition.partition}")
    bed = element("rect", x=_LEFT, y=y, width=_INNER, height=height - _GAP, class_="bed")
    row = concatenate(
        element("text", label, x=_LEFT - 8, y=y + height / 2 + 3, class_="label end"),
        [
            _bar(span, codes.get(span.member, "?"), timeline, scale, y + _LANE * lane, bar)
            for lane, span in drawn
        ],
    )
    return bed, row, height


def _bar(
    span: OwnershipSpan, code: str, timeline: Timeline, scale: _Scale, y: float, height: float
) -> Markup:
    left = scale.x(span.from_ms)
    width = max(scale.x(scale.to_ms if span.to_ms is None else span.to_ms) - left, 1.0)
    reader = timeline.members.get(span.member)
    who = span.member if reader is None else f"{reader.client_id} ({span.member})"
    until = "now" if span.to_ms is None else clock(span.to_ms)
    generation = "" if span.generation is None else f", generation {span.generation}"
    said = (
        f"{code}: {who} owned {span.topic}-{span.partition} from {clock(span.from_ms)} to {until}"
    )
    label = _label(code, "" if reader is None else reader.client_id, width)
    return element(
        "g",
        element("title", f"{said}{generation}"),
        element("rect", x=left, y=y, width=width, height=height, class_="bar"),
        element("text", label, x=left + 4, y=y + height - 3.5) if label else None,
        class_=colour_class(code) if code != "?" else "m0",
    )


def _label(code: str, client_id: str, width: float) -> str:
    """Return the longest label that fits."""
    full = f"{code} {client_id}".strip()
    for text in (full, code):
        if len(text) * LETTER_WIDTH + 8 <= width:
            return text
    return ""


def _band(mark: TimelineRebalance, scale: _Scale, bottom: int) -> Markup:
    """Return the band of a rebalance. It is behind the bars, so that it is visible in gaps."""
    left = scale.x(mark.started_ms)
    width = max(scale.x(_ends(mark, scale.to_ms)) - left, 0.5)
    return element("rect", x=left, y=_TOP, width=width, height=bottom - _TOP, class_="band")


def _begins(
    numbered: Sequence[tuple[int, TimelineRebalance]], scale: _Scale, bottom: int
) -> Markup:
    """Return marks at the starts of rebalances, with number and cause where there is room."""
    drawn, labelled_to = [], 0.0
    lefts = [scale.x(mark.started_ms) for _, mark in numbered]
    for index, (number, mark) in enumerate(numbered):
        left, label = lefts[index], None
        said = f"rebalance {number} at {clock(mark.started_ms)}: {mark.cause}"
        took = "under way" if mark.took_ms is None else f"took {duration(mark.took_ms)}"
        if left >= labelled_to:
            # A mark that is too near to have its own number does not shorten this label.
            least = left + LETTER_WIDTH * (len(str(number)) + 1)
            right = next((x for x in lefts[index + 1 :] if x >= least), WIDTH)
            label = f"{number} {mark.cause}"
            if len(label) * LETTER_WIDTH + 4 > right - left:
                label = str(number)
            labelled_to = left + LETTER_WIDTH * len(label) + 4
        drawn.append(
            element(
                "g",
                element("title", f"{said}, {took}"),
                element("line", x1=left, x2=left, y1=_TOP - 6, y2=bottom),
                element("text", label, x=left, y=_TOP - 9) if label else None,
                class_="rebalance",
            )
        )
    return concatenate(drawn)


def _axis(scale: _Scale, bottom: int) -> Markup:
    return concatenate(
        [
            concatenate(
                element("line", x1=x, x2=x, y1=_TOP, y2=bottom + 4, class_="grid"),
                element(
                    "text", label, x=label_x(label, x, WIDTH), y=bottom + 17, class_="label middle"
                ),
            )
            for at, label in time_ticks(scale.from_ms, scale.to_ms, 8)
            for x in [scale.x(at)]
        ]
    )


def _latest(
    spans: Sequence[OwnershipSpan], partitions: Container[TopicPartition], from_ms: int, to_ms: int
) -> list[OwnershipSpan]:
    """Return intervals of these partitions and times; of too many, those that ended last."""
    within = [
        span
        for span in spans
        if TopicPartition(span.topic, span.partition) in partitions
        and span.from_ms <= to_ms
        and (span.to_ms is None or span.to_ms >= from_ms)
    ]
    within.sort(key=lambda span: to_ms if span.to_ms is None else span.to_ms)
    return sorted(within[-BARS_MAX:], key=lambda span: span.from_ms)


def _ends(mark: TimelineRebalance, to_ms: int) -> int:
    return to_ms if mark.ended_ms is None else mark.ended_ms


def _shortened(label: str) -> str:
    """Return a label cut at its start, so that it keeps the partition number."""
    return label if len(label) <= _LABEL_MAX else f"…{label[-_LABEL_MAX + 1 :]}"
