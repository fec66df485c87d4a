"""``partage topics``: list, create, describe and delete topics."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic, TopicDescription

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import JsonOption, parse_pairs, with_cluster
from partage.console.common.output import count, json_help, print_json, print_table
from partage.console.topics.describe import (
    TopicDetails,
    describe_topics,
    match_topics,
    replication_factor,
    topic_details,
)

BROKER_DEFAULT: Final = -1
_DOUBT: Final = "check with partage topics list whether it was {}"

app = command_app()

TopicPatternsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="Topic name, or a regular expression if no topic has that name; repeatable. "
        "Default: all topics.",
    ),
]
ExcludeInternalOption = Annotated[
    bool, typer.Option("--exclude-internal", help="Omit Kafka's internal topics.")
]


class TopicLine(msgspec.Struct, frozen=True):
    """A topic in the output of ``partage topics list``."""

    topic: str
    partitions: int
    replication_factor: int
    internal: bool


class TopicList(msgspec.Struct, frozen=True):
    """Output of ``partage topics list --json``."""

    topics: list[TopicLine]


class TopicDetailsList(msgspec.Struct, frozen=True):
    """Output of ``partage topics describe --json``."""

    topics: list[TopicDetails]


class TopicDeletionFailure(msgspec.Struct, frozen=True):
    """A topic that was not deleted, and the reason."""

    topic: str
    error: str


class TopicCreationReport(msgspec.Struct, frozen=True):
    """Output of ``partage topics create --json``.

    ``existing`` are topics that existed before (--if-not-exists).
    """

    created: list[str]
    existing: list[str]


class TopicDeletionReport(msgspec.Struct, frozen=True):
    """Output of ``partage topics delete --json``."""

    deleted: list[str]
    failed: list[TopicDeletionFailure]


@app.command("list", epilog=json_help(TopicList))
@with_cluster()
def list_topics(
    cluster: ClusterClient,
    topic: TopicPatternsOption = None,
    exclude_internal: ExcludeInternalOption = False,
    json: JsonOption = False,
) -> None:
    """List topics with their partitions.

    \b
    Examples:
      partage topics list
      partage topics list --topic 'fli.*' --exclude-internal --json
    """
    found = _chosen(cluster, topic, exclude_internal, required=False)
    lines = [
        TopicLine(each.name, len(each.partitions), replication_factor(each), each.is_internal)
        for each in found
    ]
    if json:
        print_json(TopicList(lines))
    else:
        print_table(
            ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"],
            [(line.topic, line.partitions, line.replication_factor) for line in lines],
        )


@app.command("create", epilog=json_help(TopicCreationReport))
@with_cluster()
def create(
    cluster: ClusterClient,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC", help="Topic to create; repeatable."),
    ],
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            help="Number of partitions; -1: the broker's default.",
        ),
    ] = BROKER_DEFAULT,
    replicas: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            metavar="N",
            help="Number of replicas; -1: the broker's default.",
        ),
    ] = BROKER_DEFAULT,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Topic setting; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create topics.

    \b
    Examples:
      partage topics create --topic flights --partitions 12
      partage topics create --topic weather --partitions 12 --if-not-exists
      partage topics create --topic seen --partitions 1 --config cleanup.policy=compact
    """
    for name, value in (("--partitions", partitions), ("--replication-factor", replicas)):
        if value < 1 and value != BROKER_DEFAULT:
            raise usage_error(
                f"invalid {name} {value}: must be 1 or more, or -1 for the broker's default"
            )
    configs = parse_pairs(config or [], "--config")
    cluster.metadata()
    asked = [NewTopic(name, partitions, replicas, config=configs) for name in dict.fromkeys(topic)]
    answers = cluster.admin.create_topics(
        asked, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
    )
    created, existing, refused = [], [], []
    for name, answer in answers.items():
        refusal = cluster.refusal_of(answer, _DOUBT.format("created"))
        if refusal is None:
            created.append(name)
        elif refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS and if_not_exists:
            existing.append(name)
        else:
            refused.append(f"topic {name} was not created: {_why_not_created(refusal)}")
    if json:
        print_json(TopicCreationReport(created, existing))
    else:
        for name in created:
            print(f"created topic {name}")
        for name in existing:
            print(f"topic {name} already exists")
    if refused:
        raise CommandError("; ".join(refused))


@app.command("describe", epilog=json_help(TopicDetailsList))
@with_cluster()
def describe(
    cluster: ClusterClient,
    topic: TopicPatternsOption = None,
    exclude_internal: ExcludeInternalOption = False,
    json: JsonOption = False,
) -> None:
    """Show settings and partitions of topics.

    Settings are shown if they differ from the defaults. Columns of a partition: leader, replicas,
    in-sync replicas (ISR), earliest and latest offset.

    \b
    Examples:
      partage topics describe --topic flights
      partage topics describe --exclude-internal --json
    """
    found = topic_details(cluster, _chosen(cluster, topic, exclude_internal, required=True))
    if json:
        print_json(TopicDetailsList(found))
        return
    for place, state in enumerate(found):
        if place:
            print()
        configs = ",".join(f"{name}={value}" for name, value in state.configs.items()) or "-"
        print(
            f"topic {state.topic}  id {state.topic_id}  "
            f"{count(len(state.partitions), 'partition')}  "
            f"replication factor {state.replication_factor}  configs {configs}"
        )
        print_table(
            ["PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST", "LATEST"],
            [
                (
                    each.partition,
                    each.leader if each.leader >= 0 else "none",
                    ",".join(map(str, each.replicas)),
                    ",".join(map(str, each.isr)),
                    each.earliest_offset,
                    each.latest_offset,
                )
                for each in state.partitions
            ],
        )


@app.command("delete", epilog=json_help(TopicDeletionReport))
@with_cluster()
def delete(
    cluster: ClusterClient,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Topic name, or a regular expression if no topic has that name; repeatable.",
        ),
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if there is no such topic.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Delete topics and all their records.

    \b
    Examples:
      partage topics delete --topic seen
      partage topics delete --topic 'test-.*' --if-exists
    """
    # An internal topic is deleted only by its exact name, so that ".*" does not delete the offsets
    # of groups.
    topics = {each.name: each.is_internal for each in describe_topics(cluster)}
    offered = [name for name, internal in topics.items() if not internal or name in topic]
    names = match_topics(offered, topic, required=not if_exists)
    deleted, failed = [], []
    if names:
        answers = cluster.admin.delete_topics(
            names, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
        )
        for name, answer in answers.items():
            refusal = cluster.refusal_of(answer, _DOUBT.format("deleted"))
            if refusal is None:
                deleted.append(name)
            else:
                failed.append(TopicDeletionFailure(name, error_text(refusal)))
    if json:
        print_json(TopicDeletionReport(deleted, failed))
    else:
        for name in deleted:
            print(f"deleted topic {name}")
    if failed:
        raise CommandError(
            "; ".join(f"topic {each.topic} was not deleted: {each.error}" for each in failed)
        )


def _chosen(
    cluster: ClusterClient, patterns: list[str] | None, exclude_internal: bool, required: bool
) -> list[TopicDescription]:
    topics = {each.name: each for each in describe_topics(cluster)}
    names = match_topics(topics, patterns, required) if patterns else topics
    return [topics[name] for name in names if not (exclude_internal and topics[name].is_internal)]


def _why_not_created(refusal: KafkaError) -> str:
    if refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return "it already exists (--if-not-exists accepts this)"
    return error_text(refusal)
