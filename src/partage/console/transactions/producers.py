"""``partage transactions describe-producers`` and ``find-hanging``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
import typer

from partage.client.cluster import Cluster
from partage.console.common.client_requests import run_client
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.completion import complete_topics
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError
from partage.console.common.options import (
    JsonOption,
    given_names,
    required_names,
    with_coordinators,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.partitions import parse_topics, resolve_partitions
from partage.console.common.table import print_table
from partage.console.transactions.transaction_requests import (
    OpenTransaction,
    PartitionProducer,
    describe_producers,
    find_transactions,
)
from partage.model.topic_partition import TopicPartition

app = command_app()

#: Kafka's default of ``transaction.max.timeout.ms``.
_TIMEOUT_MAX_MS: Final = 900_000

_PartitionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC[:0,1]",
        help="Topics, or some of their partitions.",
        show_default=False,
        autocompletion=complete_topics,
    ),
]
_PartitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="Same as the argument; repeatable.",
        autocompletion=complete_topics,
    ),
]


class ProducerList(msgspec.Struct, frozen=True):
    """Output of ``partage transactions describe-producers --json``."""

    producers: list[PartitionProducer]


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that no coordinator will end. Its last record is ``age_ms`` old."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_timestamp_ms: int
    age_ms: int
    transactional_id: str | None


class HangingTransactionList(msgspec.Struct, frozen=True):
    """Output of ``partage transactions find-hanging --json``."""

    transactions: list[HangingTransaction]


@app.command("describe-producers", epilog=json_help(ProducerList))
@with_coordinators()
def describe_producers_command(
    cluster: ClusterClient,
    name: _PartitionsArgument = None,
    topic: _PartitionsOption = None,
    json: JsonOption = False,
) -> None:
    """Show the idempotent and transactional producers of partitions, as their leaders know them.

    A start offset is that of an open transaction.

    \b
    Examples:
      partage transactions describe-producers flights
      partage transactions describe-producers flights:0,1 --json
    """
    wanted = parse_topics(required_names(name, topic, "topic"))
    partitions = resolve_partitions(cluster, wanted)
    found = run_client(cluster, lambda client: describe_producers(client, partitions))
    if json:
        print_json(ProducerList(found))
        return
    print_table(
        [
            "TOPIC",
            "PARTITION",
            "PRODUCER-ID",
            "EPOCH",
            "COORDINATOR-EPOCH",
            "LAST-SEQUENCE",
            "LAST-TIMESTAMP-MS",
            "START-OFFSET",
        ],
        [msgspec.structs.astuple(each) for each in found],
        optional=["LAST-SEQUENCE", "COORDINATOR-EPOCH", "LAST-TIMESTAMP-MS", "EPOCH"],
    )


@app.command("find-hanging", epilog=json_help(HangingTransactionList))
@with_coordinators()
def find_hanging(
    cluster: ClusterClient,
    name: _PartitionsArgument = None,
    topic: _PartitionsOption = None,
    broker_id: Annotated[
        int | None,
        typer.Option("--broker-id", metavar="ID", help="Only partitions with this leader."),
    ] = None,
    max_transaction_timeout_ms: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout-ms",
            metavar="MS",
            min=0,
            help="Only transactions whose last record is older; transaction.max.timeout.ms of the "
            "brokers.",
        ),
    ] = _TIMEOUT_MAX_MS,
    json: JsonOption = False,
) -> None:
    """Find open transactions that no coordinator will end.

    They hold back read_committed readers. Without topics, the command searches all partitions that
    have a leader. `partage transactions abort` ends what it finds.

    \b
    Examples:
      partage transactions find-hanging
      partage transactions find-hanging flights --max-transaction-timeout-ms 60000
    """
    partitions = _searched(cluster, parse_topics(given_names(name, topic)), broker_id)
    now_ms = int(time.time() * 1000)

    async def find(client: Cluster) -> list[OpenTransaction]:
        producers = [
            each
            for each in await describe_producers(client, partitions)
            if each.start_offset is not None and _age_ms(each, now_ms) > max_transaction_timeout_ms
        ]
        brokers = await client.broker_addresses()
        found = await find_transactions(client, list(brokers.values()), producers)
        return [each for each in found if each.is_hanging]

    hanging = [_hanging(each, now_ms) for each in run_client(cluster, find)]
    if json:
        print_json(HangingTransactionList(hanging))
        return
    print_table(
        [
            "TOPIC",
            "PARTITION",
            "PRODUCER-ID",
            "EPOCH",
            "COORDINATOR-EPOCH",
            "START-OFFSET",
            "LAST-TIMESTAMP-MS",
            "AGE-MS",
            "TRANSACTIONAL-ID",
        ],
        [msgspec.structs.astuple(each) for each in hanging],
        optional=["LAST-TIMESTAMP-MS", "COORDINATOR-EPOCH", "AGE-MS", "EPOCH", "PRODUCER-ID"],
    )
    note(
        f"found {count(len(hanging), 'hanging transaction')} older than "
        f"{max_transaction_timeout_ms / 1000:,g} s in {count(len(partitions), 'partition')}"
    )


def _searched(
    cluster: ClusterClient, wanted: Mapping[str, set[int] | None], broker_id: int | None
) -> list[TopicPartition]:
    """Return the given partitions, or else all; only those with this leader.

    Raises:
        CommandError: A partition or the broker does not exist, or a given partition has no leader.
    """
    metadata = cluster.metadata()
    if broker_id is not None and broker_id not in metadata.brokers:
        raise CommandError(f"no such broker: {broker_id}")
    given = resolve_partitions(cluster, wanted)
    partitions = given or {
        TopicPartition(topic, number)
        for topic, described in metadata.topics.items()
        for number in described.partitions
    }
    leaders = {
        each: metadata.topics[each.topic].partitions[each.partition].leader for each in partitions
    }
    if offline := sorted(each for each, leader in leaders.items() if leader < 0):
        if given:
            raise CommandError(
                f"{offline[0].topic}-{offline[0].partition} has no leader; try again"
            )
        note(f"not searched: {count(len(offline), 'partition')} without a leader")
    return sorted(
        each for each, leader in leaders.items() if leader >= 0 and broker_id in (None, leader)
    )


def _age_ms(producer: PartitionProducer, now_ms: int) -> int:
    return now_ms - (producer.last_timestamp_ms or 0)


def _hanging(found: OpenTransaction, now_ms: int) -> HangingTransaction:
    producer = found.producer
    assert producer.start_offset is not None  # Its transaction is open.
    return HangingTransaction(
        topic=producer.topic,
        partition=producer.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.start_offset,
        last_timestamp_ms=producer.last_timestamp_ms or 0,
        age_ms=_age_ms(producer, now_ms),
        transactional_id=found.transactional_id,
    )
