"""The page over a real socket, with a real broker and real members."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from console.cli import PartageCli
from partage.testing import BrokerProcess, ThreadedBroker
from partage.web.cluster_history import ClusterSnapshot
from partage.web.poller import ClusterUnreachableError
from polled_conditions import eventually

from .groups import group
from .page_server import PageServer

pytestmark = pytest.mark.timeout(600)

_numbers = count(1)

#: A static member does not leave when it is closed; its session expires.
STATIC = {"group.instance.id": "static-1", "session.timeout.ms": 1_000}


class Site(NamedTuple):
    """A broker and its page."""

    broker: ThreadedBroker
    page: PageServer

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def topic(self, partitions: int = 4) -> str:
        """Create a topic with ten records in each partition."""
        name = f"t{next(_numbers)}"
        self.broker.create_topic(name, partitions)
        producer = Producer({"bootstrap.servers": self.servers})
        for partition in range(partitions):
            for _ in range(10):
                producer.produce(name, b"x", partition=partition)
        producer.flush(30)
        return name

    def commit(self, group: str, topic: str, offset: int, partitions: int = 4) -> None:
        """Create a group without members, with these committed offsets."""
        places = [TopicPartition(topic, number, offset) for number in range(partitions)]
        admin = AdminClient({"bootstrap.servers": self.servers})
        asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        for answer in asked.values():
            answer.result(30)

    def member(self, group: str, topic: str, client_id: str, **settings: object) -> Consumer:
        """Create a member, which the test must poll."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "client.id": client_id,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 100,
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.subscribe([topic])
        return consumer


def have(*members: Consumer, partitions: list[int]) -> None:
    """Poll until the members own these numbers of partitions."""

    def settled() -> bool:
        for each in members:
            each.poll(0.02)
        return sorted(len(each.assignment()) for each in members) == sorted(partitions)

    eventually(settled)


def site_of(events: str) -> Iterator[Site]:
    settings = {"enable": events, "lag.interval.ms": "200"}
    overrides = {f"partage.group.events.{name}": value for name, value in settings.items()}
    with ThreadedBroker(overrides) as broker, PageServer(broker.bootstrap_servers) as page:
        yield Site(broker, page)


