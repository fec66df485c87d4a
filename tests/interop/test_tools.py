"""Apache Kafka's command-line tools with both brokers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from interop.conftest import BROKERS, OVERRIDES
from interop.consumer_groups.script import ConsumerGroupScript
from interop.members import Team, fresh_name, produce
from interop.oracle.connection import Connection
from interop.peers.server import BrokerProcess
from interop.peers.tools import ToolFailedError, offline_tool, tool
from partage.store.record_formats import decode_record, encode_record
from partage.store.shard_log import shard_of
from polled_conditions import PATIENCE_S
from scenario_text import replay

pytestmark = pytest.mark.interop


def test_topics_are_created_described_listed_and_deleted(broker: BrokerProcess) -> None:
    name = fresh_name("tool")
    at = broker.bootstrap
    assert "Created topic" in tool(
        "topics", at, "--create", "--topic", name, "--partitions", "3", "--replication-factor", "1"
    )
    described = tool("topics", at, "--describe", "--topic", name)
    assert re.search(rf"Topic: {name}\s.*PartitionCount: 3\s+ReplicationFactor: 1", described)
    assert re.findall(r"Partition: (\d+)\s+Leader: \d+", described) == ["0", "1", "2"]
    tool("topics", at, "--alter", "--topic", name, "--partitions", "5")
    assert tool("get-offsets", at, "--topic", name).split() == [f"{name}:{n}:0" for n in range(5)]
    assert name in tool("topics", at, "--list").split()
    tool("topics", at, "--delete", "--topic", name)
    assert name not in tool("topics", at, "--list").split()
    with pytest.raises(ToolFailedError, match="does not exist"):
        tool("topics", at, "--describe", "--topic", name)


def test_console_producer_and_consumer_exchange_records(broker: BrokerProcess, topic: str) -> None:
    at = broker.bootstrap
    records = [(f"k{n}", f"v{n}") for n in range(20)]
    tool(
        *("console-producer", at, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        feed="".join(f"{key}:{value}\n" for key, value in records),
    )
    offsets = dict(
        line.rsplit(":", 1) for line in tool("get-offsets", at, "--topic", topic).split()
    )
    assert sum(map(int, offsets.values())) == len(records)

    group = fresh_name("console")
    consumed = tool(
        *("console-consumer", at, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(len(records)), "--formatter-property", "print.key=true"),
    )
    assert sorted(tuple(line.split("\t")) for line in consumed.splitlines()) == sorted(records)
    described = lags(at, group)
    assert described == {int(name.split(":")[1]): (int(end), 0) for name, end in offsets.items()}


def test_groups_are_described_reset_and_deleted(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    at = broker.bootstrap
    produced = produce("confluent", at, topic, 120)
    with Team(at, topic) as team:
        for name in ("m0", "m1"):
            team.join("confluent", name)
        team.wait_until_shared(partitions)
        team.wait_until_consumed(produced)
        group = team.group
        members = tool("consumer-groups", at, "--describe", "--group", group, "--members")
        assert re.findall(r"\s(m[01])\s+(\d+)", members) in (
            [("m0", "6"), ("m1", "6")],
            [("m1", "6"), ("m0", "6")],
        )
        state = tool("consumer-groups", at, "--describe", "--group", group, "--state")
        assert re.search(rf"{group}\s.*\srange\s+Stable\s+2\b", state)
        refused = tool("consumer-groups", at, "--delete", "--group", group)
        assert "The group is not empty" in refused
        team.end()
    assert sum(end for end, _ in lags(at, group).values()) == 120
    assert all(lag == 0 for _, lag in lags(at, group).values())
    states = tool("consumer-groups", at, "--list", "--state", "Empty")
    assert re.search(rf"{group}\s+Empty", states)
    tool(
        *("consumer-groups", at, "--reset-offsets", "--group", group, "--topic", topic),
        *("--to-earliest", "--execute"),
    )
    assert sum(lag for _, lag in lags(at, group).values()) == 120
    tool("consumer-groups", at, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert 0 not in lags(at, group)
    tool("consumer-groups", at, "--delete", "--group", group)
    assert group not in tool("consumer-groups", at, "--list").split()


def lags(bootstrap: str, group: str) -> dict[int, tuple[int, int]]:
    """Return committed offset and lag of each partition with a commit, from the tool's output."""
    described = tool("consumer-groups", bootstrap, "--describe", "--group", group)
    rows = re.findall(rf"{group}\s+\S+\s+(\d+)\s+(\d+)\s+\d+\s+(\d+)", described)
    return {int(partition): (int(offset), int(lag)) for partition, offset, lag in rows}


def test_kafka_reads_our_consumer_offsets_records(broker: BrokerProcess, topic: str) -> None:
    """Kafka's formatters can read the records in our offsets topic."""
    at, produced = broker.bootstrap, produce("confluent", broker.bootstrap, topic, 24)
    with Team(at, topic) as team:
        team.join("confluent", "m0")
        team.wait_until_consumed(produced)
        group = team.group
        team.end()
    committed = stored_records(at, "Offsets", group)
    assert {key["topic"] for key, _ in committed} == {topic}
    latest = {key["partition"]: value["offset"] for key, value in committed}
    assert sum(latest.values()) == 24
    generations = [value for _, value in stored_records(at, "GroupMetadata", group) if value]
    assert {value["protocol"] for value in generations if value["members"]} == {"range"}
    assert generations[-1]["members"] == []


