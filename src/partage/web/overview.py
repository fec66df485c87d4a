"""Selection, order and pages of the list of groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from partage.model.groups import GroupDescription, GroupListing
from partage.web.cluster_history import ClusterHistory
from partage.web.lag_history import Point

PAGE_MAX: Final = 50
SPARK_POINTS: Final = 60
_PAGE: Final = re.compile("[0-9]{1,9}")
# The maximum length of a topic name; longer group ids are found by a part of them.
_QUERY_MAX: Final = 249

ORDERS: Final[Mapping[str, tuple[str, Callable[[GroupDescription], Any]]]] = {
    "lag": ("Lag", lambda group: (-group.total_lag, group.group)),
    "group": ("Group", lambda group: group.group),
    "state": ("State", lambda group: (group.state, group.group)),
    "members": ("Members", lambda group: (-len(group.members), group.group)),
}


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A search in the list of groups; ``page`` counts from 1."""

    text: str = ""
    state: str = ""
    order: str = "lag"
    page: int = 1


class OverviewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the list; ``since_ms`` is None if no history is kept for the group."""

    group: GroupDescription
    since_ms: int | None
    is_since_known: bool
    spark: list[Point]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the list; ``found`` counts all matches, ``states`` covers all groups."""

    rows: list[OverviewRow]
    query: Query
    found: int
    total: int
    pages: int
    states: dict[str, int]
    total_lag: int


def parse_query(given: Mapping[str, str]) -> Query:
    """Return the search that a URL contains. Invalid values are ignored."""
    page = given.get("page", "")
    order = given.get("sort", "")
    return Query(
        text=given.get("q", "").strip()[:_QUERY_MAX],
        state=given.get("state", "")[:_QUERY_MAX],
        order=order if order in ORDERS else "lag",
        page=min(max(int(page), 1), 1_000_000) if _PAGE.fullmatch(page) else 1,
    )


def build_overview(watched: ClusterHistory, query: Query) -> Overview:
    """Return the page of matching groups; the last page if the page number is too high."""
    text = query.text.casefold()
    found = [
        group
        for group in watched.groups()
        if (not text or text in group.group.casefold())
        and (not query.state or group.state == query.state)
    ]
    found.sort(key=ORDERS[query.order][1])
    pages = max(-(-len(found) // PAGE_MAX), 1)
    page = min(query.page, pages)
    shown = found[(page - 1) * PAGE_MAX : page * PAGE_MAX]
    return Overview(
        rows=[_row(watched, group) for group in shown],
        query=msgspec.structs.replace(query, page=page),
        found=len(found),
        total=len(watched),
        pages=pages,
        states=dict(sorted(Counter(group.state for group in watched.groups()).items())),
        total_lag=sum(group.total_lag for group in watched.groups()),
    )


def _row(watched: ClusterHistory, group: GroupDescription) -> OverviewRow:
    memory = watched.history(group.group)
    if memory is None:
        return OverviewRow(group=group, since_ms=None, is_since_known=False, spark=[])
    return OverviewRow(
        group=group,
        since_ms=memory.since_ms,
        is_since_known=memory.is_since_known,
        spark=memory.lags.latest(SPARK_POINTS),
    )


def group_line(group: GroupDescription) -> GroupListing:
    """Return the group in the form of ``partage groups list --json``."""
    members = None if group.type is None else len(group.members)
    return GroupListing(group.group, group.protocol_type, group.type, group.state, members)
