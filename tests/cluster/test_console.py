"""PartageCli while a broker of a cluster is down: they show the rest and name the missing part."""

from __future__ import annotations

import itertools
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from broker.raw_client import RawClient
from console.cli import PartageCli, records
from partage import sync
from partage.console.common import offsets as looked_up
from partage.console.common.cluster_client import ClusterClient as Reached
from partage.console.common.errors import CommandError
from partage.console.common.offsets import list_offsets
from partage.console.lab import live_view
from partage.console.records import producer
from partage.console.records.start_positions import BEGINNING, resolve_ranges
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from polled_conditions import PATIENCE_S, eventually

from .brokers import ClusterBroker, brokers, create, know_each_other
from .zookeeper_ensemble import Ensemble, ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

Cluster = dict[int, ClusterBroker]

#: Long enough for a live broker on a busy machine. Commands that need the other one wait for it.
TIMEOUT_MS: Final = 5_000
TIMEOUT: Final = ("--timeout-ms", TIMEOUT_MS)
CONNECT_TIMEOUT: Final = ("--connect-timeout-ms", TIMEOUT_MS)


@pytest.fixture(scope="module")
def out_of_reach(
    zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The second broker is down, which is not known yet: its address does not respond."""
    directory = tmp_path_factory.mktemp("out-of-reach")
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        with brokers(directory, zookeeper.connect_string, "/tests/out-of-reach") as running:
            running[2].stop()
            running[2].advertised = f"127.0.0.1:{held.getsockname()[1]}"
            running[2].start()
            eventually(lambda: know_each_other(running))
            prepare(running, group_of(running, 1))
            yield running


@pytest.fixture(scope="module")
def departed(zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The second broker is down, and the first one knows it: the second one's partitions have no
    leader.
    """
    directory = tmp_path_factory.mktemp("departed")
    with brokers(directory, zookeeper.connect_string, "/tests/departed") as running:
        prepare(running, "readers")
        running[2].kill()
        client = AdminClient({"bootstrap.servers": running[1].address, "log_level": 0})

        def leaders() -> list[int]:
            shown = client.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions
            return [shown[number].leader for number in sorted(shown)]

        eventually(lambda: leaders() == [1, -1], lambda: str(leaders()))
        yield running


@pytest.fixture(params=["out_of_reach", "departed"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Either of the two. If the leader is known to be missing, waits for it take no time."""
    if request.param == "departed":
        request.getfixturevalue("look_up_clock")
    found: Cluster = request.getfixturevalue(request.param)
    return found


class LookUpClock:
    """A clock that advances only when a look-up of offsets sleeps."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds

    def monotonic(self) -> float:
        return self.passed_s


@pytest.fixture
def look_up_clock(monkeypatch: pytest.MonkeyPatch) -> LookUpClock:
    clock = LookUpClock()
    monkeypatch.setattr(looked_up, "sleep", clock.sleep)
    monkeypatch.setattr(looked_up, "monotonic", clock.monotonic)
    return clock


def prepare(running: Cluster, group: str) -> None:
    """Write five records to the first broker's partition; the group has read two."""
    create(running, "t", [1, 2])
    told(running)("produce", "-t", "t", "-p", 0, stdin=records("abcde"))
    client = AdminClient({"bootstrap.servers": running[1].address, "log_level": 0})
    at = [TopicPartition("t", 0, 2), TopicPartition("t", 1, 0)]
    asked = [ConsumerGroupTopicPartitions(group, at)]
    client.alter_consumer_group_offsets(asked)[group].result(PATIENCE_S)


def told(running: Cluster) -> PartageCli:
    """The command line, with the first broker's address."""
    return PartageCli(running[1].address)


def group_of(running: Cluster, broker_id: int) -> str:
    """Return a group that this broker coordinates."""
    names = [f"g{number}" for number in range(40)]
    with RawClient(running[1].address, timeout_s=PATIENCE_S) as raw:
        asked = FindCoordinatorRequest(coordinator_keys=names)
        found = raw.request(FIND_COORDINATOR, asked).coordinators
    return next(each.key for each in found if each.node_id == broker_id)


def test_consume_topic_with_missing_leader_fails(cluster: Cluster) -> None:
    error = told(cluster).fails("consume", "-t", "t", "--exit", *CONNECT_TIMEOUT)
    assert error == "partition 1 of t has no leader; to read the others, name each of them with -p"


@pytest.mark.usefixtures("look_up_clock")
def test_consume_partitions_of_live_brokers(departed: Cluster) -> None:
    partage = told(departed)
    assert partage.lines("t", "-p", 0) == ["a", "b", "c", "d", "e"]
    error = partage.fails("consume", "-t", "t", "-p", 1, "-e", *CONNECT_TIMEOUT)
    assert error == "partition 1 of t has no leader"


def test_missing_leader_is_waited_for_once(departed: Cluster, look_up_clock: LookUpClock) -> None:
    with (
        Reached(departed[1].address, {}, 30_000, verbose=False) as reached,
        pytest.raises(CommandError, match="partition 1 of t"),
    ):
        resolve_ranges(reached, [("t", 0), ("t", 1)], BEGINNING)
    assert look_up_clock.passed_s == pytest.approx(looked_up.ELECTION_WAIT_S, abs=0.2)


@pytest.mark.parametrize(
    ("spec", "found"),
    [(OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5), (OffsetSpec.for_timestamp(2**50), -1)],
)
def test_offsets_without_leader_shows_other_partitions(
    departed: Cluster, spec: OffsetSpec, found: int
) -> None:
    with Reached(departed[1].address, {}, TIMEOUT_MS, verbose=False) as reached:
        assert list_offsets(reached, [("t", 0), ("t", 1)], spec) == {("t", 0): found}


def test_offsets_with_unreachable_leader_shows_other_partitions(out_of_reach: Cluster) -> None:
    """librdkafka waits for the whole timeout, so this takes long."""
    with Reached(out_of_reach[1].address, {}, TIMEOUT_MS, verbose=False) as reached:
        found = list_offsets(reached, [("t", 0), ("t", 1)], OffsetSpec.latest())
    assert found == {("t", 0): 5}


def test_produce_to_partition_without_leader_fails(
    departed: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(producer, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    asked = ("produce", "-t", "t", "-p", 1, *TIMEOUT, "-X", "message.timeout.ms=10000")
    assert told(departed).fails(*asked, stdin="a\n") == (
        "partition 1 of t has no leader; start its broker, or choose another partition with -p"
    )


def test_describe_omits_unknown_values(cluster: Cluster) -> None:
    described = told(cluster)("topics", "describe", "-t", "t", "--json", *TIMEOUT).json
    found = [
        (each["earliest_offset"], each["latest_offset"])
        for each in described["topics"][0]["partitions"]
    ]
    assert found == [(0, 5), (None, None)]


def test_lag_sums_known_partitions(departed: Cluster) -> None:
    shown = told(departed)("groups", "describe", "-g", "readers").lines
    assert shown[-1].endswith("total lag 3 excluding 1 partition with unknown end")


def test_list_groups_of_responding_brokers(out_of_reach: Cluster) -> None:
    as_json = told(out_of_reach).start("groups", "list", "--json", *map(str, TIMEOUT))
    listed = told(out_of_reach)("groups", "list", *TIMEOUT, code=1)
    assert group_of(out_of_reach, 1) in [line.split()[0] for line in listed.lines]
    told_of = f"broker 2 at {out_of_reach[2].advertised} (Connection refused)"
    assert listed.err.splitlines() == [
        f"error: the list may be incomplete: no response from {told_of}; start it, or try again"
    ]
    documents, _ = as_json.communicate(timeout=PATIENCE_S)
    assert as_json.returncode == 1
    assert json.loads(documents)["groups"]


def test_unresponsive_broker_is_named(out_of_reach: Cluster) -> None:
    group = group_of(out_of_reach, 2)
    error = told(out_of_reach).fails("groups", "describe", "-g", group, *TIMEOUT)
    told_of = f"broker 2 at {out_of_reach[2].advertised} (Connection refused)"
    assert error == f"no response from {told_of}; start it, or try again"


def test_broker_without_zookeeper_serves_known_state(tmp_path: Path) -> None:
    """It serves its last known state, and refuses changes, which may be applied later."""
    with (
        ensemble(tmp_path / "zookeeper") as zookeeper,
        brokers(tmp_path / "broker", zookeeper.connect_string, "/p", ids=(1,)) as running,
    ):
        partage = told(running)
        partage("topics", "create", "-t", "t")
        zookeeper.leader.signal(signal.SIGSTOP)
        there = (
            f"{running[1].address} is reachable, but the request timed out after 5000 ms: another "
        )
        there += "broker or ZooKeeper may be down; check with partage topics list "
        changes = {
            change: partage.start("topics", change, "-t", topic, "--timeout-ms", "5000")
            for change, topic in (("create", "new"), ("delete", "t"))
        }
        for change, process in changes.items():
            shown, error = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, shown) == (1, "")
            assert error == f"error: {there}whether it was {change}d\n"


def test_group_commands_ride_out_failover(zookeeper: Ensemble, tmp_path: Path) -> None:
    """A killed broker has its groups until its session ends, which takes longer than a request."""
    longer = {"zookeeper.session.timeout.ms": "12000"}
    with brokers(tmp_path, zookeeper.connect_string, "/tests/ridden", overrides=longer) as running:
        eventually(lambda: know_each_other(running))
        group = group_of(running, 2)
        prepare(running, group)
        running[2].kill()
        commands = [
            ["groups", "describe", group],
            ["groups", "list"],
            ["transactions", "list"],
            ["groups", "reset-offsets", group, "-t", "t:0", "--to-earliest", "--execute"],
        ]
        started = [told(running).start(*command) for command in commands]
        outputs = [process.communicate(timeout=PATIENCE_S) for process in started]
    described, listed, _, reset = (out.split() for out, _ in outputs)
    assert [process.returncode for process in started] == [0] * 4, outputs
    assert group in described
    assert group in listed
    assert group in reset


@pytest.mark.usefixtures("look_up_clock")
@pytest.mark.parametrize("scenario", ["--to-earliest", "--by-duration=PT1H"])
def test_reset_offsets_to_unknown_end_is_refused(departed: Cluster, scenario: str) -> None:
    asked = ("groups", "reset-offsets", "-g", "readers", "-t", "t", scenario, "--execute", *TIMEOUT)
    error = told(departed).fails(*asked)
    assert error == "partition 1 of t has no leader; try again later"


def test_whatif_names_unreadable_partitions(departed: Cluster) -> None:
    servers = departed[1].address
    with sync.Consumer(servers, group_id="tried", auto_offset_reset="earliest") as member:
        member.subscribe(["t"])
        while len(member.assignment()) < 2:
            member.poll(50)
        with Reached(servers, {}, 5_000, verbose=False) as reached:
            sight = live_view.observe_group(reached, "tried", 0.0)
    assert "without a leader, so not readable: 1 partition, t(1)" in sight.remarks
