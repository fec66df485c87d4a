"""``partage pipeline join``: two topics joined, stream to stream."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.console.dispatch import command_app
from partage.console.failure import misused
from partage.console.options import Json
from partage.console.pipeline_options import (
    SECONDS_MAX,
    Bootstrap,
    Every,
    Master,
    SourceOptions,
    SparkSettings,
    source_options,
)
from partage.console.pipeline_running import failures_told, run_shown, tell
from partage.console.show import json_help, note
from partage.pipelines.archive.directory import ArchiveDirectory
from partage.pipelines.archive.manifest import ArchiveReport
from partage.pipelines.join.running import JoinOptions
from partage.pipelines.join.running import join as run_join
from partage.pipelines.join.windows import Terms
from partage.pipelines.sources import check_co_partitioned, partition_counts

app = command_app()


@app.command("join", epilog=json_help(ArchiveReport))
def join(
    left: Annotated[
        str, typer.Option(metavar="TOPIC", help="The topic each record of which is put out.")
    ],
    right: Annotated[
        str, typer.Option(metavar="TOPIC", help="The topic whose records are matched by key.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to.")],
    within: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=SECONDS_MAX,
            help="How far in time matches may lie apart.",
        ),
    ] = 0.0,
    late: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=SECONDS_MAX,
            help="How late records of --right may come.",
        ),
    ] = 0.0,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="The group that shares the work; join-NAME, by the directory, unless given.",
        ),
    ] = None,
    every: Every = 10.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="End when what is there now is joined; wait for no more."),
    ] = False,
    bootstrap_server: Bootstrap = "127.0.0.1:9092",
    option: SourceOptions = None,
    master: Master = "local[2]",
    conf: SparkSettings = None,
    json: Json = False,
) -> None:
    """Join two topics by key and time; a row for each record of the left one, as Parquet.

    Both need the same number of partitions, and keys placed alike. Start it several times and they
    share the partitions, kill any at any time. Ctrl-C ends it.

    \b
    Examples:
      partage pipeline join --left flights --right weather --output joined --once
    """
    if left == right:
        raise misused("--left and --right are the same topic")
    options = JoinOptions(
        servers=bootstrap_server,
        left=left,
        right=right,
        terms=Terms(within_ms=round(within * 1000), late_ms=round(late * 1000)),
        group=group or f"join-{output.resolve().name}",
        output=output.resolve(),
        every_s=every,
        is_once=once,
        source=source_options(option, "kafka.partition.assignment.strategy", "startingoffsets"),
    )
    with failures_told(output):
        found = _run(options, master, conf)
    tell(found, json)


def _run(options: JoinOptions, master: str, conf: list[str] | None) -> ArchiveReport:
    # What is wrong is said before Spark starts.
    topics = (options.left, options.right)
    check_co_partitioned(partition_counts(options.servers, topics, options.source))
    ArchiveDirectory(options.output, options.kind)
    note(f"starting Spark; joining {options.left} and {options.right} as group {options.group}")
    return run_shown(
        lambda spark, is_over, progress: run_join(
            spark, options, is_over=is_over, progress=progress
        ),
        f"join to {options.output.name}",
        "joined",
        master,
        conf,
    )
