"""Assignors and group configs of groups with the consumer protocol, in a whole broker."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from partage.assignors import Assignor
from partage.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.incremental_alter_configs import DELETE, SET

from .config_requests import BROKER, GROUP, alter
from .raw_client import RawClient
from .requests import create
from .test_consumer_groups import Members


class EvenToFirst(Assignor):
    """Gives partitions with even numbers to the first member, and the others to the last one."""

    name = "even-to-first"

    def assign(self, members, topics):
        ids = sorted(member.member_id for member in members)
        if "forbidden" in ids:
            raise RuntimeError("forbidden joined")
        wanted = {member_id: {} for member_id in ids}
        for topic in topics.values():
            for partition in range(topic.partition_count):
                owner = ids[0 if partition % 2 == 0 else -1]
                wanted[owner].setdefault(topic.name, []).append(partition)
        return wanted


QUICK = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignors": f"uniform,{__name__}:EvenToFirst",
}


def heartbeat(
    raw: RawClient, member_id: str, epoch: int, **fields
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    response = raw.request(CONSUMER_GROUP_HEARTBEAT, request)
    assert response.error_code == 0, response.error_message
    return response


def join(raw: RawClient, member_id: str, **fields) -> ConsumerGroupHeartbeatResponse:
    return heartbeat(
        raw,
        member_id,
        0,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
        **fields,
    )


def partitions(response: ConsumerGroupHeartbeatResponse) -> list[int]:
    assert response.assignment is not None
    return [number for topic in response.assignment.topic_partitions for number in topic.partitions]


@pytest.mark.partage_broker(QUICK)
def test_member_selects_own_assignor(raw):
    create(raw, "t", 4)
    first = join(raw, "a", server_assignor="even-to-first")
    assert partitions(first) == [0, 1, 2, 3]
    joined = join(raw, "b", server_assignor="even-to-first")
    assert partitions(joined) == []
    assert partitions(heartbeat(raw, "a", first.member_epoch)) == [0, 2]


@pytest.mark.partage_broker(QUICK)
def test_failing_assignor_keeps_previous_target(raw, caplog):
    create(raw, "t", 4)
    first = join(raw, "a", server_assignor="even-to-first")
    with caplog.at_level(logging.ERROR):
        assert partitions(join(raw, "forbidden", server_assignor="even-to-first")) == []
    after = heartbeat(raw, "a", first.member_epoch)
    assert (after.member_epoch, after.assignment) == (first.member_epoch, None)
    (line,) = [r.getMessage() for r in caplog.records if "assignor failed" in r.getMessage()]
    assert "group=g assignor=even-to-first" in line
    assert "RuntimeError: forbidden joined" in line


@pytest.mark.partage_broker(
    {
        "group.consumer.heartbeat.interval.ms": "5000",
        "group.consumer.session.timeout.ms": "45000",
    }
)
def test_group_config_changes_interval_of_members(raw):
    create(raw, "t", 1)
    epoch = join(raw, "a").member_epoch
    key = "consumer.heartbeat.interval.ms"
    for change, expected in (((SET, key, "6000"), 6_000), ((DELETE, key, None), 5_000)):
        assert alter(raw, change, name="g", kind=GROUP) == 0
        assert heartbeat(raw, "a", epoch).heartbeat_interval_ms == expected


@pytest.mark.partage_broker({**QUICK, "group.consumer.heartbeat.interval.ms": "100"})
def test_config_selects_assignor_of_running_consumers(broker, raw):
    """The operator selects an own assignor; the consumers and their settings stay the same."""
    create(raw, "t", 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def select(value: str) -> None:
        change = ConfigEntry(
            "consumer.assignor.name", value, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[change])
        (done,) = admin.incremental_alter_configs([resource]).values()
        done.result()

    with Members(broker.bootstrap_servers) as group:

        def owned() -> list[list[int]]:
            return sorted(sorted(p.partition for p in c.assignment()) for c in group.running)

        group.join()
        group.join()
        group.poll_until(lambda: owned() == [[0, 1], [2, 3]])
        select("even-to-first")
        group.poll_until(lambda: owned() == [[0, 2], [1, 3]])
        with pytest.raises(KafkaException, match="must be uniform or even-to-first, or empty"):
            select(f"{__name__}:EvenToFirst")


@pytest.mark.partage_broker({"group.consumer.assignment.interval.ms": "15000"})
def test_altered_default_of_assignment_interval_applies_at_once(raw):
    create(raw, "t", 4)
    epoch = join(raw, "a").member_epoch
    assert partitions(join(raw, "b")) == []
    assert heartbeat(raw, "a", epoch).assignment is None
    key = "group.consumer.assignment.interval.ms"
    assert alter(raw, (SET, key, "0"), name="1", kind=BROKER) == 0
    assert len(partitions(heartbeat(raw, "a", epoch))) == 2
