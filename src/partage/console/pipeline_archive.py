"""``partage pipeline archive``: topics to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partage.console.failure import Failure, misused
from partage.console.options import Json
from partage.console.show import count, print_json, print_table, size
from partage.pipelines.archive.directory import ArchiveDirectory, NotAnArchive
from partage.pipelines.archive.manifest import ArchiveReport, BadManifest


def archive(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the archive is.")
    ],
    report: Annotated[
        bool, typer.Option("--report", help="Only tell what the archive holds.")
    ] = False,
    json: Json = False,
) -> None:
    """Archive topics as Parquet files, with exactly one row for each record.

    \b
    Examples:
      partage pipeline archive --output flights-archive --report
    """
    if not report:
        raise misused("archive wants --report; writing comes with the streaming source")
    try:
        found = ArchiveDirectory(output, create=False).manifest.report(str(output))
    except (NotAnArchive, BadManifest) as error:
        raise Failure(str(error)) from None
    tell(found, json)


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
    print(
        f"{report.directory}: {count(report.rows, 'row')} in {count(report.files, 'file')} of "
        f"{size(report.bytes)}, from {count(report.batches, 'batch').removesuffix('s')}"
        f"{'es' if report.batches != 1 else ''}; "
        f"{count(report.refused, 'row')} came twice and {'was' if report.refused == 1 else 'were'} "
        "left out"
    )
