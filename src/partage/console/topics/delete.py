"""``partage topics delete``."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaError

from partage.console.common.cluster_client import ClusterClient, error_text
from partage.console.common.confirmation import confirm
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError
from partage.console.common.options import (
    DryRunOption,
    JsonOption,
    TopicsArgument,
    TopicsOption,
    YesOption,
    required_names,
    with_cluster,
)
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.suggestions import missing_names
from partage.console.topics.describe import describe_topics, match_pattern

app = command_app()

#: Characters of a topic's name.
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_DOUBT: Final = "check with partage topics list whether it was deleted"


class TopicDeletionFailure(msgspec.Struct, frozen=True):
    """A topic that was not deleted, and the reason."""

    topic: str
    error: str


class TopicDeletionReport(msgspec.Struct, frozen=True):
    """Output of ``partage topics delete --json``; ``executed`` is false for a dry run."""

    deleted: list[str]
    failed: list[TopicDeletionFailure]
    executed: bool = True


@app.command("delete", epilog=json_help(TopicDeletionReport))
@with_cluster()
def delete(
    cluster: ClusterClient,
    name: TopicsArgument = None,
    topic: TopicsOption = None,
    regex: Annotated[
        bool,
        typer.Option(
            "--regex",
            help="Topics are regular expressions for the whole name. Internal topics never match. "
            "Without a terminal, add --yes.",
        ),
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if there is no such topic.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Delete topics and all their records.

    On a terminal, the command asks for confirmation.

    \b
    Examples:
      partage topics delete seen --yes
      partage topics delete --regex 'test-.*' --if-exists --dry-run
      partage topics delete --regex 'test-.*' --if-exists --yes
    """
    given = required_names(name, topic, "topic")
    if regex:
        names = _matching(cluster, given, is_required=not if_exists)
    else:
        names = _existing(cluster, given, is_required=not if_exists)
    if dry_run:
        _print_report(TopicDeletionReport(names, [], executed=False), json)
        return
    if names:
        question = f"delete {count(len(names), 'topic')} with all records"
        confirm(question, names, yes=yes, needs_terminal=regex)
    report = _delete(cluster, names)
    _print_report(report, json)
    if report.failed:
        raise CommandError(
            "; ".join(f"topic {each.topic} was not deleted: {each.error}" for each in report.failed)
        )


def _existing(cluster: ClusterClient, names: list[str], *, is_required: bool) -> list[str]:
    """Return those of the names that exist.

    Raises:
        CommandError: A topic does not exist, although it is required.
    """
    topics = cluster.metadata().topics
    missing = [each for each in names if each not in topics]
    is_pattern = not all(_TOPIC_NAME.fullmatch(each) for each in missing)
    if is_pattern:
        message = f"no such topic: {', '.join(missing)}; for a pattern, add --regex"
    else:
        message = missing_names("topic", missing, topics)
    if missing and is_required:
        raise CommandError(message)
    if is_pattern:
        note(message)
    return [each for each in names if each in topics]


def _matching(cluster: ClusterClient, patterns: list[str], *, is_required: bool) -> list[str]:
    """Return the topics that match a pattern, without internal topics.

    Raises:
        CommandError: A pattern is invalid, or matches no topic although this is required.
    """
    topics = [each.name for each in describe_topics(cluster) if not each.is_internal]
    found: dict[str, None] = {}
    for pattern in patterns:
        matched = match_pattern(topics, pattern)
        if not matched and is_required:
            raise CommandError(f"no topic matches {pattern!r}; --if-exists accepts this")
        if not matched:
            note(f"no topic matches {pattern!r}")
        found |= dict.fromkeys(matched)
    return list(found)


def _delete(cluster: ClusterClient, names: list[str]) -> TopicDeletionReport:
    deleted: list[str] = []
    failed: list[TopicDeletionFailure] = []
    if names:
        answers = cluster.admin.delete_topics(
            names, operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
        )
        for name, answer in answers.items():
            refusal = cluster.refusal_of(answer, _DOUBT)
            if refusal is None:
                deleted.append(name)
            else:
                failed.append(TopicDeletionFailure(name, _reason(refusal)))
    return TopicDeletionReport(deleted, failed)


def _reason(refusal: KafkaError) -> str:
    # librdkafka does not return the broker's message.
    if refusal.code() == KafkaError.TOPIC_EXCEPTION:
        return "clients cannot delete an internal topic"
    return error_text(refusal)


def _print_report(report: TopicDeletionReport, json: bool) -> None:
    if json:
        print_json(report)
    else:
        for name in report.deleted:
            print(f"deleted topic {name}" if report.executed else f"would delete topic {name}")
