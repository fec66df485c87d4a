"""``partage pipeline index``: topics to full-text search indexes with replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.client.errors import ClientError
from partage.console.common.client_options import consumer_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, usage_error
from partage.console.common.options import (
    JsonOption,
    TopicsArgument,
    TopicsOption,
    required_names,
    with_cluster,
)
from partage.console.common.output import (
    ProgressBar,
    count,
    format_bytes,
    json_help,
    note,
    print_json,
)
from partage.console.common.signals import StopRequest
from partage.console.common.table import print_table
from partage.pipelines.index import IndexReport
from partage.pipelines.index import index as run_index
from partage.recipes.errors import SearchIndexError
from partage.recipes.sync_indexer import IndexerProgress as Done

app = command_app()


@app.command("index", epilog=json_help(IndexReport, "prints at the end:"))
@with_cluster()
def index(
    cluster: ClusterClient,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Directory for this member's indexes."),
    ],
    name: TopicsArgument = None,
    topic: TopicsOption = None,
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="GROUP", help="Group that shares the work.")
    ] = "partage-index",
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", metavar="N", min=1, help="Number of members that index each partition."
        ),
    ] = 2,
    available_now: Annotated[
        bool,
        typer.Option(
            "--once", "--available-now", help="Stop when the records that exist now are indexed."
        ),
    ] = False,
    group_instance_id: Annotated[
        str | None,
        typer.Option(
            "--group-instance-id",
            metavar="ID",
            help="Static member: no rebalance after a restart within the session timeout "
            "(KIP-345).",
        ),
    ] = None,
    commit_interval_ms: Annotated[
        int,
        typer.Option(
            "--commit-interval-ms",
            metavar="MS",
            min=1,
            help="Interval of committing the indexes' positions as group offsets.",
        ),
    ] = 5_000,
    state_cleanup_delay_ms: Annotated[
        int,
        typer.Option(
            "--state-cleanup-delay-ms",
            metavar="MS",
            min=0,
            help="How long to keep the index of a partition that moved to another member.",
        ),
    ] = 600_000,
    json: JsonOption = False,
) -> None:
    """Index topics for full-text search, as a member of a group that keeps replicas.

    Each partition is indexed in SQLite (FTS5) by N members of the group, or by all members if
    there are fewer. If a member fails, other members replace it. Start several processes, each
    with a separate directory, and search with "partage search". Ctrl-C stops it and leaves the
    group. Set consumer options with -X, for example -X session.timeout.ms=10000.

    \b
    Examples:
      partage pipeline index flights --output indexes/a --once
      partage pipeline index flights -o indexes/b --group search --replicas 3 --once --json
    """
    if "group.id" in cluster.properties:
        raise usage_error("set the group with --group, not with group.id")
    topics = required_names(name, topic, "topic")
    options = consumer_options(cluster.properties)
    if group_instance_id is not None:
        options["group_instance_id"] = group_instance_id
    cluster.require_topics(topics)
    with StopRequest() as stop, ProgressBar(f"indexing {', '.join(topics)}", hidden=json) as drawn:
        try:
            report = run_index(
                cluster.bootstrap_servers,
                topics,
                group,
                output,
                replicas=replicas,
                available_now=available_now,
                is_stopped=lambda: bool(stop),
                on_progress=lambda done: _show(drawn, done),
                commit_interval_ms=commit_interval_ms,
                state_cleanup_delay_ms=state_cleanup_delay_ms,
                **options,
            )
        except (TypeError, ValueError) as error:
            raise usage_error(str(error)) from error
        except (SearchIndexError, ClientError) as error:
            raise CommandError(str(error)) from error
    print_report(report, json)


def print_report(report: IndexReport, json: bool) -> None:
    """Print the report as JSON or as a table."""
    if json:
        print_json(report)
        return
    rows = [
        (each.topic, each.partition, each.documents, each.position, each.lag)
        for each in report.partitions
    ]
    if rows:
        print_table(["TOPIC", "PARTITION", "DOCUMENTS", "POSITION", "LAG"], rows)
    documents = sum(each.documents for each in report.partitions)
    rate = report.records / report.seconds if report.seconds else 0.0
    note(
        f"{report.directory}: {count(documents, 'document')} of "
        f"{count(len(report.partitions), 'partition')}; indexed {count(report.records, 'record')} "
        f"({format_bytes(report.bytes)}) in {report.seconds:.1f} s, {rate:,.0f} a second; "
        f"{count(report.rebalances, 'rebalance')}"
        + (f"; {count(report.rebuilt, 'index', 'indexes')} rebuilt" if report.rebuilt else "")
    )


def _show(drawn: ProgressBar, done: Done) -> None:
    detail = f"{count(len(done.positions), 'partition')}, {count(done.records, 'record')}"
    total = None if done.behind is None else done.records + done.behind
    drawn.update(detail, done.records, total)
