"""The versions of the requests that librdkafka sends, from its own log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from partage.testing import ThreadedBroker
from partage.wire.apis import APIS

SENT = re.compile(r"Sent (\w+?)Request \(v(\d+),")
OFFERED = re.compile(r"ApiKey \w+ \((\d+)\) Versions (\d+)\.\.(\d+)")


class DebugLog(logging.Handler):
    """The requests in librdkafka's log, and the versions that it read from ApiVersions."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: set[tuple[str, int]] = set()
        self.offered: dict[int, tuple[int, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if sent := SENT.search(line):
            self.sent.add((sent[1], int(sent[2])))
        if offered := OFFERED.search(line):
            key, least, most = map(int, offered.groups())
            self.offered[key] = least, most


def produce(config: dict[str, object], logger: logging.Logger) -> None:
    producer = Producer({**config, "enable.idempotence": True}, logger=logger)
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    producer.poll(0)


def consume(config: dict[str, object], logger: logging.Logger) -> None:
    options = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**config, **options}, logger=logger)
    consumer.subscribe(["t"])
    message = None
    while message is None:
        message = consumer.poll(1)
    assert message.error() is None
    consumer.commit(message, asynchronous=False)
    consumer.poll(0)
    consumer.close()


def administer(config: dict[str, object], logger: logging.Logger) -> None:
    admin = AdminClient(config, logger=logger)
    groups = admin.list_consumer_groups().result(30)
    assert [group.group_id for group in groups.valid] == ["g"]
    admin.describe_consumer_groups(["g"])["g"].result(30)
    admin.delete_consumer_groups(["g"])["g"].result(30)
    admin.poll(0)


@pytest.fixture
def log() -> DebugLog:
    return DebugLog()


def test_librdkafka_sends_supported_versions_only(
    partage_broker: ThreadedBroker, log: DebugLog
) -> None:
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(log)
    config: dict[str, object] = {
        "bootstrap.servers": partage_broker.bootstrap_servers,
        "debug": "feature,protocol",
    }
    steps: list[Callable[[dict[str, object], logging.Logger], None]] = [
        produce,
        consume,
        administer,
    ]
    for step in steps:
        step(config, logger)
    by_name = {api.name: api for api in APIS.values()}
    named = {(name.replace("ApiVersion", "ApiVersions"), version) for name, version in log.sent}
    assert all(by_name[name].supports(version) for name, version in named)
    assert {name for name, _ in named} >= {
        "ApiVersions",
        "DeleteGroups",
        "DescribeGroups",
        "Fetch",
        "FindCoordinator",
        "InitProducerId",
        "JoinGroup",
        "ListGroups",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "Produce",
        "SyncGroup",
    }
    assert log.offered
    assert (
        log.offered.items()
        <= {key: (api.version_min, api.version_max) for key, api in APIS.items()}.items()
    )