StoredRecords = list[tuple[dict[str, Any], dict[str, Any]]]


def stored_records(at: str, kind: str, group: str) -> StoredRecords:
    """Return key and value of a group's records of one kind, as Kafka prints them."""
    for timeout_ms in (3_000, 15_000, 60_000):  # on a busy machine, the first record comes late
        if found := printed_records(at, kind, group, timeout_ms):
            return found
    raise AssertionError(f"the tool prints no record of {group}")


def printed_records(at: str, kind: str, group: str, timeout_ms: int) -> StoredRecords:
    """Run the tool, which ends when no further record arrived within the timeout."""
    formatter = f"org.apache.kafka.tools.consumer.{kind}MessageFormatter"
    printed = tool(
        *("console-consumer", at, "--topic", "__consumer_offsets", "--from-beginning"),
        *("--formatter", formatter, "--timeout-ms", str(timeout_ms)),
    ).strip()
    records, end = [], 0
    while end < len(printed):  # concatenated, without separators
        record, end = json.JSONDecoder().raw_decode(printed, end)
        records.append(record)
    return [
        (record["key"]["data"], (record["value"] or {}).get("data"))
        for record in records
        if record["key"]["data"]["group"] == group
    ]


@pytest.mark.parametrize("kind", BROKERS)
def test_dump_log_reads_records_of_consumer_groups(peers: None, kind: str) -> None:
    """The line ``records`` shows the last record of each key in the segments of the broker.

    The file has the records of Apache Kafka; those of our broker have the same fields.
    """
    expected = STORED_RECORDS.read_text()
    overrides = {**OVERRIDES, "group.consumer.migration.policy": "bidirectional"}
    with (
        BROKERS[kind](overrides=overrides) as broker,
        Connection(broker.bootstrap, "script") as connection,
    ):
        script = ConsumerGroupScript(connection, fresh_name("script") + "-")

        def run(line: str) -> list[str]:
            if line != "records":
                return script.run(line)
            found = map(script.clean, dumped_records(broker.directory, script.group))
            # The order of the keys depends on an id that the broker has drawn.
            return sorted(found, key=lambda text: (int(re.match(r"\d+", text)[0]), text))

        assert replay(expected, run) == expected


STORED_RECORDS = Path(__file__).parent / "consumer_groups" / "migration" / "records.txt"
#: Fields that depend on the run, and the hash, which is another one than Kafka's.
VARIABLE = re.compile(
    r'"(metadataHash|assignmentTimestamp|timestamp|version)":-?\d+|"(metadata)":"[^"]*"'
)
#: Apache Kafka before 4.1 stored the partitions of topics; newer ones only remove them.
PARTITION_METADATA = 4


def dumped_records(directory: Path, group: str) -> list[str]:
    """Return the last record of each key of a consumer group."""
    segments = [
        str(path)
        for path in directory.glob("*/__consumer_offsets-*/*.log")
        if path.stat().st_size > 0
    ]
    dumped = offline_tool("dump-log", "--offsets-decoder", "--files", ",".join(segments))
    last: dict[tuple[int, str], str] = {}
    for key_text, value in re.findall(r"^\| offset: .* key: (.*) payload: (.*)$", dumped, re.M):
        key = json.loads(key_text)
        held = key["data"]
        number = int(key["type"])
        if held.pop("groupId", None) == group and number != PARTITION_METADATA:
            last[number, " ".join(held.values())] = VARIABLE.sub(r'"\1\2":*', value)
    return [
        f"{number}{f' {name}' if name else ''}: {value}" for (number, name), value in last.items()
    ]


def test_records_of_consumer_groups_have_kafkas_bytes(broker: BrokerProcess) -> None:
    """Our reader understands the records of both brokers, and our writer writes the same bytes."""
    with Connection(broker.bootstrap, "script") as connection:
        script = ConsumerGroupScript(connection, fresh_name("script") + "-")
        for line in RECORDING:
            script.run(line)
    read = stored_bytes(broker.bootstrap, script.group)
    assert {int.from_bytes(key[:2], "big") for key, _ in read} >= {3, 5, 6, 7, 8, 16}
    for key, value in read:
        record = decode_record(key, value)
        assert record is not None
        assert encode_record(record) == (key, value)


OFFSETS = "__consumer_offsets"
RECORDING = (
    "create t 4",
    "join A t rack=r instance=i assignor=range",
    "beat A owned=t:0,1,2,3 instance=i",
    "join B none regex=t.*",
    "wait Assigning",
    "beat A instance=i",
    "beat B",
    "beat A owned=t:0,1 instance=i",
    "beat B",
)


def stored_bytes(bootstrap: str, group: str) -> list[tuple[bytes, bytes]]:
    """Return key and value of the records of a consumer group, without those that remove."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name("reader"),
            "enable.partition.eof": True,
        }
    )
    found = []
    try:
        count = len(reader.list_topics(OFFSETS, PATIENCE_S).topics[OFFSETS].partitions)
        reader.assign([TopicPartition(OFFSETS, shard_of(group, count), 0)])
        while (message := reader.poll(PATIENCE_S)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            key, value = message.key(), message.value()
            if value is not None and key[4:].startswith(group.encode()):  # after type and length
                found.append((key, value))
    finally:
        reader.close()
    raise AssertionError("the partition has no end")
