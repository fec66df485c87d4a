"""Group events of several brokers in one topic."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from console.cli import PartageCli
from partage.pipelines.rebalances import online_partitions
from partage.pipelines.rebalances.job import RebalancesOptions, rebalances
from polled_conditions import eventually

from .brokers import PATIENCE_S, ClusterBroker, bootstrap, brokers, know_each_other
from .group_client import GroupClient, client_coordinated_by
from .group_events_reader import group_events, partition_leaders, read_events
from .group_members import FAST_RECONNECT
from .zookeeper_ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

Cluster = dict[int, ClusterBroker]


@pytest.fixture
def cluster(zookeeper: Ensemble, path: str, tmp_path: Path) -> Iterator[Cluster]:
    overrides = {"partage.group.events.lag.interval.ms": "100"}
    with brokers(tmp_path / "data", zookeeper.connect_string, path, overrides=overrides) as running:
        yield running


class DirectMember:
    """A confluent-kafka consumer that is polled while a test waits."""

    def __init__(self, servers: str, group: str, topic: str, protocol: str = "classic") -> None:
        of_protocol = {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "socket.timeout.ms": 3000,
                **of_protocol,
                **FAST_RECONNECT,
            }
        )
        self._consumer.subscribe([topic])

    def wait(self, what: Callable[[], object]) -> None:
        def is_so() -> object:
            self._consumer.consume(100, 0.02)
            return what()

        eventually(is_so)

    @property
    def count(self) -> int:
        return len(self._consumer.assignment())

    def commit(self, topic: str, offsets: Mapping[int, int]) -> bool:
        places = [TopicPartition(topic, n, offset) for n, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


def find_out_late(patch: pytest.MonkeyPatch) -> None:
    """Let an analysis notice only during its read that a broker is down."""
    reach, looks = online_partitions.find_online_partitions, list[int]()

    def late(options: Mapping[str, str], topic: str) -> online_partitions.OnlinePartitions:
        looks.append(1)
        return (
            reach(options, topic)
            if looks[1:]
            else online_partitions.OnlinePartitions(source_options=options, unread=0)
        )

    patch.setattr(online_partitions, "find_online_partitions", late)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.interop)]
)
def test_failover_events_form_one_history(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    left = {2: cluster[2]}
    servers = bootstrap(cluster)
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic("flights", 2, replica_assignment=[[1], [2]])
    client.create_topics([topic], request_timeout=30)["flights"].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": servers, **FAST_RECONNECT})
    for partition in (0, 1):
        for _ in range(10):
            producer.produce("flights", b"x", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    eventually(lambda: sorted(partition_leaders(cluster).values()) == [1, 2])

    group = client_coordinated_by(cluster, 1, "tower{}".format).group
    member = DirectMember(servers, group, "flights")
    member.wait(lambda: member.count == 2)
    assert member.commit("flights", {0: 3, 1: 4})

    def lags(of: Cluster) -> list[Any]:
        return [event.lag for event in group_events(read_events(of), group) if event.lag]

    member.wait(lambda: {"flights": {0: 7, 1: 6}} in lags(cluster))

    cluster[1].send(number)
    if number is signal.SIGKILL:
        cluster[1].wait()
    member.wait(lambda: GroupClient([cluster[2]], group).find()[0] == 2)
    member.wait(lambda: member.commit("flights", {1: 9}))
    member.wait(lambda: {"flights": {1: 1}} in lags(left))
    told_now = PartageCli(cluster[2].address)(
        "pipeline", "rebalances", "--local", "-g", group, "-o", tmp_path / "part"
    )
    assert "1 partition not read because their brokers are down" in told_now.err
    assert f"{group} (incomplete)" in told_now.out
    with monkeypatch.context() as patch:
        find_out_late(patch)
        options = RebalancesOptions(
            servers=cluster[2].address,
            output=tmp_path / "late",
            groups=(group,),
            source={"fetchOffset.numRetries": "1", "kafka.default.api.timeout.ms": "1000"},
        )
        assert rebalances(options).unread_partitions == 1

    if number is signal.SIGKILL:
        cluster[1].start()
    else:
        cluster[1].send(signal.SIGCONT)
    member.wait(lambda: know_each_other(cluster))
    told = group_events(read_events(cluster), group)
    epochs = [event.epoch for event in told]
    assert epochs == sorted(epochs, key=lambda epoch: epoch or 0)
    assert None not in epochs
    assert len({(event.broker_id, event.epoch) for event in told}) == len(set(epochs))
    formed = [event for event in told if event.epoch == epochs[0] and event.event != "lag"]
    assert {event.broker_id for event in formed} == {1}
    assert "expired" not in [event.event for event in told], "as one that wakes up may believe"
    assert [event.event for event in formed][-1] == "assigned"
    second = next(event for event in told if event.epoch != epochs[0])
    assert (second.event, second.broker_id, second.reason) == ("loaded", 2, "Stable")
    assert second.generation == formed[-1].generation
    given = [[of.assigned for of in event.members or []] for event in (formed[-1], second)]
    assert given == [[{"flights": [0, 1]}]] * 2
    member.close()

    report = rebalances(
        RebalancesOptions(servers=servers, output=tmp_path / "whole", groups=(group,))
    )
    assert report.unread_partitions == report.incomplete_groups == 0
    assert report.lost_events == report.unreadable_records == 0
    assert report.tables["coordinators"] >= 2


def test_failover_events_of_consumer_protocol_form_one_history(
    cluster: Cluster, tmp_path: Path
) -> None:
    left = {2: cluster[2]}
    servers = bootstrap(cluster)
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic("flights", 2, replica_assignment=[[1], [2]])
    client.create_topics([topic], request_timeout=30)["flights"].result(PATIENCE_S)
    eventually(lambda: sorted(partition_leaders(cluster).values()) == [1, 2])
    group = client_coordinated_by(cluster, 1, "gate{}".format).group
    member = DirectMember(servers, group, "flights", "consumer")

    def published(of: Cluster) -> list[str]:
        return [event.event for event in group_events(read_events(of), group)]

    member.wait(lambda: member.count == 2 and published(cluster)[-1:] == ["reconciled"])
    cluster[1].kill()
    member.wait(lambda: GroupClient([cluster[2]], group).find()[0] == 2)
    member.wait(lambda: "loaded" in published(left))
    # librdkafka does not repeat the request to leave, so it must know the coordinator.
    member.wait(lambda: member.commit("flights", {0: 0}))
    member.close()
    eventually(lambda: "emptied" in published(left))
    cluster[1].start()
    eventually(lambda: know_each_other(cluster))
    events = group_events(read_events(cluster), group)
    first = [event.event for event in events if event.epoch == events[0].epoch]
    assert first == ["joined", "epoch raised", "target assigned", "reconciled"]
    loaded = events[len(first)]
    assert (loaded.event, loaded.broker_id, loaded.group_type) == ("loaded", 2, "consumer")
    assert [each.assigned for each in loaded.members or []] == [{"flights": [0, 1]}]
    report = rebalances(
        RebalancesOptions(servers=servers, output=tmp_path / "whole", groups=(group,))
    )
    assert report.incomplete_groups == report.unread_partitions == 0
    assert report.tables["coordinators"] >= 2
    causes = {each.cause: each for each in report.causes}
    assert causes["member joined"].rebalances == causes["member left"].rebalances == 1
