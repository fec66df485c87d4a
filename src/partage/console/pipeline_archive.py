"""``partage pipeline archive``: topics to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.console.dispatch import command_app
from partage.console.failure import Failure, misused
from partage.console.options import Json, pairs
from partage.console.pipeline_options import (
    Bootstrap,
    Master,
    SourceOptions,
    SparkSettings,
    source_options,
)
from partage.console.show import Progress, count, json_help, note, print_json, print_table, size
from partage.console.stopping import StopRequest
from partage.pipelines.archive.directory import ArchiveDirectory, NotAnArchive
from partage.pipelines.archive.manifest import ArchiveReport, BadManifest
from partage.pipelines.archive.running import ArchiveOptions
from partage.pipelines.archive.running import archive as run_archive
from partage.pipelines.queries import QueryFailed
from partage.pipelines.session import NoSpark, spark_session
from partage.pipelines.sources import BadSource, partition_counts

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
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="How often; each time makes new files."),
    ] = 10.0,
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
    try:
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
            found = _run(options, master, pairs(conf or [], "--conf"))
    except (NotAnArchive, BadManifest, NoSpark, QueryFailed, BadSource) as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"cannot use {output}: {error.strerror or error}") from None
    tell(found, json)


def _run(options: ArchiveOptions, master: str, settings: dict[str, str]) -> ArchiveReport:
    # What is wrong is said before Spark starts.
    partition_counts(options.servers, options.topics, options.source)
    ArchiveDirectory(options.output)
    note(f"starting Spark; archiving {', '.join(options.topics)} as group {options.group}")
    with (
        StopRequest() as stop,
        spark_session(f"archive to {options.output.name}", master, settings) as spark,
        Progress("archived") as shown,
    ):
        return run_archive(
            spark,
            options,
            is_over=lambda: bool(stop),
            progress=lambda rows, _: shown.show(count(rows, "row")),
        )


def tell(report: ArchiveReport, json: bool) -> None:
    """Print what an archive holds."""
    if json:
        print_json(report)
        return
    rows = [
        (
            each.topic,
            each.partition,
            each.rows,
            " ".join(f"{first}-{end}" for first, end in each.spans),
        )
        for each in report.partitions
    ]
    if rows:
        print_table(["TOPIC", "PARTITION", "ROWS", "OFFSETS"], rows)
    batches = count(report.batches, "batch", "batches")
    print(
        f"{report.directory}: {count(report.rows, 'row')} in {count(report.files, 'file')} of "
        f"{size(report.bytes)}, from {batches}; {count(report.refused, 'double')} left out"
    )