@pytest.fixture(scope="module")
def telling() -> Iterator[Site]:
    """A broker that writes group events. Its page finds their topic soon after the first event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partage.console.web.group_events._TOPIC_EVERY_S", 0.1)
        yield from site_of("true")


@pytest.fixture(scope="module")
def silent() -> Iterator[Site]:
    """A broker without group events, like Apache Kafka."""
    yield from site_of("false")


def test_page_equals_command_output(telling: Site) -> None:
    topic, group = telling.topic(), "readers"
    members = [
        telling.member(group, topic, "plain"),
        telling.member(group, topic, "fixed", **STATIC),
    ]
    with closing(members[0]), closing(members[1]):
        have(*members, partitions=[2, 2])
        for each in members:
            places = [TopicPartition(of.topic, of.partition, 4) for of in each.assignment()]
            each.commit(offsets=places, asynchronous=False)
        lag = ["cooperative-sticky", "2", "24"]
        listed = telling.page.until_page("/", lambda page: lag in [row[3:6] for row in page.rows])
        assert listed.row(group)[1] == "Stable"
        shown = telling.page.until(f"/groups/{group}", "static-1")
        assert shown.row(f"{topic}-0")[1:4] == ["4", "10", "6"]
        rows = [row for row in shown.rows if "static-1" in row]
        assert rows[0][0].endswith(" fixed")
        assert rows[0][5] == "2"
        partage = PartageCli(telling.servers)
        described = partage("groups", "describe", "--group", group, "--json").json
        assert telling.page.get(f"/api/groups/{group}").json == described
    eventually(lambda: telling.page.get("/").page.row(group)[1] == "Empty")
    assert telling.page.get("/api/groups").json == partage("groups", "list", "--json").json


def test_page_shows_group_events(telling: Site) -> None:
    """The page shows the exact causes, including those from before its start."""
    topic, group = telling.topic(), "told"
    first = telling.member(group, topic, "stays")
    with closing(first):
        have(first, partitions=[4])
        second = telling.member(group, topic, "leaves")
        have(first, second, partitions=[2, 2])
        second.close()
        have(first, partitions=[4])
        with PageServer(telling.servers) as late:
            for page in (telling.page, late):
                shown = page.until(f"/groups/{group}", "Reported by the coordinator", "member left")
                causes = [row[2] for row in shown.rows if row[0].isdigit()]
                assert "member joined" in causes
                (left,) = [row for row in shown.rows if row[2:3] == ["member left"]]
                assert left[3].endswith("leaves")
                assert "Observed by polling" not in shown.text


def test_page_without_group_events_polls(silent: Site) -> None:
    topic, group = silent.topic(), "untold"
    first = silent.member(group, topic, "stays")
    with closing(first):
        have(first, partitions=[4])
        silent.page.until(f"/groups/{group}", "Observed by polling", "stays", "Stable")
        second = silent.member(group, topic, "leaves")
        have(first, second, partitions=[2, 2])
        shown = silent.page.until(f"/groups/{group}", "leaves", "member joined", "Stable")
        causes = [row[2] for row in shown.rows if row[3:4] and row[3].endswith(" leaves")]
        assert "member joined" in causes
        second.close()
        have(first, partitions=[4])
        shown = silent.page.until(f"/groups/{group}", "member removed")
        (gone,) = [row for row in shown.rows if row[2:3] == ["member removed"]]
        assert gone[3].endswith("leaves")
        assert not silent.page.get("/").page.text.count("cannot")


AWKWARD = [
    "<script>alert(1)</script>",
    "a/b?c#d%2e&x=1",
    ".",
    "..",
    "🛫 ü \u202e",
    "\"'><img src=x>",
]


def test_hostile_group_ids_are_harmless(silent: Site) -> None:
    topic = silent.topic()
    for name in AWKWARD:
        silent.commit(name, topic, 3)

    def listed() -> set[str]:
        return {each["group"] for each in silent.page.get("/api/groups").json["groups"]}

    eventually(lambda: set(AWKWARD) <= listed())
    shown = silent.page.get("/?q=&sort=group").page
    assert "<script>alert(1)</script>" in shown.text
    links = [link for link in shown.links if link.startswith("/groups/")]
    found = []
    for link in links:
        answer = silent.page.get(link)
        assert answer.status == 200, link
        assert "<img" not in answer.body
        assert answer.body.count("<script") == 1
        assert answer.page
        found += [each["group"] for each in silent.page.get(f"/api{link}").json["groups"]]
    assert set(AWKWARD) <= set(found)


def test_unknown_paths_give_404(silent: Site) -> None:
    silent.page.until("/", "as of")
    for path, status in [
        ("/groups/unknown-group", 404),
        ("/groups/", 404),
        ("/nothing", 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
        ("/static/app.py", 404),
        ("/api/groups/unknown-group", 404),
        ("/?page=99999&sort=nothing&state=%00&part=", 200),
    ]:
        assert silent.page.get(path).status == status, path
    assert silent.page.get("/api/groups/unknown-group").json == {"error": "no such group"}
    assert "no group 'unknown-group'" in silent.page.get("/groups/unknown-group").page.text


def test_only_get_and_own_host_names(silent: Site) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert silent.page.get("/", method=method).status == 405
    assert silent.page.get("/", host="evil.example").status == 421
    assert silent.page.get("/api/groups", host=f"evil.example:{silent.page.port}").status == 421
    assert silent.page.get("/", host="page.example").status == 200
    head = silent.page.get("/", method="HEAD")
    assert (head.status, head.body) == (200, "")
    for path in ("/", "/api/groups", "/static/live.js", "/nothing", "/healthz"):
        headers = silent.page.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "server" not in headers


@pytest.mark.parametrize("name", ["page.css", "live.js", "icon.svg"])
def test_static_files_have_no_external_references(silent: Site, name: str) -> None:
    text = silent.page.get(f"/static/{name}").body
    assert text
    code = re.sub(r"^\s*//.*$", "", text.replace("http://www.w3.org/2000/svg", ""), flags=re.M)
    assert "//" not in code
    assert "url(" not in text
    assert "innerHTML" not in text


def test_health_reports_reachable_cluster(silent: Site) -> None:
    silent.page.until("/", "as of")
    health = silent.page.get("/healthz").json
    assert (health["status"], health["cluster"]) == ("ok", "reachable")
    assert health["age_ms"] >= 0


class Gated:
    """A source that counts its polls and blocks from the second poll on."""

    def __init__(self) -> None:
        self.looks = 0
        self.let_through = threading.Event()

    def poll(self) -> ClusterSnapshot:
        self.looks += 1
        if self.looks > 1 and not self.let_through.wait(60):
            raise ClusterUnreachableError("not released")
        return ClusterSnapshot(at_ms=1_000, took_ms=1, groups=[group("g", lag=self.looks)])


def test_many_requests_cause_one_poll() -> None:
    source = Gated()
    with ExitStack() as stack:
        stack.callback(source.let_through.set)
        page = stack.enter_context(PageServer("nowhere:1", interval_ms=1, source=source))
        page.until("/", "g")
        eventually(lambda: source.looks == 2)
        for _ in range(50):
            assert page.get("/?part=live").status == 200
            assert page.get("/groups/g").status == 200
        assert source.looks == 2
        source.let_through.set()
        eventually(lambda: source.looks > 3)


def test_page_survives_broker_outage() -> None:
    with (
        BrokerProcess(overrides={"group.initial.rebalance.delay.ms": "0"}) as broker,
        PageServer(broker.bootstrap_servers, timeout_ms=1_000) as page,
    ):
        partage = PartageCli(broker.bootstrap_servers)
        partage("topics", "create", "-t", "t")
        partage("produce", "-t", "t", stdin="a\n")
        partage("consume", "-t", "t", "--group", "kept", "--from-beginning", "-e")
        page.until("/", "kept")
        broker.kill()
        shown = page.until("/", f"cannot reach {broker.bootstrap_servers}", "the data is")
        assert shown.row("kept")
        assert page.get("/healthz").json["cluster"] == "unreachable"
        assert page.get("/api/groups").headers["partage-age-ms"].isdigit()
        broker.start()
        eventually(lambda: "cannot reach" not in page.get("/").body)
        assert page.get("/").page.row("kept")


def test_page_of_unreachable_cluster() -> None:
    with PageServer("127.0.0.1:1", timeout_ms=300) as page:
        shown = page.until("/", "cannot reach 127.0.0.1:1", "no data since")
        assert "Stable" not in shown.text
        assert page.get("/groups/g").status == 503
        assert page.get("/api/groups").status == 503
