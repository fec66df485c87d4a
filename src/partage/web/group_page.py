"""Page of one group: facts, members, lag, partitions, timeline and rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from partage.model.groups import GroupDescription, MemberDescription, format_partitions
from partage.web.cluster_history import ClusterHistory, GroupHistory
from partage.web.formats import ABSENT, clock, count, duration, group_url, number
from partage.web.lag_charts import lag_chart
from partage.web.markup import Child, Markup, concatenate, element
from partage.web.pages import (
    PageContext,
    live_section,
    name_element,
    protocol_text,
    since_element,
    state_element,
    table,
    time_element,
)
from partage.web.polled_timeline import member_key as key_of
from partage.web.timeline import Timeline, TimelineRebalance
from partage.web.timeline_chart import (
    PARTITIONS_MAX,
    colour_class,
    member_codes,
    timeline_chart,
    visible_partitions,
)


class ChartWindow(NamedTuple):
    """A time window of the charts."""

    label: str
    length_ms: int


#: Time windows of the charts, by the word in the URL.
WINDOWS: Final[Mapping[str, ChartWindow]] = {
    "10m": ChartWindow("10 minutes", 600_000),
    "1h": ChartWindow("1 hour", 3_600_000),
    "6h": ChartWindow("6 hours", 21_600_000),
    "24h": ChartWindow("24 hours", 86_400_000),
}
WINDOW_DEFAULT: Final = "1h"
_LEAST_MS: Final = 60_000
REBALANCES_MAX: Final = 50
ROWS_MAX: Final = 500


class GroupQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A group and the time window of its charts."""

    name: str
    window: str = WINDOW_DEFAULT


def group_section(
    watched: ClusterHistory, group: GroupDescription, wanted: GroupQuery, around: PageContext
) -> Markup:
    """Return the changing section of a group's page: its last state and its history."""
    memory = watched.history(group.group)
    at_ms = around.now_ms if watched.at_ms is None else watched.at_ms
    content: list[Child] = [
        element("h1", name_element(group.group)),
        _facts(group, memory, around),
    ]
    codes: dict[str, str] = {}
    if memory is not None:
        timeline = memory.timeline()
        names = [key_of(member) for member in group.members]
        # In order of first appearance, so that a member keeps its letter when another member
        # leaves.
        codes = member_codes([*(span.member for span in timeline.spans), *names])
        content += _pictures(memory, timeline, codes, wanted, at_ms)
        content += _rebalances(timeline, codes)
    else:
        content.append(
            element("p", "No history is kept for this group: the cluster has too many groups.")
        )
    content += [_members(group, codes), _partitions(group, codes)]
    return live_section(watched, around, content)


def _facts(group: GroupDescription, memory: GroupHistory | None, around: PageContext) -> Markup:
    facts: list[tuple[str, Child]] = [("State", state_element(group.state))]
    if memory is not None:
        facts.append(
            ("Since", since_element(memory.since_ms, memory.is_since_known, around.now_ms))
        )
        if memory.events.generation is not None:
            facts.append(("Generation", memory.events.generation))
    if group.group_epoch is not None:
        facts.append(("Epoch", group.group_epoch))
        facts.append(("Target epoch", ABSENT if group.target_epoch is None else group.target_epoch))
    at = group.coordinator
    facts += [
        ("Protocol", protocol_text(group)),
        ("Type", group.type or ABSENT),
        ("Coordinator", ABSENT if at is None else f"{at.host}:{at.port} ({at.id})"),
        ("Members", number(len(group.members))),
        ("Lag", number(group.total_lag)),
    ]
    return element(
        "dl",
        [element("div", element("dt", name), element("dd", value)) for name, value in facts],
        class_="facts",
    )


def _pictures(
    memory: GroupHistory,
    timeline: Timeline,
    codes: Mapping[str, str],
    wanted: GroupQuery,
    at_ms: int,
) -> list[Child]:
    window_start_ms = at_ms - WINDOWS[wanted.window].length_ms
    points = memory.lags.since(window_start_ms)
    begins = [timeline.since_ms] if timeline.since_ms else []
    begins += [points[0].at_ms] if points else []
    from_ms = min(max(window_start_ms, min(begins, default=at_ms)), at_ms - _LEAST_MS)
    partition_count = len(visible_partitions(timeline, from_ms))
    source = (
        "Reported by the coordinator in __group_events"
        if timeline.is_from_events
        else f"Observed by polling since {clock(timeline.since_ms)} UTC"
    )
    partly = "" if timeline.is_complete else "; the history is incomplete"
    limited = (
        f"; the first {PARTITIONS_MAX} of {partition_count:,} partitions"
        if partition_count > PARTITIONS_MAX
        else ""
    )
    return [
        _windows(wanted),
        element("h2", "Lag"),
        _scrolling("Lag over time", lag_chart(points, from_ms, at_ms)),
        element("h2", "Partition owners"),
        element(
            "p",
            f"{source}{partly}{limited}. Where a row is empty, no member owned the partition.",
            class_="note",
        ),
        _scrolling("Partition owners", timeline_chart(timeline, codes, from_ms, at_ms))
        if partition_count or timeline.rebalances
        else element("p", "No member has owned a partition yet."),
    ]


