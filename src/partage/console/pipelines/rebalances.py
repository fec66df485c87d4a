"""``partage pipeline rebalances``: the cost of rebalances, from the coordinator's events."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from partage.console.common.datetime_option import parse_datetime
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError, install_hint, require_packages
from partage.console.common.options import JsonOption
from partage.console.common.output import count, json_help, note, print_json
from partage.console.common.pairs import parse_pairs
from partage.console.common.table import print_table
from partage.console.pipelines.spark_options import (
    BootstrapOption,
    MasterOption,
    SourceOptionsOption,
    SparkConfOption,
    source_options,
)
from partage.pipelines.queries import QueryFailedError
from partage.pipelines.rebalances.job import RebalancesOptions
from partage.pipelines.rebalances.job import rebalances as run_rebalances
from partage.pipelines.rebalances.output_directory import OutputExistsError, TableFormat
from partage.pipelines.rebalances.report import RebalancesReport
from partage.pipelines.session import SparkUnavailableError, spark_session
from partage.store.group_events import TOPIC

app = command_app()


@app.command(
    "rebalances",
    epilog=json_help(RebalancesReport),
)
def rebalances(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Output directory for tables and pictures."
        ),
    ],
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Group; repeatable. Default: all groups.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only events since then, for example 2026-11-21T08:00:00."
        ),
    ] = None,
    topic: Annotated[
        str, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic of the events.")
    ] = TOPIC,
    kind: Annotated[
        TableFormat, typer.Option("--format", help="File format of the tables.")
    ] = TableFormat.PARQUET,
    pictures: Annotated[
        int, typer.Option(metavar="GROUPS", min=0, help="Number of groups to draw.")
    ] = 4,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the tables of an earlier run.")
    ] = False,
    local: Annotated[
        bool,
        typer.Option("--local", help="Run in this process without Spark, for short histories."),
    ] = False,
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
    option: SourceOptionsOption = None,
    master: MasterOption = "local[2]",
    conf: SparkConfOption = None,
    json: JsonOption = False,
) -> None:
    """Report the cost of rebalances: causes, stopped partitions, moved partitions, and lag.

    Reads the events that Partage brokers write to __group_events.

    \b
    Examples:
      partage pipeline rebalances --output rebalances
      partage pipeline rebalances --group tower --local --output tower --format csv
    """
    # PySpark first, because its extra includes pyarrow.
    require_packages(*([] if local else ["pyspark"]), "pyarrow")
    options = RebalancesOptions(
        servers=bootstrap_server,
        output=output,
        topic=topic,
        groups=tuple(group or ()),
        since_ms=None if since is None else parse_datetime(since, "--since"),
        table_format=kind,
        may_overwrite=overwrite,
        pictures_max=pictures,
        source=source_options(option),
    )
    began = datetime.now(UTC)
    with ExitStack() as stack:
        try:
            spark = None
            if not local:
                note("starting Spark; use --local to run without it")
                settings = parse_pairs(conf or [], "--conf")
                spark = stack.enter_context(spark_session("rebalances", master, settings))
            report = run_rebalances(options, spark, step=note)
        except (OutputExistsError, SparkUnavailableError, QueryFailedError) as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"cannot write to {output}: {error}") from None
    if json:
        print_json(report)
        return
    print_report(report, drawn=bool(report.pictures) or not pictures)
    note(f"took {(datetime.now(UTC) - began).total_seconds():.1f} s")


def print_report(report: RebalancesReport, *, drawn: bool) -> None:
    """Print the report as tables.

    Args:
        report: Results of the pipeline.
        drawn: False if pictures were requested but matplotlib is missing.
    """
    print(
        f"{count(report.events, 'event')} of {count(report.groups, 'group')}, "
        f"{report.first} to {report.last}\n"
    )
    if report.causes:
        print_table(
            ["CAUSE", "EPISODES", "REBALANCES", "TOOK S", "MOVED", "STALLED S"],
            [
                (
                    each.cause,
                    each.episodes,
                    each.rebalances,
                    _seconds(each.took_ms),
                    each.moved,
                    _seconds(each.stalled_ms),
                )
                for each in report.causes
            ],
        )
        print()
    if report.most_stalled_groups:
        print_table(
            ["GROUP", "REBALANCES", "MEMBERS", "MOVED", "STALLED S", "REFUSED", "LAG"],
            [
                (
                    each.group + ("" if each.complete else " (incomplete)"),
                    each.rebalances,
                    each.members_max,
                    each.moved,
                    _seconds(each.stalled_ms),
                    each.refused_commits,
                    each.lag,
                )
                for each in report.most_stalled_groups
            ],
            optional=["REFUSED", "MEMBERS", "MOVED"],
        )
        print()
    if report.most_stalled_members:
        print_table(
            ["GROUP", "MEMBER", "STALLED S", "PARTITIONS S", "WAITED S", "HELD UP S", "GONE"],
            [
                (
                    each.group,
                    each.member,
                    _seconds(each.stalled_ms),
                    _seconds(each.partitions_stalled_ms),
                    _seconds(each.waited_ms),
                    _seconds(each.held_up_ms),
                    each.gone_by,
                )
                for each in report.most_stalled_members
            ],
            optional=["HELD UP S", "WAITED S", "GONE", "PARTITIONS S"],
        )
        print()
    rows = sum(report.tables.values())
    print(f"{count(rows, 'row')} in {len(report.tables)} tables: {report.output}/tables")
    for picture in report.pictures:
        print(picture)
    if not drawn:
        note(f"no pictures: matplotlib is not installed ({install_hint('matplotlib')})")
    if report.lost_events:
        note(f"the broker dropped {count(report.lost_events, 'event')}: the figures are too low")
    if report.unread_partitions:
        note(
            f"{count(report.unread_partitions, 'partition')} not read because their brokers are "
            "down; run again when they are up"
        )
    if report.unreadable_records:
        note(f"skipped {count(report.unreadable_records, 'record')} that are not events")
    if report.incomplete_groups:
        note(f"incomplete history of {count(report.incomplete_groups, 'group')}")


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f}"
