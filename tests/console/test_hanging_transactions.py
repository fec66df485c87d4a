"""``partage transactions describe-producers``, ``find-hanging`` and ``abort``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from broker.raw_client import RawClient
from broker.requests import batch, produce
from partage.model.errors import ErrorCode
from partage.testing import ThreadedBroker

from .cli import PartageCli

TIMEOUT_S = 30
PRODUCER_ID = 7_000
#: Before the change of KIP-890 that adds the partition to the transaction.
OLD_VERSION = 9

_names = itertools.count(1)


@pytest.fixture(scope="module")
def unverified() -> Iterator[ThreadedBroker]:
    """A broker that accepts records outside a transaction of the coordinator, as Kafka 3.5 does."""
    with ThreadedBroker({"transaction.partition.verification.enable": False}) as running:
        yield running


@pytest.fixture
def partage(unverified: ThreadedBroker) -> PartageCli:
    return PartageCli(unverified.bootstrap_servers)


@pytest.fixture
def topic(unverified: ThreadedBroker) -> str:
    """A topic with 2 partitions and a hanging transaction from offset 1 on in partition 0."""
    name = f"hanging-{next(_names)}"
    unverified.create_topic(name, 2)
    with RawClient(unverified.bootstrap_servers) as raw:
        produce(raw, name, batch(b"plain"))
        hang = batch(
            b"hangs",
            producer_id=PRODUCER_ID,
            producer_epoch=3,
            base_sequence=0,
            is_transactional=True,
        )
        result = produce(raw, name, hang, version=OLD_VERSION, transactional_id="lost")
    assert result.error_code == ErrorCode.NONE
    return name


def committed(partage: PartageCli, topic: str) -> list[str]:
    return partage.lines(topic, "--isolation-level", "read_committed")


@pytest.fixture
def open_transaction(unverified: ThreadedBroker, topic: str) -> Iterator[str]:
    """Id of a transaction in partition 1 of the topic; its coordinator has it open."""
    name = f"open-{topic}"
    servers = unverified.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "x", partition=1)
    producer.flush(TIMEOUT_S)
    yield name
    producer.abort_transaction(TIMEOUT_S)


def test_describe_producers_shows_open_transaction(partage: PartageCli, topic: str) -> None:
    described = partage("transactions", "describe-producers", f"{topic}:0")
    (row,) = [line.split() for line in described.lines[1:]]
    assert row[:6] + row[7:] == [topic, "0", str(PRODUCER_ID), "3", "-", "0", "1"]
    document = partage("transactions", "describe-producers", "-t", topic, "--json").json
    assert document == {
        "producers": [
            {
                "topic": topic,
                "partition": 0,
                "producer_id": PRODUCER_ID,
                "producer_epoch": 3,
                "coordinator_epoch": None,
                "last_sequence": 0,
                "last_timestamp_ms": int(row[6]),
                "start_offset": 1,
            }
        ]
    }


def test_describe_producers_without_topic_fails(partage: PartageCli, topic: str) -> None:
    assert "no topic given" in partage.fails("transactions", "describe-producers", code=2)


def test_find_hanging_omits_open_transaction(
    partage: PartageCli, topic: str, open_transaction: str
) -> None:
    command = ["transactions", "find-hanging", "--max-transaction-timeout-ms", "0"]
    (found,) = partage(*command, topic, "--json").json["transactions"]
    assert (found["partition"], found["start_offset"], found["transactional_id"]) == (0, 1, None)
    assert found["age_ms"] > 0
    assert partage(*command, f"{topic}:1", "--json").json == {"transactions": []}
    everywhere = partage(*command, "--broker-id", "1")
    assert any(line.split()[:2] == [topic, "0"] for line in everywhere.lines)


def test_find_hanging_omits_younger_transactions(partage: PartageCli, topic: str) -> None:
    command = ["transactions", "find-hanging", topic, "--max-transaction-timeout-ms"]
    assert partage(*command, 10**14, "--json").json == {"transactions": []}
    said = partage(*command, 10**6).err
    assert said == "found 0 hanging transactions older than 1,000 s in 2 partitions\n"


def test_find_hanging_unknown_broker_fails(partage: PartageCli, topic: str) -> None:
    command = ["transactions", "find-hanging", "--broker-id", "9"]
    assert partage.fails(*command) == "no such broker: 9"


def test_abort_ends_hanging_transaction(partage: PartageCli, topic: str) -> None:
    command = ["transactions", "abort", f"{topic}:0", "--start-offset", "1"]
    dry = partage(*command, "--dry-run")
    what = f"the transaction of producer {PRODUCER_ID}, epoch 3, in {topic}-0, which began at"
    assert dry.err == f"dry run: would abort {what} offset 1\n"
    partage("produce", "-t", topic, "-p", 0, stdin="later\n")
    assert committed(partage, topic) == ["plain"]
    done = partage(*command, "--json")
    assert done.err == f"aborted {what} offset 1\n"
    assert done.json == {
        "topic": topic,
        "partition": 0,
        "producer_id": PRODUCER_ID,
        "producer_epoch": 3,
        "coordinator_epoch": 0,
        "start_offset": 1,
        "executed": True,
    }
    assert committed(partage, topic) == ["later", "plain"]
    assert partage.fails(*command).endswith("there is none")


def test_abort_by_producer_ends_hanging_transaction(partage: PartageCli, topic: str) -> None:
    partage(
        *("transactions", "abort", "--topic", topic, "--partition", 0),
        *("--producer-id", PRODUCER_ID, "--producer-epoch", 3, "--coordinator-epoch", 0),
    )
    partage("produce", "-t", topic, "-p", 0, stdin="later\n")
    assert committed(partage, topic) == ["later", "plain"]


def test_abort_with_old_epoch_fails(partage: PartageCli, topic: str) -> None:
    error = partage.fails(
        *("transactions", "abort", f"{topic}:0", "--producer-id", PRODUCER_ID),
        *("--producer-epoch", 2, "--coordinator-epoch", 0),
    )
    assert f"producer {PRODUCER_ID} has a higher epoch than 2 in {topic}-0" in error


def test_abort_at_other_offset_names_open_transactions(partage: PartageCli, topic: str) -> None:
    error = partage.fails("transactions", "abort", f"{topic}:0", "--start-offset", 5)
    assert error == f"no open transaction begins at offset 5 of {topic}-0; there are some at 1"


def test_abort_of_open_transaction_needs_force(
    partage: PartageCli, topic: str, open_transaction: str
) -> None:
    command = ["transactions", "abort", f"{topic}:1", "--start-offset", "0"]
    error = partage.fails(*command)
    assert f"is not hanging: the coordinator of {open_transaction!r} has it open" in error
    assert "--force" in error
    (producer,) = partage("transactions", "describe-producers", f"{topic}:1", "--json").json[
        "producers"
    ]
    by_producer = ["--producer-id", producer["producer_id"], "--coordinator-epoch", 0]
    by_producer += ["--producer-epoch", producer["producer_epoch"]]
    assert "is not hanging" in partage.fails(*command[:3], *by_producer)
    partage(*command, "--force")
    assert partage.fails(*command).endswith("there is none")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["t:0"], "requires either --start-offset, or --producer-id"),
        (["t:0", "--producer-id", 1, "--producer-epoch", 0], "requires either --start-offset"),
        (["t:0", "--start-offset", 1, "--producer-id", 1], "requires either --start-offset"),
        (["t", "--start-offset", 1], "one partition is needed"),
        (["t:0,1", "--start-offset", 1], "one partition is needed"),
        (["t:0", "--partition", 1, "--start-offset", 1], "invalid --topic 't:0:1'"),
        (["--start-offset", 1], "no topic given"),
    ],
)
def test_abort_with_wrong_options_is_rejected(
    partage: PartageCli, topic: str, options: list[object], words: str
) -> None:
    assert words in partage.fails("transactions", "abort", *options, code=2)


def test_abort_in_unknown_partition_fails(partage: PartageCli, topic: str) -> None:
    error = partage.fails("transactions", "abort", f"{topic}:9", "--start-offset", 1)
    assert error == f"topic {topic} has no partition 9"