def _scrolling(label: str, picture: Markup) -> Markup:
    return element("div", picture, class_="scroll", tabindex=0, role="region", aria_label=label)


def _windows(wanted: GroupQuery) -> Markup:
    return element(
        "nav",
        "The last ",
        [
            concatenate(
                " · " if index else "",
                element(
                    "a",
                    words,
                    href=group_url(wanted.name, window=window),
                    aria_current="true" if window == wanted.window else None,
                ),
            )
            for index, (window, (words, _)) in enumerate(WINDOWS.items())
        ],
        aria_label="Time window",
        class_="windows",
    )


def _rebalances(timeline: Timeline, codes: Mapping[str, str]) -> list[Child]:
    if not timeline.rebalances:
        return [element("p", "No rebalance was observed.")]
    numbered = list(enumerate(timeline.rebalances, start=1))[-REBALANCES_MAX:]
    rows = [_rebalance(position, mark, timeline, codes) for position, mark in reversed(numbered)]
    heads: list[Child] = ["Number", "Started", "Cause", "Member", "Duration", "Outcome"]
    heads += ["Generation", "Moved", "Stalled"]
    left_out = len(timeline.rebalances) - len(numbered)
    more = f", the last {REBALANCES_MAX} of {len(timeline.rebalances):,}" if left_out else ""
    return [table(f"Rebalances{more}", heads, rows, kinds="nswsnsnnn")]


def _rebalance(
    position: int, mark: TimelineRebalance, timeline: Timeline, codes: Mapping[str, str]
) -> list[Child]:
    reader = timeline.members.get(mark.member or "")
    who: Child = ABSENT
    if mark.member is not None:
        words = mark.member if reader is None else reader.client_id or mark.member
        who = concatenate(_key(codes.get(mark.member)), name_element(words))
    # Without a reason from the member, the coordinator's reason repeats the member id.
    has_more = mark.reason and not (mark.member and mark.member in mark.reason)
    cause = f"{mark.cause}: {mark.reason}" if has_more else mark.cause
    return [
        position,
        time_element(mark.started_ms, clock(mark.started_ms)),
        cause,
        who,
        duration(mark.took_ms),
        mark.outcome,
        number(mark.generation),
        number(mark.moved),
        duration(mark.stalled_ms),
    ]


def _key(code: str | None) -> Markup | None:
    """Return the letter of a member in its colour."""
    if code is None:
        return None
    return concatenate(element("span", code, class_=f"key {colour_class(code)}"), " ")


def _members(group: GroupDescription, codes: Mapping[str, str]) -> Markup:
    if not group.members:
        return element("p", "The group has no members.")
    shown = group.members[:ROWS_MAX]
    heads: list[Child] = [
        "Client",
        "Member",
        "Instance",
        "Host",
        "Rack",
        "Partitions",
        "Assignment",
    ]
    has_epochs = group.group_epoch is not None
    heads += ["Epoch", "Target"] if has_epochs else []
    return table(
        _caption("Members", len(shown), len(group.members)),
        heads,
        [
            _member(member, codes) + (_reconciliation(member) if has_epochs else [])
            for member in shown
        ],
        kinds="swwwwnw" + ("nw" if has_epochs else ""),
    )


def _reconciliation(member: MemberDescription) -> list[Child]:
    """Return the epoch of a member, and the partitions that it must reach if it has others now."""
    target = member.target or []
    shown = " ".join(format_partitions(of.topic, of.partitions) for of in target)
    return [
        ABSENT if member.epoch is None else member.epoch,
        "reached" if target == member.partitions else shown or "none",
    ]


def _member(member: MemberDescription, codes: Mapping[str, str]) -> list[Child]:
    return [
        concatenate(_key(codes.get(key_of(member))), name_element(member.client_id)),
        name_element(member.member_id),
        name_element(member.group_instance_id) if member.group_instance_id else ABSENT,
        member.host,
        name_element(member.rack) if member.rack else ABSENT,
        number(sum(len(of.partitions) for of in member.partitions)),
        " ".join(format_partitions(of.topic, of.partitions) for of in member.partitions) or ABSENT,
    ]


def _partitions(group: GroupDescription, codes: Mapping[str, str]) -> Markup:
    if not group.offsets:
        return element("p", "The group has no partitions and no committed offsets.")
    members = {member.member_id: member for member in group.members}
    # If not all partitions fit, show those with the highest lag.
    partitions = group.offsets
    if len(partitions) > ROWS_MAX:
        partitions = sorted(partitions, key=lambda each: -(each.lag or 0))[:ROWS_MAX]
    rows: list[list[Child]] = []
    for each in partitions:
        owner = members.get(each.member_id or "")
        who: Child = ABSENT
        if owner is not None:
            who = concatenate(_key(codes.get(key_of(owner))), name_element(owner.client_id))
        rows.append(
            [
                f"{each.topic}-{each.partition}",
                number(each.current_offset),
                number(each.log_end_offset),
                number(each.lag),
                who,
            ]
        )
    heads: list[Child] = ["Partition", "Committed", "End", "Lag", "Owner"]
    caption = _caption("Partitions", len(partitions), len(group.offsets))
    return table(caption, heads, rows, kinds="wnnns")


def _caption(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what}, {shown:,} of {count(total, 'row')}"
