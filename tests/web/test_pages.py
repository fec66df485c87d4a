"""Content of the pages, including text from untrusted clients."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partage.model.groups import GroupDescription, TopicPartitions
from partage.store.group_events import encode_event
from partage.web.cluster_history import (
    ClusterHistory,
    ClusterSnapshot,
    ReceivedEvent,
    UnstablePartition,
)
from partage.web.formats import age, count, duration, group_url
from partage.web.group_page import WINDOWS, GroupQuery, group_section
from partage.web.markup import escape_invisible
from partage.web.overview import Query, build_overview, parse_query
from partage.web.pages import PageContext, groups_section, page, search_form
from pipelines.event_script import events

from .groups import group, member, with_members
from .html_page import Page
from .test_event_timeline import STORY
from .test_markup import HOSTILE

AT = 60_000
AROUND = PageContext(servers="kafka-1:9092", interval_ms=2_000, now_ms=AT + 3_000)


def watched_with(*groups: GroupDescription, story: str = "") -> ClusterHistory:
    watched = ClusterHistory()
    told = [ReceivedEvent(event, encode_event(event)) for event in events(story)]
    watched.add(ClusterSnapshot(at_ms=AT, took_ms=12, groups=groups, events=told))
    return watched


def all_groups(watched: ClusterHistory, **query: str) -> Page:
    wanted = parse_query(query)
    live = groups_section(watched, build_overview(watched, wanted), AROUND)
    return Page(page("Groups", live, AROUND, search_form(wanted)))


def one_group(watched: ClusterHistory, name: str, window: str = "1h") -> Page:
    of = watched.group(name)
    assert of is not None
    return Page(
        page(name, group_section(watched, of, GroupQuery(name=name, window=window), AROUND), AROUND)
    )


def test_groups_page_lists_groups() -> None:
    shown = all_groups(watched_with(group("tower", a="0-1", b="2-3", lag=1_204), group("idle")))
    assert shown.row("tower") == ["tower", "Stable", "over 3 s", "range", "2", "1,204", ""]
    assert shown.row("idle")[1:5] == ["Empty", "over 3 s", "–", "0"]
    assert "2 groups" in shown.text
    assert "1 Stable" in shown.text
    assert "last poll 12 ms" in shown.text
    assert "/groups/tower" in shown.links


def test_group_page_with_events() -> None:
    told = watched_with(group("g", a="0-1", b="2-3", lag=1_204), story=STORY)
    shown = one_group(told, "g")
    assert shown.row("t-0") == ["t-0", "10", "1,214", "1,204", "C a"]
    assert shown.row("2")[2:6] == ["member joined", "B b", "2.5 s", "assigned"]
    assert "Generation 2" in shown.text
    assert "Reported by the coordinator" in shown.text
    assert "kafka-1:9092 (1)" in shown.text


def test_group_page_lists_members() -> None:
    members = [member("static-1", "0-2,7", rack="row-4"), member("plain", "3")]
    shown = one_group(watched_with(with_members("g", members)), "g")
    assert shown.row("A static-1") == [
        *("A static-1", "static-1-id", "static-1", "/10.0.0.1", "row-4", "4", "t(0-2,7)")
    ]
    assert shown.row("B plain")[2:5] == ["–", "/10.0.0.1", "–"]
    assert "Observed by polling" in shown.text


def test_group_page_shows_epochs_and_targets() -> None:
    target = [TopicPartitions("t", [0, 1])]
    members = [
        member("first", "0-3", epoch=2, target=target),
        member("second", "0-1", epoch=3, target=target),
        member("third", "2", epoch=3, target=[]),
    ]
    consumers = msgspec.structs.replace(
        with_members("g", members, "Reconciling"), group_epoch=4, target_epoch=3
    )
    shown = one_group(watched_with(consumers), "g")
    assert shown.row("A first")[-2:] == ["2", "t(0-1)"]
    assert shown.row("B second")[-2:] == ["3", "reached"]
    assert shown.row("C third")[-2:] == ["3", "none"]
    assert "Epoch 4" in shown.text
    assert "Target epoch 3" in shown.text


@pytest.mark.parametrize("window", WINDOWS)
def test_group_page_for_each_window(window: str) -> None:
    assert one_group(watched_with(group("g", a="0"), story=STORY), "g", window)


def test_pages_before_first_poll_and_after_failure() -> None:
    watched = ClusterHistory()
    assert "for the first time" in all_groups(watched).text
    watched.record_failure(1, "no broker answered")
    assert "no data since" in all_groups(watched).text
    watched = watched_with(group("g", a="0"))
    watched.record_failure(AT + 1_000, "no broker answered")
    for shown in (all_groups(watched), one_group(watched, "g")):
        assert "cannot reach kafka-1:9092: no broker answered" in shown.text
        assert "the data is 3 s old" in shown.text
        assert "Stable" in shown.text


def test_groups_page_without_groups() -> None:
    assert "There are no groups" in all_groups(watched_with()).text
    assert "No group matches" in all_groups(watched_with(group("g")), q="h").text


def test_page_links_keep_search() -> None:
    watched = watched_with(*[group(f"a&b {n}") for n in range(120)])
    shown = all_groups(watched, q="a&b", sort="group", page="2")
    assert "page 2 of 3" in shown.text
    assert "/?q=a%26b&sort=group" in shown.links
    assert "/?q=a%26b&sort=group&page=3" in shown.links


def test_long_tables_are_truncated() -> None:
    owned = {f"m{n}": str(n) for n in range(600)}
    shown = one_group(watched_with(group("g", "", 0, **owned)), "g")
    assert "Members, 500 of 600 rows" in shown.text
    assert "the first 64 of 600 partitions" in shown.text


@settings(max_examples=60)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_untrusted_text_is_escaped(name: str, client: str, host: str) -> None:
    """Also as a client id, a host, a rack, an instance id, and a search."""
    name = name.encode(errors="replace").decode()
    one = member("m", "0", client_id=client, host=host, rack=host, group_instance_id=name or None)
    watched = watched_with(with_members(name, [one]))
    shown = one_group(watched, name)
    assert escape_invisible(client) in shown.texts or not client
    listed = all_groups(watched, q=name)
    assert {link for link in listed.links if link.startswith("/groups/")}
    for each in (shown, listed):
        assert set(each.sources) == {"/static/icon.svg", "/static/page.css", "/static/live.js"}
        assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in each.links)


@example("")
@example(".")
@example("..")
@example("a/b?c#d%2e")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_group_url_round_trip(name: str) -> None:
    url = group_url(name, window="1h")
    path, _, query = url.partition("?")
    found = unquote(path.removeprefix("/groups/"))
    if name in ("", ".", ".."):
        assert (path, query.startswith("id=")) == ("/groups/", True)
    else:
        assert found == name
        assert "/" not in path.removeprefix("/groups/")


def test_held_partitions_are_shown() -> None:
    open_one = UnstablePartition(
        topic="t",
        partition=0,
        start_offset=1_204,
        since_ms=AT - 57_000,
        producer_id=7,
        producer_epoch=1,
        transactional_id="copier\u202e",
        is_hanging=False,
    )
    hanging = msgspec.structs.replace(open_one, partition=1, transactional_id=None, is_hanging=True)
    watched = ClusterHistory()
    held = [open_one, hanging]
    watched.add(ClusterSnapshot(at_ms=AT, took_ms=1, groups=[group("g")], held=held))
    shown = all_groups(watched)
    ends = "when its producer or its timeout ends it"
    assert shown.row("t-0") == ["t-0", "1,204", "1 min", "copier\\u202e", "7", ends]
    abort = "never: partage transactions abort t:1 --start-offset 1204"
    assert shown.row("t-1")[3:] == ["–", "7", abort]
    watched.add(ClusterSnapshot(at_ms=AT, took_ms=1, groups=[group("g")]))
    assert "stable offset" not in all_groups(watched).text


def test_remark_is_shown() -> None:
    watched = ClusterHistory()
    watched.add(
        ClusterSnapshot(at_ms=AT, took_ms=1, groups=[], remarks=["__group_events cannot be read"])
    )
    assert "cannot be read" in all_groups(watched).text


def test_formats() -> None:
    assert [age(ms) for ms in (-5, 0, 14_000, 200_000, 7_500_000, 180_000_000)] == [
        *("0 s", "0 s", "14 s", "3 min", "2 h 5 min", "2 days 2 h")
    ]
    assert [duration(ms) for ms in (None, 12, 3_210, 125_000)] == [
        *("–", "12 ms", "3.2 s", "2 min 5 s")
    ]
    assert (count(1, "group"), count(1_204, "group")) == ("1 group", "1,204 groups")
    assert build_overview(ClusterHistory(), Query()).total == 0
