"""``partage transactions``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from .cli import PartageCli

TIMEOUT_S = 30


@pytest.fixture
def open_transaction(broker: str, topic: str, name: str) -> Iterator[str]:
    """Transactional id of an open transaction in partition 0 of the topic."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "x", partition=0)
    producer.flush(TIMEOUT_S)
    yield name
    producer.abort_transaction(TIMEOUT_S)


def test_list_shows_state_and_coordinator(partage: PartageCli, open_transaction: str) -> None:
    listed = partage("transactions", "list", "--state", "ongoing,empty")
    (row,) = [line.split() for line in listed.lines if line.startswith(open_transaction)]
    assert (row[1], row[3]) == ("1", "Ongoing")
    (listing,) = [
        each
        for each in partage("transactions", "list", "-J").json["transactions"]
        if each["transactional_id"] == open_transaction
    ]
    assert listing == {
        "transactional_id": open_transaction,
        "coordinator": 1,
        "producer_id": int(row[2]),
        "state": "Ongoing",
    }
    assert open_transaction not in partage("transactions", "list", "--state", "Empty").out


def test_list_filters_by_age(partage: PartageCli, open_transaction: str) -> None:
    old = partage("transactions", "list", "--state", "ongoing", "--older-than-ms", 3_600_000)
    assert open_transaction not in old.out


def test_list_unknown_state_is_rejected(partage: PartageCli, broker: str) -> None:
    assert "unknown state 'open'" in partage.fails(
        "transactions", "list", "--state", "open", code=2
    )


def test_describe_shows_partitions(partage: PartageCli, open_transaction: str, topic: str) -> None:
    described = partage("transactions", "describe", open_transaction)
    assert f"{topic}(0)" in described.out
    (document,) = partage("transactions", "describe", open_transaction, "-J").json["transactions"]
    assert document["state"] == "Ongoing"
    assert document["start_ms"] > 0
    assert document["topics"] == [{"topic": topic, "partitions": [0]}]


def test_describe_missing_id_suggests_similar_ids(
    partage: PartageCli, open_transaction: str
) -> None:
    error = partage.fails("transactions", "describe", f"{open_transaction}x", open_transaction)
    assert error.startswith(f"no such transactional id: {open_transaction}x; did you mean ")
    assert open_transaction in error.partition("; ")[2]


def test_describe_unknown_id_fails(partage: PartageCli, broker: str, name: str) -> None:
    assert f"no such transactional id: {name}" in partage.fails("transactions", "describe", name)
