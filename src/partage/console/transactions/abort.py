"""``partage transactions abort``: end a hanging transaction in a partition (KIP-664)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from partage.client.cluster import Cluster
from partage.client.errors import BrokerResponseError, UnsupportedApiError
from partage.console.common.client_requests import run_client
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.completion import complete_topics
from partage.console.common.confirmation import confirm
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    DryRunOption,
    JsonOption,
    YesOption,
    required_name,
    with_coordinators,
)
from partage.console.common.output import json_help, note, print_json
from partage.console.common.partitions import parse_topics, resolve_partitions
from partage.console.transactions.transaction_requests import (
    OpenTransaction,
    PartitionProducer,
    describe_producers,
    find_transactions,
)
from partage.model.arguments import INT16_MAX, INT32_MAX, INT64_MAX
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

app = command_app()

#: Coordinator epoch for a producer without a marker. It is not above that of any coordinator.
_FIRST_COORDINATOR_EPOCH: Final = 0
_NEEDED: Final = (
    "transactions abort requires either --start-offset, or --producer-id, --producer-epoch and "
    "--coordinator-epoch (for brokers before Kafka 3.0)"
)


class TransactionAbort(msgspec.Struct, frozen=True):
    """Output of ``partage transactions abort --json``; ``executed`` is false for a dry run."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int | None
    executed: bool


@app.command("abort", epilog=json_help(TransactionAbort))
@with_coordinators()
def abort(
    cluster: ClusterClient,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC:PARTITION",
            help="The partition.",
            show_default=False,
            autocompletion=complete_topics,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Topic, with --partition instead of the argument.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Partition.")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="N", min=0, help="First offset of the open transaction."
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            "--producer-id",
            metavar="ID",
            min=0,
            max=INT64_MAX,
            help="Producer id, for old brokers.",
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(
            "--producer-epoch",
            metavar="N",
            min=0,
            max=INT16_MAX,
            help="Producer epoch, for old brokers.",
        ),
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch",
            metavar="N",
            min=-1,
            max=INT32_MAX,
            help="Coordinator epoch, for old brokers.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also abort a transaction that is open at its coordinator. It is then "
            "incomplete if its producer commits it.",
        ),
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Abort a hanging transaction in one partition.

    The coordinator does not learn of it. `partage transactions find-hanging` finds partitions and
    offsets. On a terminal, the command asks for confirmation.

    \b
    Examples:
      partage transactions abort flights:0 --start-offset 7 --dry-run
      partage transactions abort --topic flights --partition 0 --start-offset 7 --yes
    """
    where = _parse_partition(name, topic, partition)
    identity = (producer_id, producer_epoch, coordinator_epoch)
    given = [each for each in identity if each is not None]
    if len(given) != (3 if start_offset is None else 0):
        raise usage_error(_NEEDED)
    resolve_partitions(cluster, {where.topic: {where.partition}})
    if start_offset is not None:
        producer = run_client(cluster, lambda client: _find_producer(client, where, start_offset))
    else:
        producer = PartitionProducer(*where, given[0], given[1], given[2], None, None, None)
    if not force:
        _require_hanging(cluster, producer)
    planned = TransactionAbort(
        topic=where.topic,
        partition=where.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=_FIRST_COORDINATOR_EPOCH
        if producer.coordinator_epoch is None or producer.coordinator_epoch < 0
        else producer.coordinator_epoch,
        start_offset=producer.start_offset,
        executed=not dry_run,
    )
    what = f"the transaction of producer {planned.producer_id}, epoch {planned.producer_epoch}"
    place = f"{where.topic}-{where.partition}"
    began = "" if start_offset is None else f", which began at offset {start_offset}"
    if not dry_run:
        confirm(f"abort {what}", [f"{place}{began}"], yes=yes)
        run_client(cluster, lambda client: _write_marker(client, planned))
    if json:
        print_json(planned)
    note(f"{'dry run: would abort' if dry_run else 'aborted'} {what}, in {place}{began}")


def _parse_partition(name: str | None, topic: str | None, partition: int | None) -> TopicPartition:
    text = required_name(name, topic, "topic")
    wanted = parse_topics([text if partition is None else f"{text}:{partition}"])
    ((parsed, numbers),) = wanted.items()
    if numbers is None or len(numbers) != 1:
        raise usage_error(f"one partition is needed; use {parsed}:0, or --partition")
    return TopicPartition(parsed, *numbers)


async def _find_producer(
    client: Cluster, where: TopicPartition, start_offset: int
) -> PartitionProducer:
    producers = await describe_producers(client, [where])
    for each in producers:
        if each.start_offset == start_offset:
            return each
    starts = sorted(each.start_offset for each in producers if each.start_offset is not None)
    hint = f"there are some at {', '.join(map(str, starts))}" if starts else "there is none"
    raise CommandError(
        f"no open transaction begins at offset {start_offset} of {where.topic}-{where.partition}; "
        f"{hint}"
    )


def _require_hanging(cluster: ClusterClient, producer: PartitionProducer) -> None:
    """Check that no coordinator has the transaction open.

    Raises:
        CommandError: A coordinator has it, or the transaction has just ended.
    """

    async def find(client: Cluster) -> list[OpenTransaction]:
        brokers = await client.broker_addresses()
        return await find_transactions(client, list(brokers.values()), [producer])

    try:
        found = run_client(cluster, find)
    except CommandError as error:
        # Brokers before Kafka 3.0 cannot list transactions.
        if producer.start_offset is None and isinstance(error.__cause__, UnsupportedApiError):
            return
        raise
    place = f"{producer.topic}-{producer.partition}"
    for each in found:
        if not each.is_hanging:
            raise CommandError(
                f"the transaction of producer {producer.producer_id} in {place} is not hanging: "
                f"the coordinator of {each.transactional_id!r} has it open and ends it after its "
                "timeout; to abort it in this partition only, add --force"
            )
    if not found and producer.start_offset is not None:
        raise CommandError(f"the transaction of producer {producer.producer_id} in {place} is over")


async def _write_marker(client: Cluster, planned: TransactionAbort) -> None:
    where = TopicPartition(planned.topic, planned.partition)
    leader, _ = await client.leader(where)
    marker = WritableTxnMarker(
        producer_id=planned.producer_id,
        producer_epoch=planned.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=planned.topic, partition_indexes=[planned.partition])],
        coordinator_epoch=planned.coordinator_epoch,
    )
    response = await leader.send(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
    (error,) = [
        result.error_code
        for written in response.markers
        for topic in written.topics
        for result in topic.partitions
    ]
    if error:
        client.invalidate_topic(planned.topic)
        raise _refusal(error, planned)


def _refusal(error: int, planned: TransactionAbort) -> Exception:
    place = f"{planned.topic}-{planned.partition}"
    advice = f"see partage transactions describe-producers {planned.topic}:{planned.partition}"
    if error == ErrorCode.INVALID_PRODUCER_EPOCH:
        return CommandError(
            f"producer {planned.producer_id} has a higher epoch than {planned.producer_epoch} in "
            f"{place}; {advice}"
        )
    if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        return CommandError(
            f"{place} has a marker of a coordinator with a higher epoch than "
            f"{planned.coordinator_epoch}; {advice}"
        )
    if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return CommandError("not authorized to abort transactions: this needs ALTER on the cluster")
    return BrokerResponseError(error, f"abort in {place}")
