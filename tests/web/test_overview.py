"""Search, order and pages of thousands of groups."""

from __future__ import annotations

import pytest

from partage.web.cluster_history import ClusterHistory, ClusterSnapshot
from partage.web.overview import PAGE_MAX, Query, build_overview, group_line, parse_query

from .groups import group


@pytest.fixture
def watched() -> ClusterHistory:
    made = ClusterHistory()
    groups = [group(f"Orders-{n:04}", lag=n % 7) for n in range(2_000)]
    groups += [group("tower", m="0-3", lag=90), group("late", "PreparingRebalance", a="", b="")]
    made.add(ClusterSnapshot(at_ms=1_000, took_ms=5, groups=groups))
    return made


def names(watched: ClusterHistory, **query: str) -> list[str]:
    return [row.group.group for row in build_overview(watched, parse_query(query)).rows]


def test_overview_sorts_by_lag(watched: ClusterHistory) -> None:
    shown = build_overview(watched, Query())
    assert [row.group.group for row in shown.rows[:2]] == ["tower", "Orders-0006"]
    assert len(shown.rows) == PAGE_MAX
    assert (shown.total, shown.found, shown.pages) == (2_002, 2_002, 41)
    assert shown.states == {"Empty": 2_000, "PreparingRebalance": 1, "Stable": 1}
    assert shown.total_lag == sum(n % 7 for n in range(2_000)) + 90


def test_overview_filters_and_sorts(watched: ClusterHistory) -> None:
    assert names(watched, q="orders-199", sort="group") == [f"Orders-199{n}" for n in range(10)]
    assert names(watched, q="TOW") == ["tower"]
    assert names(watched, state="PreparingRebalance") == ["late"]
    assert names(watched, sort="members")[:2] == ["late", "tower"]
    assert names(watched, sort="state")[0] == "Orders-0000"
    assert names(watched, q="nothing like it") == []


def test_each_group_is_on_one_page_only(watched: ClusterHistory) -> None:
    seen = [name for page in range(1, 42) for name in names(watched, page=str(page), sort="group")]
    assert len(seen) == len(set(seen)) == 2_002


@pytest.mark.parametrize("page", ["0", "-1", "x", "", "9" * 400, "٣", "1e3"])
def test_invalid_page_numbers_are_corrected(watched: ClusterHistory, page: str) -> None:
    shown = build_overview(watched, parse_query({"page": page}))
    assert 1 <= shown.query.page <= shown.pages
    assert shown.rows


def test_too_high_page_is_last_page(watched: ClusterHistory) -> None:
    shown = build_overview(watched, parse_query({"page": "400"}))
    assert shown.query.page == 41
    assert len(shown.rows) == 2


def test_group_line() -> None:
    line = group_line(group("g", a="0"))
    assert (line.group, line.protocol_type, line.type, line.state, line.members) == (
        ("g", "consumer", "Classic", "Stable", 1)
    )
