"""``partage pipeline archive``: topics to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.console.dispatch import command_app
from partage.console.failure import misused
from partage.console.options import Json
from partage.console.pipeline_options import (
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
from partage.pipelines.archive.running import ArchiveOptions
from partage.pipelines.archive.running import archive as run_archive
from partage.pipelines.sources import partition_counts

app = command_app()


@app.command("archive", epilog=json_help(ArchiveReport))
def archive(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the archive is.")
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="A topic; may be given several times."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="The group that shares the work; archive-NAME, by the directory, unless given.",
        ),
    ] = None,
    every: Every = 10.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when what is there now is archived.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Only tell what the archive holds.")
    ] = False,
    bootstrap_server: Bootstrap = "127.0.0.1:9092",
    option: SourceOptions = None,
    master: Master = "local[2]",
    conf: SparkSettings = None,
    json: Json = False,
) -> None:
    """Archive topics as Parquet files, by topic and date, with exactly one row for each record.

    Start it several times, with one directory and one group, and they share the work; kill any of
    them at any time, and start it again. Ctrl-C ends it.

    \b
    Examples:
      partage pipeline archive --topic flights --output flights-archive --once
      partage pipeline archive --output flights-archive --report
      partage pipeline archive --output flights-archive --report --json
    """
    if report == bool(topic):
        raise misused("archive wants either --topic or --report")
    with failures_told(output):
        if report:
            found = ArchiveDirectory(output, kind=None, create=False).manifest.report(str(output))
        else:
            options = ArchiveOptions(
                servers=bootstrap_server,
                topics=tuple(dict.fromkeys(topic or [])),
                group=group or f"archive-{output.resolve().name}",
                output=output.resolve(),
                every_s=every,
                is_once=once,
                source=source_options(option),
            )
            found = _run(options, master, conf)
    tell(found, json)


def _run(options: ArchiveOptions, master: str, conf: list[str] | None) -> ArchiveReport:
    # What is wrong is said before Spark starts.
    partition_counts(options.servers, options.topics, options.source)
    ArchiveDirectory(options.output)
    note(f"starting Spark; archiving {', '.join(options.topics)} as group {options.group}")
    return run_shown(
        lambda spark, is_over, progress: run_archive(
            spark, options, is_over=is_over, progress=progress
        ),
        f"archive to {options.output.name}",
        "archived",
        master,
        conf,
    )
