"""Report at the end of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from partage.pipelines.rebalances.results import Results

#: Maximum number of groups and of members in the report; the tables have all.
LISTED_MAX: Final = 10


class CauseTotal(msgspec.Struct, frozen=True, kw_only=True):
    """All rebalances with one cause, over all groups; times in ms."""

    cause: str
    episodes: int
    rebalances: int
    took_ms: int
    moved: int
    stalled_ms: int


class GroupTotal(msgspec.Struct, frozen=True, kw_only=True):
    """One group; times in ms. ``stalled_ms`` is the sum over its partitions."""

    group: str
    rebalances: int
    members_max: int
    moved: int
    stalled_ms: int
    refused_commits: int
    lag: int | None
    complete: bool


class MemberTotal(msgspec.Struct, frozen=True, kw_only=True):
    """One member; times in ms. ``partitions_stalled_ms`` is the sum over its partitions."""

    group: str
    member: str
    client_id: str
    stalled_ms: int
    partitions_stalled_ms: int
    waited_ms: int
    held_up_ms: int
    gone_by: str | None


class RebalancesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of an analysis.

    ``lost_events`` were dropped by the broker. ``unread_partitions`` belong to brokers that are
    down. ``incomplete_groups`` counts groups with missing events. ``first`` and ``last`` are the
    times of the first and last event.
    """

    events: int
    groups: int
    rebalances: int
    first: str | None
    last: str | None
    causes: list[CauseTotal]
    most_stalled_groups: list[GroupTotal]
    most_stalled_members: list[MemberTotal]
    refused_commits: int
    lost_events: int
    unread_partitions: int
    unreadable_records: int
    incomplete_groups: int
    output: str
    tables: dict[str, int]
    pictures: list[str]


def make_report(
    results: Results,
    *,
    output: str,
    tables: Mapping[str, int],
    pictures: Sequence[str],
    unread_partitions: int = 0,
) -> RebalancesReport:
    """Compute the report."""
    groups = _rows(results.table("groups"))
    real = [row for row in groups if row["group_id"] and row["events"]]
    listed = sorted(real, key=lambda row: (-row["stalled_ms"], row["group_id"]))[:LISTED_MAX]
    names = [row["group_id"] for row in listed]
    lag = last_lag(results.table("lag", names))
    return RebalancesReport(
        events=sum(row["events"] for row in real),
        groups=len(real),
        rebalances=sum(row["rebalances"] for row in real),
        first=_time(min((row["first_at"] for row in real), default=None)),
        last=_time(max((row["last_at"] for row in real), default=None)),
        causes=total_by_cause(results),
        most_stalled_groups=[
            GroupTotal(
                group=row["group_id"],
                rebalances=row["rebalances"],
                members_max=row["members_max"],
                moved=row["moved"],
                stalled_ms=row["stalled_ms"],
                refused_commits=row["refused_commits"],
                lag=lag.get(row["group_id"]),
                complete=row["is_complete"],
            )
            for row in listed
        ],
        most_stalled_members=[
            MemberTotal(
                group=row["group_id"],
                member=row["member"],
                client_id=row["client_id"],
                stalled_ms=row["stalled_ms"],
                partitions_stalled_ms=row["partitions_stalled_ms"],
                waited_ms=row["waited_ms"],
                held_up_ms=row["held_up_ms"],
                gone_by=row["gone_by"],
            )
            for row in _rows(results.top("members", "partitions_stalled_ms", LISTED_MAX))
        ],
        refused_commits=sum(row["refused_commits"] for row in real),
        lost_events=sum(row["lost_events"] for row in groups),
        unread_partitions=unread_partitions,
        unreadable_records=sum(row["unreadable"] for row in groups),
        incomplete_groups=sum(not row["is_complete"] for row in real),
        output=output,
        tables=dict(tables),
        pictures=list(pictures),
    )


def total_by_cause(results: Results) -> list[CauseTotal]:
    """Return the totals by cause over all groups, most frequent first."""
    sums: dict[str, dict[str, int]] = {}
    for row in _rows(results.table("causes")):
        del row["group_id"]
        of = sums.setdefault(row.pop("cause"), dict.fromkeys(row, 0))
        for name, value in row.items():
            of[name] += value
    totals = [CauseTotal(cause=cause, **of) for cause, of in sums.items()]
    return sorted(totals, key=lambda total: (-total.episodes, -total.rebalances, total.cause))


def last_lag(table: pa.Table) -> dict[str, int]:
    """Return the last known lag of each group, in records."""
    last: dict[tuple[str, str, int], tuple[datetime, int]] = {}
    for row in _rows(table):
        partition = row["group_id"], row["topic"], row["partition"]
        if partition not in last or row["seen_at"] >= last[partition][0]:
            last[partition] = row["seen_at"], row["lag"]
    sums: dict[str, int] = {}
    for (group_id, _, _), (_, lag) in last.items():
        sums[group_id] = sums.get(group_id, 0) + lag
    return sums


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")
