"""Apache Kafka's command-line tools with both brokers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from interop.members import Team, fresh_name, produce
from interop.peers.server import BrokerProcess
from interop.peers.tools import ToolFailedError, tool

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
