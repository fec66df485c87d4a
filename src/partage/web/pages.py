"""The frame of all pages, and the page with all groups. Builds HTML, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from partage.model.groups import GroupDescription
from partage.web.cluster_history import ClusterHistory, UnstablePartition
from partage.web.formats import ABSENT, age, clock, count, group_url, iso, number, timestamp
from partage.web.lag_charts import sparkline
from partage.web.markup import Child, Markup, concatenate, element
from partage.web.overview import ORDERS, Overview, OverviewRow, Query
from partage.web.polled_timeline import REBALANCING

_TROUBLE: Final = frozenset({"Dead", "Unknown"})


class PageContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context of all pages: bootstrap servers, polling interval and current time."""

    servers: str
    interval_ms: int
    now_ms: int


def page(title: str, live: Markup, around: PageContext, search: Markup | None = None) -> Markup:
    """Return a whole page. The script refreshes only ``live``."""
    seconds = max(-(-around.interval_ms // 1000), 5)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · partage"),
        element("link", rel="icon", href="/static/icon.svg"),
        element("link", rel="stylesheet", href="/static/page.css"),
        element("noscript", element("meta", http_equiv="refresh", content=seconds)),
        element("script", src="/static/live.js", defer=True),
    )
    header = element(
        "header",
        element("a", "partage", href="/", class_="home"),
        element("span", around.servers, class_="servers"),
        element("button", "Pause", type="button", id="pause", hidden=True, aria_pressed="false"),
        element("p", id="lost", class_="alert", role="alert", hidden=True),
    )
    body = element(
        "body",
        element("a", "Skip to the groups", href="#live", class_="skip"),
        header,
        search,
        live,
        data_interval=around.interval_ms,
    )
    return concatenate(Markup("<!doctype html>"), element("html", head, body, lang="en"))


def live_section(watched: ClusterHistory, around: PageContext, *content: Child) -> Markup:
    """Return the section that is refreshed: the age of the data, and the content."""
    return element("main", _freshness(watched, around), content, id="live", tabindex=-1)


def _freshness(watched: ClusterHistory, around: PageContext) -> Markup:
    failing, seen_ms = watched.failure, watched.at_ms
    parts: list[Child] = []
    if failing is not None:
        # In a separate element, because screen readers announce it when it changes.
        words = f"cannot reach {around.servers}: {failing}"
        parts.append(element("p", words, class_="alert", role="alert"))
        old = (
            "no data since this page was started"
            if seen_ms is None
            else f"the data is {age(around.now_ms - seen_ms)} old, from {timestamp(seen_ms)}"
        )
        parts.append(element("p", old, class_="old"))
    elif seen_ms is None:
        parts.append(element("p", f"polling {around.servers} for the first time …", class_="fresh"))
    else:
        every = f"polled every {around.interval_ms / 1000:g} s, last poll {watched.took_ms:,} ms"
        parts.append(
            element(
                "p",
                "as of ",
                time_element(seen_ms, timestamp(seen_ms)),
                f"; {every}",
                class_="fresh",
            )
        )
    parts += [element("p", remark, class_="remark") for remark in watched.remarks]
    return concatenate(parts)


def time_element(at_ms: int, words: str) -> Markup:
    """Return a machine-readable time element."""
    return element("time", words, datetime=iso(at_ms), title=timestamp(at_ms))


def name_element(text: str) -> Markup:
    """Return an id, isolated so that its writing direction does not affect the text around it."""
    return element("bdi", text or "(empty)")


def state_element(state: str) -> Markup:
    """Return the state of a group with a colour. The colour adds no information."""
    kind = "stable" if state == "Stable" else "quiet"
    if state in REBALANCING:
        kind = "moving"
    elif state in _TROUBLE:
        kind = "trouble"
    return element("span", state, class_=f"state {kind}")


def table(caption: str, heads: list[Child], rows: list[list[Child]], *, kinds: str) -> Markup:
    """Return a table.

    Args:
        caption: Caption and accessible name.
        heads: Column headers.
        rows: Cells; the first cell of a row is its header.
        kinds: A letter per column: n for right-aligned numbers, s for short text on one line, w for
            wide text that may break anywhere.
    """
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element(
                "thead",
                element(
                    "tr",
                    [
                        head
                        if isinstance(head, Markup) and head.startswith("<th")
                        else element("th", head, scope="col", class_=kind)
                        for head, kind in zip(heads, kinds, strict=True)
                    ],
                ),
            ),
            element(
                "tbody",
                [
                    element(
                        "tr",
                        [
                            element("th", cell, scope="row", class_=kind)
                            if index == 0
                            else element("td", cell, class_=kind)
                            for index, (cell, kind) in enumerate(zip(row, kinds, strict=True))
                        ],
                    )
                    for row in rows
                ],
            ),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


# Transactions


def held_section(held: Sequence[UnstablePartition], now_ms: int) -> Markup | None:
    """Return the table of partitions with held last stable offsets; None if there is none."""
    if not held:
        return None
    heads: list[Child] = ["Partition", "Held at", "For", "Transactional id", "Producer", "Ends"]
    return table(
        "Partitions with a held last stable offset",
        heads,
        [_held_row(each, now_ms) for each in held],
        kinds="wnswnw",
    )


def _held_row(held: UnstablePartition, now_ms: int) -> list[Child]:
    ends = (
        f"never: partage transactions abort {held.topic}:{held.partition} "
        f"--start-offset {held.start_offset}"
        if held.is_hanging
        else "when its producer or its timeout ends it"
    )
    return [
        name_element(f"{held.topic}-{held.partition}"),
        number(held.start_offset),
        time_element(held.since_ms, age(now_ms - held.since_ms)),
        ABSENT if held.transactional_id is None else name_element(held.transactional_id),
        str(held.producer_id),
        ends,
    ]


# All groups


def search_form(query: Query) -> Markup:
    """Return the search form.

    It is outside the refreshed section, so that a refresh does not disturb typing.
    """
    kept = {"state": query.state, "sort": "" if query.order == "lag" else query.order}
    return element(
        "form",
        element("label", "Find groups ", for_="q"),
        element("input", type="search", id="q", name="q", value=query.text, autocomplete="off"),
        [
            element("input", type="hidden", name=name, value=value)
            for name, value in kept.items()
            if value
        ],
        element("button", "Find"),
        action="/",
        method="get",
        role="search",
    )


def groups_section(watched: ClusterHistory, shown: Overview, around: PageContext) -> Markup:
    """Return the changing section of the page with all groups."""
    if watched.at_ms is None:
        return live_section(watched, around)
    return live_section(
        watched,
        around,
        held_section(watched.held, around.now_ms),
        _summary(shown),
        _groups(shown, around),
        _pager(shown),
    )


def _summary(shown: Overview) -> Markup:
    query = shown.query
    everything = _link(
        query, {"state": "", "page": 1}, count(shown.total, "group"), not query.state
    )
    states = [
        concatenate(
            ", ",
            _link(query, {"state": state, "page": 1}, f"{many:,} {state}", query.state == state),
        )
        for state, many in shown.states.items()
    ]
    found = f"; {count(shown.found, 'group')} found" if query.text or query.state else ""
    lag = f"; total lag {number(shown.total_lag)}"
    return element("p", everything, states, lag, found, class_="summary")


def _groups(shown: Overview, around: PageContext) -> Markup:
    if not shown.rows:
        return element("p", "No group matches." if shown.total else "There are no groups.")
    heads: list[Child] = [
        _head(shown.query, "group", ""),
        _head(shown.query, "state", ""),
        "Since",
        "Protocol",
        _head(shown.query, "members", "n"),
        _head(shown.query, "lag", "n"),
        "Recent lag",
    ]
    rows = [_row(row, around.now_ms) for row in shown.rows]
    return table("Groups", heads, rows, kinds="wsswnns")


def _row(row: OverviewRow, now_ms: int) -> list[Child]:
    group = row.group
    return [
        element("a", name_element(group.group), href=group_url(group.group)),
        state_element(group.state),
        since_element(row.since_ms, row.is_since_known, now_ms),
        protocol_text(group),
        number(len(group.members)),
        number(group.total_lag),
        sparkline(row.spark),
    ]


def since_element(since_ms: int | None, is_known: bool, now_ms: int) -> Child:
    """Return the time since a group is in its state, or at least since when."""
    if since_ms is None:
        return ABSENT
    words = age(now_ms - since_ms)
    return time_element(since_ms, words if is_known else f"over {words}")


def protocol_text(group: GroupDescription) -> str:
    """Return the assignor; for other than consumer groups, the protocol type and the protocol."""
    kind = "" if group.protocol_type in ("consumer", None) else f"{group.protocol_type}: "
    return f"{kind}{group.protocol or ABSENT}"


def _head(query: Query, order: str, kind: str) -> Markup:
    is_this = query.order == order
    link = _link(query, {"order": order, "page": 1}, ORDERS[order][0], is_this)
    direction = "descending" if order in ("lag", "members") else "ascending"
    return element(
        "th", link, scope="col", class_=kind or None, aria_sort=direction if is_this else None
    )


def _link(query: Query, changed: Mapping[str, object], words: str, is_current: bool) -> Markup:
    wanted = msgspec.structs.replace(query, **changed)
    href = overview_url(wanted)
    return element("a", words, href=href, aria_current="true" if is_current else None)


def overview_url(query: Query) -> str:
    """Return the URL of a search."""
    from urllib.parse import urlencode

    given = {
        "q": query.text,
        "state": query.state,
        "sort": "" if query.order == "lag" else query.order,
        "page": "" if query.page == 1 else str(query.page),
    }
    encoded = urlencode({name: value for name, value in given.items() if value})
    return f"/?{encoded}" if encoded else "/"


def _pager(shown: Overview) -> Markup | None:
    if shown.pages == 1:
        return None
    here = shown.query.page
    return element(
        "nav",
        _link(shown.query, {"page": here - 1}, "previous", False) if here > 1 else None,
        f" page {here:,} of {shown.pages:,} ",
        _link(shown.query, {"page": here + 1}, "next", False) if here < shown.pages else None,
        aria_label="Pages",
    )


__all__ = [
    "PageContext",
    "clock",
    "groups_section",
    "live_section",
    "page",
    "search_form",
]
