"""``partage topics alter``: more partitions and other settings."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka.admin import NewPartitions

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    JsonOption,
    TopicsArgument,
    TopicsOption,
    required_names,
    with_cluster,
)
from partage.console.common.output import json_help, print_json
from partage.console.common.pairs import parse_pairs
from partage.console.configs.entities import Entity, alter_configs
from partage.model.arguments import INT32_MAX

app = command_app()

_DOUBT: Final = "check with partage topics describe whether it was changed"


class TopicAlteration(msgspec.Struct, frozen=True):
    """The changes of a topic, and the error if they were refused.

    ``partitions`` is the new number, or null if it does not change.
    """

    topic: str
    partitions: int | None
    added: dict[str, str]
    deleted: list[str]
    error: str | None


class TopicAlterationReport(msgspec.Struct, frozen=True):
    """Output of ``partage topics alter --json``; ``executed`` is false for a dry run."""

    executed: bool
    topics: list[TopicAlteration]


@app.command("alter", epilog=json_help(TopicAlterationReport))
@with_cluster()
def alter(
    cluster: ClusterClient,
    name: TopicsArgument = None,
    topic: TopicsOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            max=INT32_MAX,
            help="New number of partitions. It cannot be reduced. Keys may get other partitions.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Topic setting; repeatable."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="NAME",
            help="Setting that returns to its default; repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="The broker checks the change, but does not make it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Add partitions to topics, or change their settings.

    A topic is changed only if the broker accepts all its changes.

    \b
    Examples:
      partage topics alter flights --partitions 24 --dry-run
      partage topics alter flights --config retention.ms=86400000
      partage topics alter flights --delete-config retention.ms --json
    """
    names = required_names(name, topic, "topic")
    added = parse_pairs(config or [], "--config")
    deleted = list(dict.fromkeys(delete_config or []))
    if partitions is None and not added and not deleted:
        raise usage_error("topics alter requires --partitions, --config or --delete-config")
    if both := sorted(added.keys() & set(deleted)):
        raise usage_error(f"--config and --delete-config both name {', '.join(both)}")
    cluster.require_topics(names)
    done = []
    for each in names:
        error = _alter(cluster, each, partitions, added, deleted, is_dry_run=True)
        if error is None and not dry_run:
            error = _alter(cluster, each, partitions, added, deleted, is_dry_run=False)
        done.append(TopicAlteration(each, partitions, added, deleted, error))
    _print_report(TopicAlterationReport(not dry_run, done), json)


def _alter(
    cluster: ClusterClient,
    topic: str,
    partitions: int | None,
    added: dict[str, str],
    deleted: list[str],
    *,
    is_dry_run: bool,
) -> str | None:
    """Change a topic, or only check the changes. Return the reason if the broker refuses."""
    if added or deleted:
        entity = Entity("topics", topic)
        error = alter_configs(cluster, entity, added, deleted, is_dry_run=is_dry_run)
        if error is not None:
            return error
    if partitions is None:
        return None
    (answer,) = cluster.admin.create_partitions(
        [NewPartitions(topic, partitions)],
        validate_only=is_dry_run,
        operation_timeout=cluster.timeout_s,
        request_timeout=cluster.timeout_s,
    ).values()
    refusal = cluster.refusal_of(answer, _DOUBT)
    return None if refusal is None else error_text(refusal)


def _print_report(report: TopicAlterationReport, json: bool) -> None:
    if json:
        print_json(report)
    else:
        verb = "altered" if report.executed else "would alter"
        for each in report.topics:
            if each.error is None:
                print(f"{verb} topic {each.topic}")
    failed = [each for each in report.topics if each.error is not None]
    if failed:
        raise CommandError(
            "; ".join(f"topic {each.topic} was not altered: {each.error}" for each in failed)
        )
