"""``partage transactions``: the application, and its commands list and describe."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec
import typer

from partage.client.cluster import Cluster
from partage.console.common.client_requests import run_client
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption, with_coordinators
from partage.console.common.output import format_partitions, json_help, print_json
from partage.console.common.suggestions import missing_names
from partage.console.common.table import print_table
from partage.console.transactions import transaction_requests as requests
from partage.model.addresses import Address
from partage.model.arguments import INT64_MAX
from partage.wire.apis.describe_transactions import DescribedTransaction
from partage.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest

app = command_app()

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)
#: The first version of ListTransactions with a duration (KIP-994).
_DURATION_VERSION: Final = 1


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionList(msgspec.Struct, frozen=True):
    """Output of ``partage transactions list --json``."""

    transactions: list[TransactionListing]


class TransactionPartitions(msgspec.Struct, frozen=True):
    """The partitions of a transaction in one topic."""

    topic: str
    partitions: list[int]


class TransactionDescription(msgspec.Struct, frozen=True):
    """A transactional id and its transaction. ``start_ms`` is null if there was none yet."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    topics: list[TransactionPartitions]


class TransactionDescriptions(msgspec.Struct, frozen=True):
    """Output of ``partage transactions describe --json``."""

    transactions: list[TransactionDescription]


@app.command("list", epilog=json_help(TransactionList))
@with_coordinators()
def list_transactions(
    cluster: ClusterClient,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only ids in these states (comma-separated): {', '.join(STATES)}.",
        ),
    ] = None,
    older_than_ms: Annotated[
        int | None,
        typer.Option(
            "--older-than-ms",
            metavar="MS",
            min=0,
            max=INT64_MAX,
            help="Only ids whose last transaction began longer ago, and ids without one.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List transactional ids with their states.

    \b
    Examples:
      partage transactions list
      partage transactions list --state ongoing --older-than-ms 60000
    """
    request = ListTransactionsRequest(
        state_filters=_states(state or []),
        producer_id_filters=[],
        duration_filter=-1 if older_than_ms is None else older_than_ms,
    )
    found = _list_all(cluster, request)
    if json:
        print_json(TransactionList(found))
        return
    print_table(
        ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"],
        [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found],
        optional=["COORDINATOR", "PRODUCER-ID"],
    )


def _list_all(cluster: ClusterClient, request: ListTransactionsRequest) -> list[TransactionListing]:
    """Return the transactional ids of all brokers, sorted."""

    async def attempt(client: Cluster) -> list[TransactionListing]:
        brokers = await client.broker_addresses()
        return [
            listing
            for broker_id, address in brokers.items()
            for listing in await _list(client, broker_id, address, request)
        ]

    return sorted(run_client(cluster, attempt), key=lambda each: each.transactional_id)


def _states(names: list[str]) -> list[str]:
    """Return the states that ``--state`` names, in any case."""
    known = {each.lower(): each for each in STATES}
    found = []
    for name in (part.strip() for text in names for part in text.split(",")):
        if name.lower() not in known:
            raise usage_error(f"unknown state {name!r}; the states are {', '.join(STATES)}")
        found.append(known[name.lower()])
    return found


async def _list(
    client: Cluster, broker_id: int, address: Address, request: ListTransactionsRequest
) -> list[TransactionListing]:
    if request.duration_filter >= 0:
        broker = await client.connect_to(address)
        if broker.version_of(LIST_TRANSACTIONS) < _DURATION_VERSION:
            raise CommandError("the broker does not support --older-than-ms (KIP-994)")
    return [
        TransactionListing(
            transactional_id=each.transactional_id,
            coordinator=broker_id,
            producer_id=each.producer_id,
            state=each.transaction_state,
        )
        for each in await requests.list_transactions(client, address, request)
    ]


@app.command("describe", epilog=json_help(TransactionDescriptions))
@with_coordinators()
def describe(
    cluster: ClusterClient,
    transactional_id: Annotated[
        list[str],
        typer.Argument(
            metavar="TRANSACTIONAL-ID", help="The transactional ids.", show_default=False
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Show the state and the partitions of transactions.

    \b
    Examples:
      partage transactions describe copier-1
      partage transactions describe copier-1 copier-2 --json
    """
    described = {
        each: run_client(cluster, partial(requests.describe_transaction, transactional_id=each))
        for each in dict.fromkeys(transactional_id)
    }
    found = [_description(each) for each in described.values() if each is not None]
    missing = [name for name, each in described.items() if each is None]
    if missing:
        raise _missing_ids_error(cluster, missing)
    if json:
        print_json(TransactionDescriptions(found))
        return
    print_table(
        [
            "TRANSACTIONAL-ID",
            "STATE",
            "PRODUCER-ID",
            "EPOCH",
            "TIMEOUT-MS",
            "START-MS",
            "PARTITIONS",
        ],
        [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.producer_epoch,
                each.timeout_ms,
                each.start_ms,
                " ".join(format_partitions(one.topic, one.partitions) for one in each.topics)
                or None,
            )
            for each in found
        ],
        optional=["TIMEOUT-MS", "START-MS", "EPOCH", "PRODUCER-ID"],
        wrapped=True,
    )


def _missing_ids_error(cluster: ClusterClient, missing: list[str]) -> CommandError:
    """Return the error for transactional ids that do not exist, with similar ids that do."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    try:
        existing = [each.transactional_id for each in _list_all(cluster, request)]
    except CommandError:  # The ids are only a help.
        existing = []
    return CommandError(missing_names("transactional id", missing, existing))


def _description(described: DescribedTransaction) -> TransactionDescription:
    start_ms = described.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=described.transactional_id,
        state=described.transaction_state,
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        timeout_ms=described.transaction_timeout_ms,
        start_ms=start_ms if start_ms >= 0 else None,
        topics=[
            TransactionPartitions(each.topic, sorted(each.partitions))
            for each in sorted(described.topics, key=lambda topic: topic.topic)
        ],
    )
