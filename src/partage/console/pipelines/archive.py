"""``partage pipeline archive``: topics to Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import usage_error
from partage.console.common.options import JsonOption, TopicsArgument, TopicsOption, given_names
from partage.console.common.output import json_help, note
from partage.console.pipelines.spark_options import (
    BootstrapOption,
    MasterOption,
    SourceOptionsOption,
    SparkConfOption,
    TriggerIntervalOption,
    source_options,
)
from partage.console.pipelines.spark_runner import convert_errors, print_report, run_with_progress
from partage.pipelines.archive.directory import ArchiveDirectory
from partage.pipelines.archive.job import ArchiveOptions
from partage.pipelines.archive.job import archive as run_archive
from partage.pipelines.archive.manifest import ArchiveReport
from partage.pipelines.sources import partition_counts

app = command_app()


@app.command("archive", epilog=json_help(ArchiveReport))
def archive(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory of the archive.")
    ],
    name: TopicsArgument = None,
    topic: TopicsOption = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Group that shares the work. Default: archive-NAME, after the directory.",
        ),
    ] = None,
    every: TriggerIntervalOption = 10.0,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when the records that exist now are archived.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Only report the content of the archive.")
    ] = False,
    bootstrap_server: BootstrapOption = "127.0.0.1:9092",
    option: SourceOptionsOption = None,
    master: MasterOption = "local[2]",
    conf: SparkConfOption = None,
    json: JsonOption = False,
) -> None:
    """Archive topics as Parquet files by topic and date, with exactly one row per record.

    Several processes with the same directory and group share the work. Each of them can be killed
    and restarted at any time. Ctrl-C stops it.

    \b
    Examples:
      partage pipeline archive flights --output flights-archive --once
      partage pipeline archive --output flights-archive --report
      partage pipeline archive --output flights-archive --report --json
    """
    topics = given_names(name, topic)
    if report == bool(topics):
        raise usage_error("archive requires either topics or --report")
    with convert_errors(output):
        if report:
            found = ArchiveDirectory(output, kind=None, create=False).manifest.report(str(output))
        else:
            options = ArchiveOptions(
                servers=bootstrap_server,
                topics=tuple(topics),
                group=group or f"archive-{output.resolve().name}",
                output=output.resolve(),
                every_s=every,
                is_once=once,
                source=source_options(option),
            )
            found = _run(options, master, conf)
    print_report(found, json)


def _run(options: ArchiveOptions, master: str, conf: list[str] | None) -> ArchiveReport:
    # Check the options before Spark starts.
    partition_counts(options.servers, options.topics, options.source)
    ArchiveDirectory(options.output)
    note(f"starting Spark; archiving {', '.join(options.topics)} as group {options.group}")
    return run_with_progress(
        lambda spark, is_over, progress: run_archive(
            spark, options, is_over=is_over, progress=progress
        ),
        f"archive to {options.output.name}",
        "archived",
        master,
        conf,
    )
