"""A page of HTML that plays the run of a failed world; it needs no other file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Final

from partage.model.topic_partition import TopicPartition
from partage.testing.world.request_recorder import OwnedPartition, RecordedRequest
from partage.testing.world.story import StoryEvent

#: The list of events has at most this many, for the browser's sake: the last ones.
ROWS_MAX: Final = 3_000
#: A time without events is shortened if it is longer than this, and than this share of the run.
_IDLE_S: Final = 4.0
_IDLE_SHARE: Final = 0.12
#: The share of the page's width that a shortened time takes.
_SHORTENED: Final = 0.03
_ZOOMS: Final = (1, 4, 16, 64)
_TICKS: Final = 8
_STEPS_S: Final = (
    *(step * unit for unit in (0.001, 0.01, 0.1, 1) for step in (1, 2, 5)),
    *(10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600),
)
_COLOURS: Final = 8
_AXIS, _LANE, _ROW, _HEADING = 34, 38, 22, 26
#: The vertical position of a request's mark in its lane, by kind.
_MARKS: Final = {"produce": (3, 10), "fetch": (11, 18), "commit": (19, 26), "group": (27, 34)}


@dataclass(frozen=True)
class RecordedRun:
    """Everything that the page of a failed world has.

    Attributes:
        title: the name of the test.
        seed: the seed.
        error: the type and message of the error.
        command: the command that repeats the world.
        faults: the faults of the smallest plan that fails.
        faults_drawn: the number of all drawn faults.
        events: the story.
        requests: the requests to the broker.
        owned: which process owned which partition, and when.
        failed_at_s: the virtual time of the failure, in seconds.
        remark: a restriction of the recording, or "".
    """

    title: str
    seed: int
    error: str
    command: str
    faults: Sequence[str]
    faults_drawn: int
    events: Sequence[StoryEvent]
    requests: Sequence[RecordedRequest]
    owned: Sequence[OwnedPartition]
    failed_at_s: float
    remark: str = ""


def write_run_page(run: RecordedRun, path: Path) -> None:
    """Write the page of a run."""
    path.write_text(format_run_page(run), encoding="utf-8")


def format_run_page(run: RecordedRun) -> str:
    """Return the page of a run as HTML, without references to other files."""
    scale = _TimeScale(_times(run), run.failed_at_s)
    spans = list(_process_spans(run))
    names = list(dict.fromkeys(span.name for span in spans))
    colours = {name: f"m{index % _COLOURS}" for index, name in enumerate(names)}
    static = files("partage.testing.world").joinpath("static")
    style = static.joinpath("player.css").read_text("utf-8")
    script = static.joinpath("player.js").read_text("utf-8")
    data = {
        "scale": scale.points,
        "failed": run.failed_at_s,
        "processes": [
            {
                "name": name,
                "colour": colours[name],
                "states": [
                    [round(each.from_s, 4), round(each.to_s, 4), each.state]
                    for each in spans
                    if each.name == name
                ],
            }
            for name in names
        ],
        "owned": [
            [each.process, _partition_name(each.partition), round(each.from_s, 4), each.to_s]
            for each in run.owned
        ],
        "requests": [
            [round(each.at_s, 4), each.process, _request_text(each)] for each in run.requests
        ],
    }
    encoded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        f"<title>{escape(run.title)}, seed {run.seed}</title>\n<style>\n{style}</style>\n"
        f"</head>\n<body>\n{_header(run)}\n<main>\n{_controls()}\n"
        f"{_chart(run, scale, spans, colours)}\n{_LEGEND}\n"
        '<section aria-labelledby="now-title"><h2 id="now-title">At <output id="now-time">'
        '</output></h2>\n<div class="scroll"><table id="now"><thead><tr><th scope="col">Process'
        '</th><th scope="col">State</th><th scope="col">Owns</th><th scope="col">Last request'
        "</th></tr></thead><tbody></tbody></table></div></section>\n"
        f"{_event_list(run)}\n</main>\n"
        f'<script type="application/json" id="run">{encoded}</script>\n'
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


# Times and processes


class _TimeScale:
    """Maps times to shares of the width; long times without events are shortened."""

    def __init__(self, times: Iterable[float], end_s: float) -> None:
        end_s = max(end_s, 0.001)
        marks = sorted({0.0, end_s, *(at for at in times if 0 <= at <= end_s)})
        idle_s = max(_IDLE_S, end_s * _IDLE_SHARE)
        self.gaps = [(one, two) for one, two in pairwise(marks) if two - one > idle_s]
        busy_s = end_s - sum(two - one for one, two in self.gaps)
        busy_share = 1 - _SHORTENED * len(self.gaps)
        points, share, at_s = [(0.0, 0.0)], 0.0, 0.0
        for one, two in [*self.gaps, (end_s, end_s)]:
            share += (one - at_s) / max(busy_s, 1e-9) * busy_share
            points.append((one, share))
            if two > one:
                share += _SHORTENED
                points.append((two, share))
            at_s = two
        points[-1] = (points[-1][0], 1.0)
        self.points = [[round(at, 4), round(min(share, 1.0), 6)] for at, share in points]
        self.end_s = end_s
        self.busy_s = max(busy_s, 0.001)

    def share(self, at_s: float) -> float:
        for (one, low), (two, high) in pairwise(self.points):
            if at_s <= two and two > one:
                return low + (high - low) * max(at_s - one, 0) / (two - one)
        return 1.0

    def x(self, at_s: float) -> str:
        return f"{self.share(at_s) * 100:.3f}%"

    def width(self, from_s: float, to_s: float) -> str:
        return f"{max(self.share(to_s) - self.share(from_s), 0.0002) * 100:.3f}%"

    def multiples(self, step_s: float) -> Iterator[float]:
        """Yield the multiples of a time that are in no gap."""
        number = 0
        for one, two in [*self.gaps, (self.end_s, math.inf)]:
            while (at_s := number * step_s) <= one:
                yield at_s
                number += 1
            if two < math.inf:
                number = max(number, math.ceil(two / step_s))


@dataclass(frozen=True)
class _ProcessSpan:
    name: str
    from_s: float
    to_s: float
    state: str  # running, paused, killed, failed or ended


_STATES: Final = {
    "started": "running",
    "continued": "running",
    "paused": "paused",
    "killed": "killed",
    "failed": "failed",
    "ended": "ended",
}


def _process_spans(run: RecordedRun) -> Iterator[_ProcessSpan]:
    """Yield the states of each process, in the order of their first start."""
    changes: dict[str, list[tuple[float, str]]] = {}
    for event in run.events:
        if event.kind in _STATES and event.at_s <= run.failed_at_s:
            changes.setdefault(event.name, []).append((event.at_s, _STATES[event.kind]))
    for name, states in changes.items():
        for (from_s, state), (to_s, _) in pairwise([*states, (run.failed_at_s, "")]):
            yield _ProcessSpan(name, from_s, to_s, state)


def _times(run: RecordedRun) -> Iterator[float]:
    yield from (each.at_s for each in run.events)
    yield from (each.at_s for each in run.requests if each.kind != "other")
    for owned in run.owned:
        yield from (owned.from_s, owned.to_s)


# Parts of the page


def _header(run: RecordedRun) -> str:
    faults = "".join(f"<li>{escape(fault)}</li>" for fault in run.faults)
    plan = ""
    if run.faults_drawn:
        plan = (
            f"<p>The smallest plan that fails: {len(run.faults)} of {run.faults_drawn} faults</p>"
            f"<ul>{faults}</ul>"
        )
    remark = f'<p class="quiet">{escape(run.remark)}</p>' if run.remark else ""
    return (
        f"<header><h1>{escape(run.title)}</h1>\n"
        f'<p class="quiet">Seed {run.seed}, failed at {run.failed_at_s:.3f} s of virtual time</p>\n'
        f'<pre class="error" tabindex="0" role="region" aria-label="Error">{escape(run.error)}'
        f"</pre>\n{plan}{remark}<p>Run again: <code>{escape(run.command)}</code></p></header>"
    )


def _controls() -> str:
    zooms = "".join(f'<option value="{zoom}">{zoom}×</option>' for zoom in _ZOOMS)
    speeds = "".join(
        f'<option value="{seconds}"{" selected" if seconds == 30 else ""}>{seconds} s</option>'
        for seconds in (10, 30, 60, 180)
    )
    return (
        '<div class="controls" role="group" aria-label="Player">'
        '<button id="play" type="button" aria-keyshortcuts="Space">Play</button>'
        '<button id="previous" type="button">Previous event</button>'
        '<button id="next" type="button">Next event</button>'
        '<button id="failure" type="button">Go to the failure</button>'
        f'<label>Play all in <select id="speed">{speeds}</select></label>'
        f'<label>Zoom <select id="zoom">{zooms}</select></label></div>\n'
        '<input id="slider" type="range" min="0" max="10000" value="10000" aria-label="Time">'
    )


_LEGEND: Final = (
    '<p class="legend quiet">Marks of requests, from top to bottom: '
    '<span class="key produce"></span> produce, <span class="key fetch"></span> fetch with '
    'records, <span class="key commit"></span> commit, <span class="key group"></span> group; '
    '<span class="key error"></span> with an error. Bars below: which process owns a partition; '
    "two bars of one partition at the same time are two owners. Striped: paused, or a fault. "
    "Times without events are shortened. Details: hold the pointer over a mark.</p>"
)


def _chart(
    run: RecordedRun,
    scale: _TimeScale,
    spans: Sequence[_ProcessSpan],
    colours: dict[str, str],
) -> str:
    labels: list[str] = []
    drawn: list[str] = []
    y = _AXIS

    def row(label: str, height: int, class_: str = "") -> None:
        kind = f' class="{class_}"' if class_ else ""
        labels.append(f'<div{kind} style="height:{height}px">{escape(label)}</div>')

    labels.append(f'<div style="height:{_AXIS}px"></div>')
    if faults := list(_fault_spans(run)):
        row("faults", _ROW, "quiet")
        drawn += [
            _bar(scale, from_s, to_s, y + 3, _ROW - 6, text, "fault", text)
            for from_s, to_s, text in faults
        ]
        y += _ROW
    for name in colours:
        row(name, _LANE)
        mine = [span for span in spans if span.name == name]
        drawn += [_process_bar(scale, span, y) for span in mine]
        drawn += [
            _request_mark(scale, request, y)
            for request in run.requests
            if request.process == name and request.at_s <= run.failed_at_s
        ]
        y += _LANE
    partitions = sorted({owned.partition for owned in run.owned})
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        row(f"owners of {topic}", _HEADING, "heading quiet")
        y += _HEADING
        for partition in [each for each in partitions if each.topic == topic]:
            bars, height = _owner_bars(scale, partition, run, colours, y)
            row(str(partition.partition), height, "partition")
            drawn += bars
            y += height
    failure = scale.x(run.failed_at_s)
    grid = "".join(_ticks(scale, y))
    gaps = "".join(
        f'<rect class="gap" x="{scale.x(one)}" width="{scale.width(one, two)}" y="{_AXIS}" '
        f'height="{y - _AXIS}"><title>{two - one:.1f} s without events</title></rect>'
        for one, two in scale.gaps
    )
    return (
        '<div class="chart"><div class="labels" aria-hidden="true">'
        f"{''.join(labels)}</div>"
        '<div class="view" id="view" tabindex="0" role="region" aria-label="Time line">'
        f'<svg id="plot" role="img" aria-label="Time line of processes, requests and owners" '
        f'height="{y + 6}" data-zoom="1">'
        '<defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" class="stripe-ground"/>'
        '<rect width="2.5" height="6" class="stripe"/></pattern></defs>'
        f"{grid}{gaps}{''.join(drawn)}"
        f'<line class="violation" x1="{failure}" x2="{failure}" y1="14" y2="{y}"/>'
        f'<text class="violation" x="{failure}" dx="-6" y="12" text-anchor="end">failure</text>'
        f'<line id="head" x1="0" x2="0" y1="16" y2="{y + 6}"/></svg></div></div>'
    )


def _ticks(scale: _TimeScale, bottom: int) -> Iterator[str]:
    """Yield grid lines with times; each level of zoom has its own."""
    for zoom in _ZOOMS:
        wanted_s = scale.busy_s / (_TICKS * zoom)
        step = next((each for each in _STEPS_S if each >= wanted_s), _STEPS_S[-1])
        digits = 0 if step >= 1 else 1 if step >= 0.1 else 2 if step >= 0.01 else 3
        shown = -1.0
        for at_s in scale.multiples(step):
            share = scale.share(at_s)
            is_near_end = share > 1 - 0.07 / zoom
            if (at_s and share - shown < 0.07 / zoom) or is_near_end:
                continue
            shown = share
            x = scale.x(at_s)
            yield (
                f'<g class="tick z{zoom}"><line x1="{x}" x2="{x}" y1="{_AXIS - 4}" y2="{bottom}"/>'
                f'<text x="{x}" dx="2" y="{_AXIS - 8}">{at_s:.{digits}f} s</text></g>'
            )


def _bar(
    scale: _TimeScale,
    from_s: float,
    to_s: float,
    y: float,
    height: float,
    label: str,
    class_: str,
    title: str,
) -> str:
    """Return a bar whose label is clipped at its end."""
    return (
        f'<svg class="{class_}" x="{scale.x(from_s)}" width="{scale.width(from_s, to_s)}" '
        f'y="{y}" height="{height}"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" rx="2"/>'
        f'<text x="5" y="{height / 2 + 4}">{escape(label)}</text></svg>'
    )


def _process_bar(scale: _TimeScale, span: _ProcessSpan, y: int) -> str:
    title = f"{span.name}: {span.state} from {span.from_s:.3f} s to {span.to_s:.3f} s"
    label = "" if span.state == "running" else span.state
    if span.state == "ended":
        return ""
    return _bar(
        scale, span.from_s, span.to_s, y + 1, _LANE - 2, label, f"process {span.state}", title
    )


def _request_mark(scale: _TimeScale, request: RecordedRequest, y: int) -> str:
    if request.kind == "other" and not request.error:
        return ""
    top, bottom = _MARKS.get(request.kind, _MARKS["group"])
    answer = "no response" if request.done_s is None else f"answered at {request.done_s:.3f} s"
    title = escape(f"{request.at_s:.3f} s: {_request_text(request)} ({answer})")
    error = " error" if request.error else ""
    x = scale.x(request.at_s)
    if request.kind == "group" and request.done_s is not None:
        width = scale.width(request.at_s, request.done_s)
        return (
            f'<rect class="mark group{error}" x="{x}" width="{width}" y="{y + top}" '
            f'height="{bottom - top}"><title>{title}</title></rect>'
        )
    return (
        f'<line class="mark {request.kind}{error}" x1="{x}" x2="{x}" y1="{y + top}" '
        f'y2="{y + bottom}"><title>{title}</title></line>'
    )


def _owner_bars(
    scale: _TimeScale,
    partition: TopicPartition,
    run: RecordedRun,
    colours: dict[str, str],
    y: int,
) -> tuple[list[str], int]:
    """Return the bars of a partition's owners and the height of its row.

    Owners of the same time are below each other.
    """
    free_from: list[float] = []
    bars = []
    for owned in run.owned:
        if owned.partition != partition or owned.from_s > run.failed_at_s:
            continue
        lane = next((n for n, end in enumerate(free_from) if end <= owned.from_s), len(free_from))
        free_from[lane : lane + 1] = [owned.to_s]
        title = (
            f"{owned.process} owned {_partition_name(partition)} in group {owned.group} "
            f"from {owned.from_s:.3f} s to {owned.to_s:.3f} s"
        )
        bars.append(
            _bar(
                scale,
                owned.from_s,
                min(owned.to_s, run.failed_at_s),
                y + lane * (_ROW - 2) + 1,
                _ROW - 4,
                owned.process,
                f"owner {colours.get(owned.process, 'm0')}",
                title,
            )
        )
    height = max(len(free_from), 1) * (_ROW - 2) + 2
    for request in run.requests:
        if request.kind == "commit" and partition in request.offsets:
            x = scale.x(request.at_s)
            offset = request.offsets[partition]
            error = f", {request.error}" if request.error else ""
            bars.append(
                f'<line class="mark commit" x1="{x}" x2="{x}" y1="{y + height - 10}" '
                f'y2="{y + height - 2}">'
                f"<title>{request.at_s:.3f} s: {escape(request.process)} committed offset {offset}"
                f"{error}</title></line>"
            )
    return bars, height


def _fault_spans(run: RecordedRun) -> Iterator[tuple[float, float, str]]:
    """Yield the cuts and slow networks, which end with the next matching event."""
    for index, event in enumerate(run.events):
        if event.kind != "fault" or event.at_s > run.failed_at_s:
            continue
        ended = {"all faults are healed"}
        if event.text.startswith("cut "):
            one, other = event.text.removeprefix("cut ").split(" from ", 1)
            ended.add(f"the cut between {one} and {other} is healed")
        else:
            ended.add("the network is normal again")
        end_s = next(
            (later.at_s for later in run.events[index:] if later.text in ended), run.failed_at_s
        )
        yield event.at_s, min(end_s, run.failed_at_s), event.text


def _event_list(run: RecordedRun) -> str:
    rows: list[tuple[float, str, str, str]] = [
        (event.at_s, event.name, event.text, event.kind)
        for event in run.events
        if event.at_s <= run.failed_at_s
    ]
    rows += [
        (request.at_s, request.process, _request_text(request), f"request {request.kind}")
        for request in run.requests
        if request.at_s <= run.failed_at_s
    ]
    rows.sort(key=lambda row: row[0])
    rows.append((run.failed_at_s, "test", run.error.splitlines()[0], "violation"))
    omitted = len(rows) - ROWS_MAX
    note = f'<p class="quiet">{omitted:,} earlier events are omitted.</p>' if omitted > 0 else ""
    listed = "\n".join(
        f'<tr class="{kind}" data-at="{at_s:.4f}"><td>{at_s:.3f}</td><th scope="row">'
        f"{escape(name)}</th><td>{escape(text)}</td></tr>"
        for at_s, name, text, kind in rows[-ROWS_MAX:]
    )
    return (
        '<section aria-labelledby="events-title"><h2 id="events-title">Events</h2>\n'
        '<div class="controls" role="group" aria-label="Filter"><label><input type="checkbox" '
        'id="with-requests" checked> requests</label><label><input type="checkbox" id="with-logs" '
        f"checked> log lines</label></div>{note}\n"
        '<div class="events" id="events" tabindex="0" role="region" '
        'aria-label="Events; arrow keys move to the next or previous one"><table><thead><tr>'
        '<th scope="col">s</th><th scope="col">Process</th><th scope="col">Event</th></tr></thead>'
        f"<tbody>\n{listed}\n</tbody></table></div></section>"
    )


def _request_text(request: RecordedRequest) -> str:
    verb = {"fetch": " up to ", "commit": " → ", "produce": " at "}.get(request.kind, " ")
    offsets = ", ".join(
        f"{_partition_name(partition)}{verb}{offset}"
        for partition, offset in request.offsets.items()
    )
    parts = [request.api, request.text, offsets, request.error and f"⚠ {request.error}"]
    return " ".join(part for part in parts if part)


def _partition_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {error}".rstrip(": ")
