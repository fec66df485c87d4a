"""``partage topics``: list, create, describe and delete topics."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic, TopicDescription

from partage.console.cluster import Cluster, words
from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.options import Json, pairs, with_cluster
from partage.console.show import count, json_help, print_json, print_table
from partage.console.topic_states import (
    TopicState,
    described,
    matching,
    replication_factor,
    states,
)

THE_BROKERS_DEFAULT: Final = -1
_DOUBT: Final = "see with partage topics list whether it was {} all the same"

app = command_app("List, create, describe and delete topics.")

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="A topic's name, or a regular expression where no topic has that name; "
        "may be given several times. All topics without it.",
    ),
]
ExcludeInternal = Annotated[
    bool, typer.Option("--exclude-internal", help="Leave out Kafka's internal topics.")
]


class TopicLine(msgspec.Struct, frozen=True):
    """One topic as ``list`` gives it."""

    topic: str
    partitions: int
    replication_factor: int
    internal: bool


class TopicList(msgspec.Struct, frozen=True):
    """``partage topics list --json``."""

    topics: list[TopicLine]


class TopicStates(msgspec.Struct, frozen=True):
    """``partage topics describe --json``."""

    topics: list[TopicState]


class NotDeleted(msgspec.Struct, frozen=True):
    """A topic that was not deleted, and why."""

    topic: str
    error: str


class Created(msgspec.Struct, frozen=True):
    """``partage topics create --json``; ``existing`` were there before (--if-not-exists)."""

    created: list[str]
    existing: list[str]


class Deleted(msgspec.Struct, frozen=True):
    """``partage topics delete --json``."""

    deleted: list[str]
    failed: list[NotDeleted]


@app.command("list", epilog=json_help(TopicList))
@with_cluster()
def list_topics(
    cluster: Cluster,
    topic: Topics = None,
    exclude_internal: ExcludeInternal = False,
    json: Json = False,
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


@app.command("create", epilog=json_help(Created))
@with_cluster()
def create(
    cluster: Cluster,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="The new topic; may be given several times."
        ),
    ],
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            help="How many partitions; -1 leaves it to the broker.",
        ),
    ] = THE_BROKERS_DEFAULT,
    replicas: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            metavar="N",
            help="How many replicas; -1 leaves it to the broker.",
        ),
    ] = THE_BROKERS_DEFAULT,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="NAME=VALUE", help="A topic's setting; may be given several times."
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Accept a topic that is there already.")
    ] = False,
    json: Json = False,
) -> None:
    """Create topics.

    \b
    Examples:
      partage topics create --topic flights --partitions 12
      partage topics create --topic weather --partitions 12 --if-not-exists
      partage topics create --topic seen --partitions 1 --config cleanup.policy=compact
    """
    for name, value in (("--partitions", partitions), ("--replication-factor", replicas)):
        if value < 1 and value != THE_BROKERS_DEFAULT:
            raise misused(f"{name} is {value}; it wants 1 or more, or -1 for the broker's default")
    configs = pairs(config or [], "--config")
    cluster.metadata()
    asked = [NewTopic(name, partitions, replicas, config=configs) for name in dict.fromkeys(topic)]
    answers = cluster.admin.create_topics(
        asked, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
    )
    created, existing, refused = [], [], []
    for name, answer in answers.items():
        refusal = cluster.attempt(answer, _DOUBT.format("created"))
        if refusal is None:
            created.append(name)
        elif refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS and if_not_exists:
            existing.append(name)
        else:
            refused.append(f"topic {name} was not created: {_why_not_created(refusal)}")
    if json:
        print_json(Created(created, existing))
    else:
        for name in created:
            print(f"created topic {name}")
        for name in existing:
            print(f"topic {name} exists already")
    if refused:
        raise Failure("; ".join(refused))


@app.command("describe", epilog=json_help(TopicStates))
@with_cluster()
def describe(
    cluster: Cluster,
    topic: Topics = None,
    exclude_internal: ExcludeInternal = False,
    json: Json = False,
) -> None:
    """Show topics: their settings and partitions.

    Of the settings, those that differ from the defaults; of each partition, its leader, its
    replicas, those in sync (ISR), its earliest and its latest offset.

    \b
    Examples:
      partage topics describe --topic flights
      partage topics describe --exclude-internal --json
    """
    found = states(cluster, _chosen(cluster, topic, exclude_internal, required=True))
    if json:
        print_json(TopicStates(found))
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


@app.command("delete", epilog=json_help(Deleted))
@with_cluster()
def delete(
    cluster: Cluster,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="A topic's name, or a regular expression where no topic has that name; "
            "may be given several times.",
        ),
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Accept that there is no such topic.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete topics and everything in them.

    \b
    Examples:
      partage topics delete --topic seen
      partage topics delete --topic 'test-.*' --if-exists
    """
    # Only its own name deletes an internal topic: ".*" is not meant for the groups' offsets.
    topics = {each.name: each.is_internal for each in described(cluster)}
    offered = [name for name, internal in topics.items() if not internal or name in topic]
    names = matching(offered, topic, required=not if_exists)
    deleted, failed = [], []
    if names:
        answers = cluster.admin.delete_topics(
            names, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
        )
        for name, answer in answers.items():
            refusal = cluster.attempt(answer, _DOUBT.format("deleted"))
            if refusal is None:
                deleted.append(name)
            else:
                failed.append(NotDeleted(name, words(refusal)))
    if json:
        print_json(Deleted(deleted, failed))
    else:
        for name in deleted:
            print(f"deleted topic {name}")
    if failed:
        raise Failure(
            "; ".join(f"topic {each.topic} was not deleted: {each.error}" for each in failed)
        )


def _chosen(
    cluster: Cluster, patterns: list[str] | None, exclude_internal: bool, required: bool
) -> list[TopicDescription]:
    topics = {each.name: each for each in described(cluster)}
    names = matching(topics, patterns, required) if patterns else topics
    return [topics[name] for name in names if not (exclude_internal and topics[name].is_internal)]


def _why_not_created(refusal: KafkaError) -> str:
    if refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return "it exists already (--if-not-exists accepts that)"
    return words(refusal)
