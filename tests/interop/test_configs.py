"""Configs, authorized operations and refused records: both brokers give the same responses."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.config_requests import BROKER, GROUP, TOPIC, alter, config, describe, replace
from broker.raw_client import RawClient
from broker.requests import content, fetch
from interop.conftest import OVERRIDES
from interop.members import fresh_name
from interop.peers.server import BrokerProcess
from interop.peers.tools import tool
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from partage.wire.apis.incremental_alter_configs import APPEND, DELETE, SET, SUBTRACT
from partage.wire.records.batch import Compression, whole_batches
from partage.wire.records.decoder import decode_records
from polled_conditions import PATIENCE_S, eventually

pytestmark = pytest.mark.interop

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
SESSION = "consumer.session.timeout.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap, timeout_s=PATIENCE_S) as connected:
        yield connected


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, **configs: str) -> str:
    """Create a topic; in config names write ``_`` for ``.``."""
    name = fresh_name("configs")
    texts = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=texts)])[name].result(PATIENCE_S)
    return name


def test_producer_blames_keyless_records_only(broker: BrokerProcess, admin: AdminClient) -> None:
    topic = create(admin, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})
    # Without the metadata, flush could send each record in a separate batch.
    producer.list_topics(topic, timeout=PATIENCE_S)
    outcomes: dict[bytes, int] = {}

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        outcomes[message.value()] = error.code() if error else 0

    for key, value in ((b"k", b"0"), (None, b"1"), (b"l", b"2"), (None, b"3")):
        producer.produce(topic, value, key, on_delivery=on_delivery)
    assert producer.flush(PATIENCE_S) == 0
    blamed, others = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert outcomes == {b"0": others, b"1": blamed, b"2": others, b"3": blamed}


@pytest.mark.parametrize("name", [*CODECS, "producer"])
def test_stored_codec_is_that_of_topic(
    broker: BrokerProcess, admin: AdminClient, raw: RawClient, name: str
) -> None:
    topic = create(admin, compression_type=name)
    for source in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": source})
        producer.produce(topic, b"v" * 1000)
        assert producer.flush(PATIENCE_S) == 0
    (result,) = fetch(raw, topic)
    stored = [header.compression for _, header in whole_batches(content(result))]
    assert stored == ([CODECS[name]] * 5 if name in CODECS else list(Compression))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": fresh_name("g"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    for _ in range(5):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"v" * 1000
    consumer.close()


def test_java_tools_use_topics_that_recompress(broker: BrokerProcess, raw: RawClient) -> None:
    topic, at = fresh_name("configs"), broker.bootstrap
    tool("topics", at, "--create", "--topic", topic, "--config", "compression.type=zstd")
    assert "compression.type=zstd" in tool("topics", at, "--describe", "--topic", topic)
    arguments = ("--command-property", "compression.type=gzip")
    tool("console-producer", at, "--topic", topic, *arguments, feed="a\nb\nc\n")
    consumed = tool(
        *("console-consumer", at, "--topic", topic, "--from-beginning", "--max-messages", "3")
    )
    assert consumed.split() == ["a", "b", "c"]
    (result,) = fetch(raw, topic)
    headers = [header for _, header in whole_batches(content(result))]
    assert {header.compression for header in headers} == {Compression.ZSTD}


#: Kind and name of a resource, a change, and the error code; topics are named in the test.
CHANGES = [
    (TOPIC, "t", (SUBTRACT, "cleanup.policy", "delete"), 0),
    (TOPIC, "t", (SUBTRACT, "cleanup.policy", "compact"), 0),
    (TOPIC, "t", (APPEND, "cleanup.policy", "foo"), 40),
    (TOPIC, "t", (APPEND, "cleanup.policy", "compact"), 0),
    (TOPIC, "t", (SET, "cleanup.policy", ""), 0),
    (TOPIC, "t", (SET, "cleanup.policy", ",compact"), 40),
    (TOPIC, "t", (APPEND, "retention.ms", "5"), 40),
    (TOPIC, "t", (APPEND, "no.such", "5"), 40),
    (TOPIC, "t", (SET, "no.such", "5"), 40),
    (TOPIC, "t", (DELETE, "no.such", None), 0),
    (TOPIC, "t", (SET, "retention.ms", None), 42),
    (TOPIC, "t", (SET, "compression.type", "none"), 40),
    (TOPIC, "", (SET, "retention.ms", "5"), 42),
    (TOPIC, "a b", (SET, "retention.ms", "5"), 17),
    (TOPIC, "missing", (SET, "retention.ms", "5"), 3),
    (0, "1", (SET, "a", "5"), 42),
    (64, "1", (SET, "a", "5"), 42),
    (BROKER, "2", (SET, "log.retention.ms", "1000000"), 42),
    (BROKER, "x", (SET, "log.retention.ms", "1000000"), 42),
    (BROKER, "1", (SET, "num.partitions", "3"), 42),
    (BROKER, "1", (SET, "advertised.listeners", "PLAINTEXT://127.0.0.1:9"), 42),
    (BROKER, "1", (SET, "message.max.bytes", "x"), 42),
    (BROKER, "1", (SET, "message.max.bytes", "-5"), 42),
    (BROKER, "1", (APPEND, "log.retention.ms", "5"), 40),
    (BROKER, "1", (SET, "log.retention.ms", None), 42),
    (BROKER, "1", (SET, "log.cleaner.backoff.ms", "1000"), 0),
    (BROKER, "1", (SET, "max.connections", "1000"), 0),
    (BROKER, "", (SET, "compression.type", "gzip"), 0),
    (BROKER, "1", (SET, f"group.{ASSIGNMENT_INTERVAL}", "20000"), 0),
    (BROKER, "1", (SET, f"group.{ASSIGNMENT_INTERVAL}", "20001"), 42),
    (BROKER, "1", (SET, "group.consumer.max.assignment.interval.ms", "1000"), 42),
    (BROKER, "1", (SET, "group.consumer.min.assignment.interval.ms", "0"), 42),
    (GROUP, "g", (SET, SESSION, "50000"), 0),
    (GROUP, "g", (SET, SESSION, "5"), 40),
    (GROUP, "g", (SET, SESSION, "x"), 40),
    (GROUP, "g", (SET, "consumer.heartbeat.interval.ms", "16000"), 40),
    (GROUP, "g", (SET, ASSIGNMENT_INTERVAL, "20000"), 0),
    (GROUP, "g", (SET, ASSIGNMENT_INTERVAL, "20001"), 40),
    (GROUP, "g", (SET, "share.auto.offset.reset", "by_duration:PT1H"), 0),
    (GROUP, "g", (SET, "share.auto.offset.reset", "by_duration:1"), 40),
    (GROUP, "g", (SET, "no.such", "1"), 40),
    (GROUP, "g", (APPEND, SESSION, "50000"), 40),
    (GROUP, "", (SET, SESSION, "50000"), 42),
]


def test_changes_of_configs_have_same_errors(admin: AdminClient, raw: RawClient) -> None:
    topic = create(admin)
    errors = []
    for kind, name, change, _ in CHANGES:
        name = topic if name == "t" else name
        errors.append(alter(raw, change, name=name, kind=kind, validate_only=kind == BROKER))
    expected = [error for _, _, _, error in CHANGES]
    assert [(*change, error) for change, error in zip(CHANGES, errors, strict=True)] == [
        (*change, error) for change, error in zip(CHANGES, expected, strict=True)
    ]

    def is_empty() -> bool:
        entry = config(raw, "cleanup.policy", name=topic)
        return (entry.value, entry.config_source) == ("", 1)

    # A broker of Apache Kafka applies a change after its controller has accepted it.
    eventually(is_empty)


def test_broker_config_levels(admin: AdminClient, raw: RawClient) -> None:
    topic, key = create(admin), "log.index.interval.bytes"
    for level, (name, value) in ((3, ("", "5000")), (2, ("1", "6000"))):
        assert alter(raw, (SET, key, value), name=name, kind=BROKER) == 0

        def is_followed(level: int = level, value: str = value) -> bool:
            entry = config(raw, "index.interval.bytes", name=topic, include_synonyms=True)
            return (entry.value, entry.config_source) == (value, level)

        eventually(is_followed)
    entry = config(raw, key, name="1", kind=BROKER, include_synonyms=True)
    assert [(s.value, s.source) for s in entry.synonyms] == [("6000", 2), ("5000", 3), ("4096", 5)]
    defaults = {e.name: e.config_source for e in describe(raw, "", BROKER).configs}
    assert defaults[key] == 3
    assert replace(raw, "1", BROKER) == 0
    assert alter(raw, (DELETE, key, None), name="", kind=BROKER) == 0
    eventually(lambda: config(raw, key, name="1", kind=BROKER).config_source == 5)


def test_default_of_group_config_is_altered_at_broker(raw: RawClient) -> None:
    group, key = fresh_name("g"), f"group.{ASSIGNMENT_INTERVAL}"
    assert alter(raw, (SET, key, "19000"), name="1", kind=BROKER) == 0
    eventually(lambda: config(raw, ASSIGNMENT_INTERVAL, name=group, kind=GROUP).value == "19000")
    entry = config(raw, ASSIGNMENT_INTERVAL, name=group, kind=GROUP, include_synonyms=True)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        (key, "19000", 2),
        (key, "0", 4),
        (key, "1000", 5),
    ]
    assert alter(raw, (DELETE, key, None), name="1", kind=BROKER) == 0
    eventually(lambda: config(raw, ASSIGNMENT_INTERVAL, name=group, kind=GROUP).value == "0")


def test_group_configs_are_described(raw: RawClient) -> None:
    group = fresh_name("g")
    assert alter(raw, (SET, SESSION, "50000"), name=group, kind=GROUP) == 0
    eventually(lambda: config(raw, SESSION, name=group, kind=GROUP).value == "50000")
    entries = describe(raw, group, GROUP, include_synonyms=True).configs
    assert {e.name for e in entries if e.config_source == 8} == {SESSION}
    (session,) = [e for e in entries if e.name == SESSION]
    assert [(s.name, s.value, s.source) for s in session.synonyms] == [
        (SESSION, "50000", 8),
        (f"group.{SESSION}", OVERRIDES[f"group.{SESSION}"], 4),
        (f"group.{SESSION}", "45000", 5),
    ]
    assert {e.name: e.value for e in entries if e.config_source == 4} == {
        "consumer.assignment.interval.ms": "0",  # settings of the brokers, in conftest.py
        "consumer.heartbeat.interval.ms": "500",
    }
    assert {e.name: e.value for e in entries if e.config_source == 5} == DEFAULTS


#: All other group configs of Apache Kafka 4.4.
DEFAULTS = {
    "errors.deadletterqueue.copy.record.enable": "false",
    "errors.deadletterqueue.topic.name": "",
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
    "streams.assignment.interval.ms": "1000",
    "streams.assignor.name": "sticky",
    "streams.heartbeat.interval.ms": "5000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
    "streams.rack.aware.assignment.tags": "",
    "streams.session.timeout.ms": "45000",
}


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_assignor_offload_of_groups_is_internal(raw: RawClient, kind: str) -> None:
    """It is described only where it was altered."""
    group, key = fresh_name("g"), f"{kind}.assignor.offload.enable"
    for value in ("maybe", ""):
        assert alter(raw, (SET, key, value), name=group, kind=GROUP) == 40
    assert key not in {e.name for e in describe(raw, group, GROUP).configs}
    assert alter(raw, (SET, key, "false"), name=group, kind=GROUP) == 0

    def synonyms() -> list[tuple[str, str | None, int]]:
        entries = describe(raw, group, GROUP, include_synonyms=True).configs
        return [(s.name, s.value, s.source) for e in entries if e.name == key for s in e.synonyms]

    eventually(lambda: synonyms() == [(key, "false", 8), (f"group.{key}", "true", 5)])


def test_confluent_admin_replaces_and_edits_configs(admin: AdminClient) -> None:
    topic = create(admin, retention_ms="5000")
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "6000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        admin.alter_configs([resource])[resource].result(PATIENCE_S)
    # A broker of Apache Kafka applies a change after its controller has accepted it.
    eventually(lambda: own_configs(admin, topic) == {"segment.ms": "6000"})
    entry = ConfigEntry(
        "cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    edited = {"segment.ms": "6000", "cleanup.policy": ""}
    eventually(lambda: own_configs(admin, topic) == edited)


def own_configs(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return {name: entry.value for name, entry in entries.items() if entry.source == 1}


#: In a separate process: the import of kafka-python warns, and warnings are errors here.
KAFKA_PYTHON = """
import sys
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
resource = ConfigResource(ConfigResourceType.BROKER, "1")
print(admin.describe_configs([resource], config_filter="all"))
admin.close()
"""


def test_kafka_python_admin_sees_listeners(broker: BrokerProcess) -> None:
    command = [sys.executable, "-c", KAFKA_PYTHON, broker.bootstrap]
    described = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert f"PLAINTEXT://{broker.bootstrap}" in described.stdout
    assert "log.cleaner.backoff.ms" in described.stdout


def test_all_operations_are_authorized(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    group = fresh_name("g")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.subscribe([topic])

    def has_joined() -> bool:
        assert consumer.poll(0.1) is None
        return bool(consumer.assignment())

    eventually(has_joined)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    topics = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    groups = admin.describe_consumer_groups([group], include_authorized_operations=True)
    both = {AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
    changes = {AclOperation.CREATE, AclOperation.ALTER}
    assert set(cluster.authorized_operations) == both | changes | {
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
    }
    records = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE}
    assert set(topics[topic].result(PATIENCE_S).authorized_operations) == both | changes | records
    assert set(groups[group].result(PATIENCE_S).authorized_operations) == both | records - {
        AclOperation.WRITE
    }
    consumer.close()


def test_max_compaction_lag_is_honored(
    broker: BrokerProcess, admin: AdminClient, raw: RawClient
) -> None:
    """The dirty ratio alone would never start the compaction."""
    assert alter(raw, (SET, "log.cleaner.backoff.ms", "100"), name="", kind=BROKER) == 0
    topic = create(
        admin,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="1",
        max_compaction_lag_ms="100",
        segment_ms="1",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    before_ms = int(time.time() * 1000) - 10_000
    for n in range(4):  # a segment of each record
        producer.produce(topic, b"%d" % n, b"key", timestamp=before_ms + 1000 * n)
        assert producer.flush(PATIENCE_S) == 0

    eventually(lambda: stored_values(raw, topic, 4) == [b"2", b"3"])
    assert alter(raw, (DELETE, "log.cleaner.backoff.ms", None), name="", kind=BROKER) == 0


def stored_values(raw: RawClient, topic: str, end: int) -> list[bytes | None]:
    """Return all values; Apache Kafka returns the records of one segment for each Fetch."""
    found, at = list[bytes | None](), 0
    while at < end:
        (result,) = fetch(raw, topic, [at])
        records = decode_records(content(result), at)
        if not records:
            break
        found += [record[3] for record in records]
        at = records[-1][0] + 1
    return found


@pytest.mark.parametrize(
    ("name", "software", "error"),
    [("a", "1", 0), ("a b", "1", 42), ("", "1", 42), ("a", "1.0+g1", 42), ("a_b", "1", 42)],
)
def test_client_software_name_is_checked(
    raw: RawClient, name: str, software: str, error: int
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    answer = raw.request(API_VERSIONS, request, 3)
    assert (answer.error_code, bool(answer.api_keys)) == (error, not error)
