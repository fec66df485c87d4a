"""``partage pipeline rebalances`` on a real group with joins, a leave and a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from console.cli import PartageCli
from partage.pipelines.queries import QueryFailedError
from partage.pipelines.rebalances.local_analysis import analyse_locally
from partage.pipelines.rebalances.tables import TABLES
from partage.testing import BrokerProcess
from polled_conditions import eventually

DEADLINE_S = 120


class Member:
    """A consumer in a separate process."""

    def __init__(self, servers: str, name: str, protocol: str) -> None:
        script = Path(__file__).with_name("consumer_process.py")
        of_group = [servers, "tower", "flights", "10000"]
        command = [sys.executable, str(script), *of_group, name, protocol]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_S) == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait(DEADLINE_S)


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
        "partage.group.events.lag.interval.ms": "100",
    }
    with BrokerProcess(overrides=settings) as process:
        yield process


def once(servers: str, is_so: Callable[[dict[str, list[dict[str, Any]]]], bool]) -> None:
    """Wait until an analysis of the group's events satisfies ``is_so``."""
    source = {"kafka.bootstrap.servers": servers, "subscribe": "__group_events"}
    found: dict[str, list[dict[str, Any]]] = {}

    def is_analysed() -> bool:
        try:
            results = analyse_locally(source, ["tower"])
        except QueryFailedError:  # no event yet
            return False
        found.update({name: results.table(name).to_pylist() for name in TABLES})
        return bool(found["groups"]) and is_so(found)

    eventually(is_analysed, lambda: f"never came: {found}", DEADLINE_S)


def shared_by(count: int) -> Callable[[dict[str, list[dict[str, Any]]]], bool]:
    """Return a condition: ``count`` members read all partitions."""

    def is_so(found: dict[str, list[dict[str, Any]]]) -> bool:
        readers = {
            row["partition"]: row["member"] for row in found["ownership"] if not row["to_at"]
        }
        is_settled = all(row["outcome"] != "under way" for row in found["rebalances"])
        return is_settled and len(readers) == 6 and len(set(readers.values())) == count

    return is_so


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_real_group_with_join_leave_and_kill(
    broker: BrokerProcess, tmp_path: Path, protocol: str
) -> None:
    servers = broker.bootstrap_servers
    partage = PartageCli(servers)
    partage("topics", "create", "--topic", "flights", "--partitions", 6)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(600):
        producer.produce("flights", b"flight", str(number))
    assert producer.flush(60) == 0
    with ExitStack() as stack:
        members = []
        for number, name in enumerate(["ada", "ben", "cleo"], start=1):
            members.append(Member(servers, name, protocol))
            stack.callback(members[-1].end)
            once(servers, shared_by(number))
        _, ben, cleo = members
        cleo.leave()
        once(servers, shared_by(2))
        ben.kill()
        once(servers, lambda found: any(row["gone_by"] == "expired" for row in found["members"]))
        once(servers, shared_by(1))
        report = partage("pipeline", "rebalances", "--local", "-o", tmp_path / "out", "--json").json
    causes = {each["cause"]: each for each in report["causes"]}
    # At least, because a member may expire on a machine that stalls for ten seconds.
    assert causes["member joined"]["episodes"] >= 3
    assert causes["member left"]["episodes"] >= 1
    assert causes["session expired"]["episodes"] >= 1
    assert report["lost_events"] == report["unreadable_records"] == 0
    assert report["incomplete_groups"] == 0
    gone = {(row["client_id"], row["gone_by"]) for row in report["most_stalled_members"]}
    assert {("ada", None), ("ben", "expired"), ("cleo", "left")} <= gone
    # Two members shared six partitions, so three had a stall until ben expired.
    tables = {name: parquet.read_table(tmp_path / "out" / "tables" / name) for name in TABLES}
    names = {row["member"]: row["client_id"] for row in tables["members"].to_pylist()}
    expired = [row for row in tables["stalls"].to_pylist() if row["cause"] == "session expired"]
    stalls = [row for row in expired if names[row["from_member"]] == "ben"]
    assert len(stalls) == 3
    assert {(names[row["from_member"]], names[row["to_member"]]) for row in stalls} == {
        ("ben", "ada")
    }
    assert sum(row["moved"] for row in report["causes"]) == tables["moves"].num_rows
    reading = {row["partition"]: row for row in tables["ownership"].to_pylist() if not row["to_at"]}
    assert {names[row["member"]] for row in reading.values()} == {"ada"}
    assert {row["partition"] for row in tables["lag"].to_pylist()} <= set(range(6))
    assert len(report["pictures"]) == 2
