"""Running and reporting of pipelines that write rows to a directory with Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from partage.console.common.errors import CommandError
from partage.console.common.output import ProgressBar, count, format_bytes, print_json
from partage.console.common.pairs import parse_pairs
from partage.console.common.signals import StopRequest
from partage.console.common.table import print_table
from partage.pipelines.archive.directory import ArchiveDirectoryError
from partage.pipelines.archive.manifest import ArchiveReport, ManifestError
from partage.pipelines.queries import QueryFailedError
from partage.pipelines.session import SparkUnavailableError, spark_session, switch_off_log
from partage.pipelines.sources import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def convert_errors(output: Path) -> Iterator[None]:
    """Convert errors of a pipeline into `CommandError`."""
    try:
        yield
    except (
        ArchiveDirectoryError,
        ManifestError,
        SparkUnavailableError,
        QueryFailedError,
        SourceError,
    ) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"cannot use directory {output}: {error.strerror or error}") from None


def run_with_progress(
    run: Callable[[SparkSession, Callable[[], bool], Callable[[int, int], None]], ArchiveReport],
    name: str,
    done: str,
    master: str,
    conf: list[str] | None,
) -> ArchiveReport:
    """Start Spark, and run a pipeline until it ends or a signal requests a stop.

    Args:
        run: The pipeline. Its arguments are the session, a function that is true after a request to
            stop, and a function that takes the numbers of rows and of duplicates so far.
        name: Name of the Spark application.
        done: Label of the progress bar.
        master: Spark master URL.
        conf: Spark settings as NAME=VALUE.

    Raises:
        Exception: Errors of `spark_session` and of ``run``.
    """
    settings = parse_pairs(conf or [], "--conf")
    with (
        StopRequest() as stop,
        spark_session(name, master, settings) as spark,
        ProgressBar(done) as shown,
    ):

        def is_over() -> bool:
            if stop:
                switch_off_log(spark)
            return bool(stop)

        return run(spark, is_over, lambda rows, _: shown.update(count(rows, "row")))


def print_report(report: ArchiveReport, json: bool) -> None:
    """Print the report as JSON or as a table."""
    if json:
        print_json(report)
        return
    rows = [
        (
            each.topic,
            each.partition,
            each.rows,
            " ".join(_offsets(first, end) for first, end in each.spans),
        )
        for each in report.partitions
    ]
    if rows:
        print_table(["TOPIC", "PARTITION", "ROWS", "OFFSETS"], rows, wrapped=True)
    batches = count(report.batches, "batch", "batches")
    print(
        f"{report.directory}: {count(report.rows, 'row')} in {count(report.files, 'file')} of "
        f"{format_bytes(report.bytes)}, from {batches}; "
        f"{count(report.refused, 'duplicate')} left out"
    )


def _offsets(first: int, end: int) -> str:
    """Return the offsets from ``first`` up to, not including, ``end`` as ``first-last``."""
    return str(first) if end - first == 1 else f"{first}-{end - 1}"
