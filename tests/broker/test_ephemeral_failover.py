"""The kill of a broker without persistence: the group rejoins on its successor."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer

from client.confluent_admin import create_topic
from free_ports import free_ports
from partage.sync import Consumer
from polled_conditions import PATIENCE_S

from .broker_command import running_broker
from .group_requests import describe_group
from .raw_client import RawClient

MEMBERS = 3
PER_PARTITION = 10


class PartageMember:
    """A member of the group through `partage.sync.Consumer`."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            servers,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=6_000,
            metadata_max_age_ms=500,
        )
        self._consumer.subscribe(["t"])

    def assignment(self) -> list[int]:
        return sorted(each.partition for each in self._consumer.assignment())

    def poll(self) -> list[bytes | None]:
        return [record.value for record in self._consumer.poll(20)]

    def close(self) -> None:
        self._consumer.close()


class LibrdkafkaMember:
    """A member of the group through librdkafka."""

    def __init__(self, servers: str) -> None:
        self._consumer = ConfluentConsumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6_000,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._consumer.subscribe(["t"])

    def assignment(self) -> list[int]:
        return sorted(each.partition for each in self._consumer.assignment())

    def poll(self) -> list[bytes | None]:
        message = self._consumer.poll(0.02)
        return [] if message is None or message.error() else [message.value()]

    def close(self) -> None:
        self._consumer.close()


def fill(servers: str, prefix: str) -> set[bytes]:
    """Create the topic and write records to each partition; return their values."""
    create_topic(servers, "t", MEMBERS)
    producer = Producer({"bootstrap.servers": servers})
    values = set()
    for partition in range(MEMBERS):
        for number in range(PER_PARTITION):
            value = f"{prefix}-{partition}-{number}".encode()
            producer.produce("t", value, partition=partition)
            values.add(value)
    assert producer.flush(PATIENCE_S) == 0
    return values


def read_all(members: Sequence[Any], expected: set[bytes], servers: str) -> None:
    """Poll until all members are in the broker's group with one partition each and have read all.

    A member reads its partitions before its first failed heartbeat, when it is in no group.
    """
    seen: set[bytes | None] = set()
    give_up = time.monotonic() + PATIENCE_S
    while True:
        for member in members:
            seen.update(member.poll())
        shares = sorted(member.assignment() for member in members)
        is_shared = shares == [[number] for number in range(MEMBERS)]
        if is_shared and seen >= expected and member_count(servers) == len(members):
            return
        assert time.monotonic() < give_up, (shares, len(seen), len(expected))


def member_count(servers: str) -> int:
    with RawClient(servers, timeout_s=PATIENCE_S) as raw:
        return len(describe_group(raw, "g").members)


@contextmanager
def ephemeral_broker(tmp_path: Path, listen: str) -> Iterator[Any]:
    with running_broker(tmp_path / "none", "--ephemeral", listen=listen) as broker:
        yield broker


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [PartageMember, LibrdkafkaMember])
def test_killed_ephemeral_broker_members_rejoin_and_read(kind: Any, tmp_path: Path) -> None:
    with ExitStack() as brokers, ExitStack() as clients:
        # The kernel gives this port to no other process before the successor starts.
        servers = f"127.0.0.1:{free_ports(1)[0]}"
        broker = brokers.enter_context(ephemeral_broker(tmp_path, servers))
        assert broker.servers == servers
        before = fill(servers, "before")
        members = [kind(servers) for _ in range(MEMBERS)]
        for member in members:
            clients.callback(member.close)
        read_all(members, before, servers)
        assert broker.end(signal.SIGKILL) == -signal.SIGKILL
        successor = brokers.enter_context(ephemeral_broker(tmp_path, servers))
        assert successor.servers == servers
        after = fill(servers, "after")
        read_all(members, after, servers)
