"""``partage pipeline join``: a stream-stream join of two topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import usage_error
from partage.console.common.options import JsonOption
from partage.console.common.output import json_help, note
from partage.console.pipelines.spark_options import (
    SECONDS_MAX,
    BootstrapOption,
    MasterOption,
    SourceOptionsOption,
    SparkConfOption,
    TriggerIntervalOption,
    source_options,
)
from partage.console.pipelines.spark_runner import convert_errors, print_report, run_with_progress
from partage.pipelines.archive.directory import ArchiveDirectory
from partage.pipelines.archive.manifest import ArchiveReport
from partage.pipelines.join.job import JoinOptions, check_source
from partage.pipelines.join.job import join as run_join
from partage.pipelines.join.window import JoinWindow

app = command_app()


@app.command("join", epilog=json_help(ArchiveReport))
def join(
    left: Annotated[
        str, typer.Option(metavar="TOPIC", help="Left topic; each of its records makes a row.")
    ],
    right: Annotated[
        str, typer.Option(metavar="TOPIC", help="Right topic; its records are matched by key.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Output directory.")
    ],
    within: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=SECONDS_MAX,
            help="Maximum time between matching records.",
        ),
    ] = 0.0,
    late: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=SECONDS_MAX,
            help="Maximum delay of records of --right.",
        ),
    ] = 0.0,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Group that shares the work. Default: join-NAME, after the directory.",
        ),
    ] = None,
    every: TriggerIntervalOption = 10.0,
    once: Annotated[
        bool,
        typer.Option("--once", help="Stop when the records that exist now are joined."),
    ] = False,
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
    option: SourceOptionsOption = None,
    master: MasterOption = "local[2]",
    conf: SparkConfOption = None,
    json: JsonOption = False,
) -> None:
    """Join two topics by key and time into Parquet files, with one row per left record.

    Both topics need the same number of partitions and the same partitioner. Several processes
    share the partitions, and each can be killed at any time. Ctrl-C stops it.

    \b
    Examples:
      partage pipeline join --left flights --right weather --output joined --once
    """
    if left == right:
        raise usage_error("--left and --right must be different topics")
    options = JoinOptions(
        servers=bootstrap_server,
        left=left,
        right=right,
        window=JoinWindow(within_ms=round(within * 1000), late_ms=round(late * 1000)),
        group=group or f"join-{output.resolve().name}",
        output=output.resolve(),
        every_s=every,
        is_once=once,
        source=source_options(option, "kafka.partition.assignment.strategy", "startingoffsets"),
    )
    with convert_errors(output):
        found = _run(options, master, conf)
    print_report(found, json)


def _run(options: JoinOptions, master: str, conf: list[str] | None) -> ArchiveReport:
    check_source(options)  # before Spark starts
    ArchiveDirectory(options.output, options.kind)
    note(f"starting Spark; joining {options.left} and {options.right} as group {options.group}")
    return run_with_progress(
        lambda spark, is_over, progress: run_join(
            spark, options, is_over=is_over, progress=progress
        ),
        f"join to {options.output.name}",
        "joined",
        master,
        conf,
    )
