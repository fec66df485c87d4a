"""``partage pipeline index``: topics into search indexes with replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.client.errors import ClientError
from partage.console.cluster import Cluster
from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.member_options import consumer_options
from partage.console.options import Json, with_cluster
from partage.console.show import Progress, count, json_help, note, print_json, print_table, size
from partage.console.stopping import StopRequest
from partage.pipelines.index import IndexReport
from partage.pipelines.index import index as run_index
from partage.recipes.indexer_blocking import Progress as Done
from partage.recipes.indexes import SearchIndexError

app = command_app()


@app.command("index", epilog=json_help(IndexReport, "prints at the end:"))
@with_cluster()
def index(
    cluster: Cluster,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="The topic; may be given several times."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="This member's directory, for its indexes."
        ),
    ],
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="GROUP", help="The group that shares the work.")
    ] = "partage-index",
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", metavar="N", min=1, help="How many members index each partition."
        ),
    ] = 2,
    available_now: Annotated[
        bool,
        typer.Option(
            "--once", "--available-now", help="Stop at the end, as it is when this begins."
        ),
    ] = False,
    group_instance_id: Annotated[
        str | None,
        typer.Option(
            "--group-instance-id",
            metavar="ID",
            help="A static member: a restart within the session moves nothing (KIP-345).",
        ),
    ] = None,
    commit_interval_ms: Annotated[
        int,
        typer.Option(
            "--commit-interval-ms",
            metavar="MS",
            min=1,
            help="How often the group's offsets show how far the indexes are.",
        ),
    ] = 5_000,
    state_cleanup_delay_ms: Annotated[
        int,
        typer.Option(
            "--state-cleanup-delay-ms",
            metavar="MS",
            min=0,
            help="How long the index of a partition that has moved away is kept.",
        ),
    ] = 600_000,
    json: Json = False,
) -> None:
    """Index topics for full-text search, as a member of a group that keeps replicas.

    Each partition is indexed by N members of the group, or by all if they are fewer, in SQLite
    with FTS5; when one is lost the others take over. Start it several times, each with a directory
    of its own, and search with "partage search". Ctrl-C ends it and leaves the group. Options of
    the consumer underneath may be set with -X, such as -X session.timeout.ms=10000.

    \b
    Examples:
      partage pipeline index --topic flights --output indexes/a --once
      partage pipeline index -t flights -o indexes/b --group search --replicas 3 --once --json
    """
    if "group.id" in cluster.properties:
        raise misused("the group is given by --group, not by group.id")
    options = consumer_options(cluster.properties)
    if group_instance_id is not None:
        options["group_instance_id"] = group_instance_id
    cluster.require_topics(topic)
    with StopRequest() as stop, Progress(f"indexing {', '.join(topic)}", hidden=json) as drawn:
        try:
            report = run_index(
                cluster.bootstrap_servers,
                topic,
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
            raise misused(str(error)) from error
        except (SearchIndexError, ClientError) as error:
            raise Failure(str(error)) from error
    tell(report, json)


def tell(report: IndexReport, json: bool) -> None:
    """Print what was done, and what there is."""
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
        f"({size(report.bytes)}) in {report.seconds:.1f} s, {rate:,.0f} a second; "
        f"{count(report.rebalances, 'rebalance')}"
        + (f"; {count(report.rebuilt, 'index', 'indexes')} built anew" if report.rebuilt else "")
    )


def _show(drawn: Progress, done: Done) -> None:
    said = f"{count(len(done.positions), 'partition')}, {count(done.records, 'record')}"
    total = None if done.behind is None else done.records + done.behind
    drawn.show(said, done.records, total)
