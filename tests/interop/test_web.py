"""The web page in a real browser with members and brokers that come and go, on both brokers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop.browser import Browser
from interop.members import fresh_name
from interop.peers.kafka import ApacheKafka
from interop.peers.server import BrokerProcess
from partage.testing import BrokerProcess as PartageProcess
from polled_conditions import PATIENCE_S, eventually
from web.page_server import PageServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture
def browser(peers: None) -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def member(servers: str, group: str, topic: str, client_id: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": client_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
        }
    )
    consumer.subscribe([topic])
    return consumer


def have(*members: Consumer, partitions: int) -> None:
    """Poll until members have equal shares of partitions, ``partitions`` in total."""

    def settled() -> bool:
        for each in members:
            each.poll(0.02)
        counts = sorted(len(each.assignment()) for each in members)
        return sum(counts) == partitions and counts[-1] - counts[0] <= 1

    eventually(settled)


#: Empty while another page loads.
TEXT = "(document.getElementById('live')?.innerText ?? '')"


def test_page_follows_changes_of_a_group(
    broker: BrokerProcess, topic: str, browser: Browser
) -> None:
    """Changes in the cluster appear on the page without a reload."""
    group = f"<script>document.title='owned'</script>{fresh_name('group')}"
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(120):
        producer.produce(topic, b"x", partition=number % 12)
    producer.flush(PATIENCE_S)
    with PageServer(broker.bootstrap, interval_ms=250) as page:
        home = f"http://127.0.0.1:{page.port}/"
        first = member(broker.bootstrap, group, topic, "<img src=x onerror=alert(1)>")
        with closing(first):
            have(first, partitions=12)
            browser.open(home)
            browser.look("window.isTheSame = true")
            browser.until(f"{TEXT}.includes({group!r})")
            # With the keyboard only: focus the search, enter a name, open the group.
            browser.look("document.getElementById('q').focus()")
            browser.write(group[-12:])
            browser.press("Enter", 13)
            browser.until(
                f"location.search.includes({group[-12:]!r}) && {TEXT}.includes('1 group found')"
            )
            browser.look("document.querySelector('tbody a').focus()")
            browser.press("Enter", 13)
            browser.until("location.pathname.startsWith('/groups/')")
            browser.until(f"document.readyState === 'complete' && {TEXT}.includes('Stable')")
            browser.look("window.isTheSame = true")
            browser.until("document.querySelectorAll('.timeline .bar').length >= 12")
            assert browser.look("document.querySelector('h1').innerText") == group
            # A member joins; the page shows the owners and the moved partitions.
            second = member(broker.bootstrap, group, topic, "second")
            have(first, second, partitions=12)
            named = "[...document.querySelectorAll('tbody bdi')].map((each) => each.innerText)"
            browser.until(f"{named}.includes('second')")
            browser.until(f"{TEXT}.includes('member joined') && !{TEXT}.includes('under way')")
            browser.until("document.querySelectorAll('.timeline .rebalance').length >= 1")
            second.close()
            have(first, partitions=12)
            gone = "member left" if "partage" in type(broker).__name__.lower() else "member removed"
            browser.until(f"{TEXT}.includes({gone!r})")
        browser.until(f"{TEXT}.includes('Empty')")
        assert browser.look("window.isTheSame"), "the page was reloaded"
        assert browser.look("document.title").startswith("<script>")
        assert browser.look("document.images.length") == 0
        assert {url.startswith(home) for url in browser.requested()} == {True}
        assert browser.complaints() == []


def test_text_contrast_in_both_colour_schemes(broker: BrokerProcess, browser: Browser) -> None:
    """The contrast of text is sufficient in both colour schemes."""
    with PageServer(broker.bootstrap, interval_ms=250) as page:
        page.until("/", "as of")
        lightness = {}
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.open(f"http://127.0.0.1:{page.port}/")
            for kind in ("color", "backgroundColor"):
                found = browser.look(f"getComputedStyle(document.body).{kind}")
                lightness[scheme, kind] = sum(map(int, found.strip("rgb()").split(",")[:3])) / 3
            png = browser.picture()
            assert struct.unpack(">I", png[16:20])[0] >= 1_000
        assert lightness["light", "backgroundColor"] - lightness["light", "color"] > 150
        assert lightness["dark", "color"] - lightness["dark", "backgroundColor"] > 150


def test_focus_survives_page_update(broker: BrokerProcess, topic: str, browser: Browser) -> None:
    group = fresh_name("group")
    with (
        closing(member(broker.bootstrap, group, topic, "one")) as one,
        PageServer(broker.bootstrap, interval_ms=250) as page,
    ):
        have(one, partitions=12)
        page.until("/", group)
        browser.open(f"http://127.0.0.1:{page.port}/?q={group}")
        link = "document.querySelector('tbody a')"
        browser.look(f"{link}.focus(); window.was = document.activeElement")
        # It is a new element now, with the same link.
        browser.until("document.activeElement !== window.was")
        assert browser.look("document.activeElement.innerText") == group
        browser.look("document.getElementById('pause').click()")
        assert browser.look("document.getElementById('pause').innerText") == "Resume"
        before = browser.look("document.querySelector('.fresh').innerText")
        asked = len(browser.requested())
        eventually(lambda: before not in page.get("/").page.text)
        assert browser.look("document.querySelector('.fresh').innerText") == before
        browser.look("document.getElementById('pause').click()")
        browser.until(f"document.querySelector('.fresh').innerText !== {before!r}")
        assert len(browser.requested()) > asked


def test_page_without_scripts_is_complete(
    broker: BrokerProcess, topic: str, browser: Browser
) -> None:
    """The page is complete, and reloads itself."""
    group = fresh_name("group")
    with (
        closing(member(broker.bootstrap, group, topic, "one")) as one,
        PageServer(broker.bootstrap, interval_ms=250) as page,
    ):
        have(one, partitions=12)
        page.until(f"/groups/{group}", "Stable")
        browser.ask("Emulation.setScriptExecutionDisabled", value=True)
        browser.open(f"http://127.0.0.1:{page.port}/groups/{group}")
        # The page reloads itself, so the next expression can meet a page that is loading.
        browser.until(f"document.body?.innerText.includes({group!r})")
        browser.until("document.querySelectorAll('.bar').length >= 12")
        first = browser.look("performance.timeOrigin")
        browser.until(
            f"performance.timeOrigin !== {first} && document.querySelector('h1') !== null"
        )
        browser.until("document.getElementById('pause')?.hidden")


def test_page_shows_lost_cluster_and_lost_server(browser: Browser) -> None:
    with PartageProcess() as broker:
        with PageServer(broker.bootstrap_servers, interval_ms=250, timeout_ms=500) as page:
            page.until("/", "as of")
            browser.open(f"http://127.0.0.1:{page.port}/")
            broker.kill()
            browser.until(f"{TEXT}.includes('cannot reach {broker.bootstrap_servers}')")
            broker.start()
            browser.until(f"!{TEXT}.includes('cannot reach')")
        # Now the server of the page has ended.
        lost = "document.getElementById('lost')"
        browser.until(f"!{lost}.hidden && {lost}.innerText.includes('server of this page')")


def test_page_shows_kip_848_group(peers: None) -> None:
    """With KIP-848, members have no generation and no leader, but the page shows them."""
    with ApacheKafka() as kafka, PageServer(kafka.bootstrap, interval_ms=250) as page:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(PATIENCE_S)
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": "modern",
                "group.protocol": "consumer",
                "client.id": "one",
            }
        )
        with closing(consumer):
            consumer.subscribe(["t"])
            have(consumer, partitions=4)
            shown = page.until("/groups/modern", "Consumer", "Stable", "t(0-3)")
            assert "Observed by polling" in shown.text
            assert shown.row("t-3")[4].endswith(" one")
            assert page.get("/").page.row("modern")[3:5] == ["uniform", "1"]
