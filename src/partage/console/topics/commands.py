"""``partage topics``: the commands list, create and describe."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic, TopicDescription

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.completion import complete_topics
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    JsonOption,
    TopicsArgument,
    TopicsOption,
    given_names,
    required_names,
    with_cluster,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.pairs import parse_pairs
from partage.console.common.table import print_table
from partage.console.topics.describe import (
    TopicDetails,
    describe_topics,
    match_topics,
    replication_factor,
    topic_details,
)
from partage.model.arguments import INT16_MAX, INT32_MAX

BROKER_DEFAULT: Final = -1
_DOUBT: Final = "check with partage topics list whether it was created"

app = command_app()

TopicPatternsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Topic names, or regular expressions if no topic has that name. Default: all topics.",
        show_default=False,
        autocompletion=complete_topics,
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


class TopicCreationReport(msgspec.Struct, frozen=True):
    """Output of ``partage topics create --json``.

    ``existing`` are topics that existed before (--if-not-exists).
    """

    created: list[str]
    existing: list[str]


@app.command("list", epilog=json_help(TopicList))
@with_cluster()
def list_topics(
    cluster: ClusterClient,
    name: TopicPatternsArgument = None,
    topic: TopicsOption = None,
    exclude_internal: ExcludeInternalOption = False,
    json: JsonOption = False,
) -> None:
    """List topics with their partitions.

    If no topic matches, the list is empty and the exit code is 0, as in Kafka. "topics describe"
    fails then.

    \b
    Examples:
      partage topics list
      partage topics list 'fli.*' --exclude-internal --json
    """
    patterns = given_names(name, topic)
    found = _chosen(cluster, patterns, exclude_internal, required=False)
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
    if patterns and not found:
        note(f"no topic matches {' or '.join(patterns)}")


@app.command("create", epilog=json_help(TopicCreationReport))
@with_cluster()
def create(
    cluster: ClusterClient,
    name: TopicsArgument = None,
    topic: TopicsOption = None,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            max=INT32_MAX,
            help="Number of partitions; -1: the broker's default.",
        ),
    ] = BROKER_DEFAULT,
    replicas: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            metavar="N",
            max=INT16_MAX,
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
      partage topics create flights --partitions 12
      partage topics create weather --partitions 12 --if-not-exists
      partage topics create seen --partitions 1 --config cleanup.policy=compact
    """
    names = required_names(name, topic, "topic")
    for option, value in (("--partitions", partitions), ("--replication-factor", replicas)):
        if value < 1 and value != BROKER_DEFAULT:
            raise usage_error(
                f"invalid {option} {value}: must be 1 or more, or -1 for the broker's default"
            )
    configs = parse_pairs(config or [], "--config")
    cluster.metadata()
    new_topics = [NewTopic(each, partitions, replicas, config=configs) for each in names]
    answers = cluster.admin.create_topics(
        new_topics, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
    )
    created, existing, refused = [], [], []
    for each, answer in answers.items():
        refusal = cluster.refusal_of(answer, _DOUBT)
        if refusal is None:
            created.append(each)
        elif refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS and if_not_exists:
            existing.append(each)
        else:
            refused.append(f"topic {each} was not created: {_why_not_created(refusal)}")
    if json:
        print_json(TopicCreationReport(created, existing))
    else:
        for each in created:
            print(f"created topic {each}")
        for each in existing:
            print(f"topic {each} already exists")
    if refused:
        raise CommandError("; ".join(refused))


@app.command("describe", epilog=json_help(TopicDetailsList))
@with_cluster()
def describe(
    cluster: ClusterClient,
    name: TopicPatternsArgument = None,
    topic: TopicsOption = None,
    exclude_internal: ExcludeInternalOption = False,
    json: JsonOption = False,
) -> None:
    """Show settings and partitions of topics.

    Settings are shown if they differ from the defaults. Columns of a partition: leader, replicas,
    in-sync replicas (ISR), earliest and latest offset.

    \b
    Examples:
      partage topics describe flights
      partage topics describe --exclude-internal --json
    """
    found = topic_details(
        cluster, _chosen(cluster, given_names(name, topic), exclude_internal, required=True)
    )
    if json:
        print_json(TopicDetailsList(found))
        return
    for number, details in enumerate(found):
        if number:
            print()
        configs = ",".join(f"{key}={value}" for key, value in details.configs.items()) or "-"
        print(
            f"topic {details.topic}  id {details.topic_id}  "
            f"{count(len(details.partitions), 'partition')}  "
            f"replication factor {details.replication_factor}  configs {configs}"
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
                for each in details.partitions
            ],
        )


def _chosen(
    cluster: ClusterClient, patterns: list[str], exclude_internal: bool, required: bool
) -> list[TopicDescription]:
    topics = {each.name: each for each in describe_topics(cluster)}
    names = match_topics(topics, patterns, required) if patterns else topics
    return [topics[name] for name in names if not (exclude_internal and topics[name].is_internal)]


def _why_not_created(refusal: KafkaError) -> str:
    if refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return "it already exists (--if-not-exists accepts this)"
    return error_text(refusal)
