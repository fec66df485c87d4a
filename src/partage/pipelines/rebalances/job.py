"""The rebalances job: read, analyse, write tables, draw pictures, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from partage.pipelines.queries import QueryFailedError
from partage.pipelines.rebalances.output_directory import TableFormat, check_output
from partage.pipelines.rebalances.report import RebalancesReport, make_report
from partage.store.group_events import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from partage.pipelines.rebalances.results import Results


class RebalancesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the job.

    Args:
        servers: addresses of the brokers.
        output: directory for tables and pictures.
        topic: topic of the events.
        groups: group ids; empty for all groups.
        since_ms: start time in ms since the epoch; None for the earliest event.
        table_format: file format of the tables.
        may_overwrite: True to replace the tables of an earlier run.
        pictures_max: maximum number of group pictures, of the groups with the longest
            stalls; 0 for no pictures.
        source: further options of Spark's batch source.
    """

    servers: str
    output: Path
    topic: str = TOPIC
    groups: tuple[str, ...] = ()
    since_ms: int | None = None
    table_format: TableFormat = TableFormat.PARQUET
    may_overwrite: bool = False
    pictures_max: int = 4
    source: Mapping[str, str] = {}

    def source_options(self) -> dict[str, str]:
        """Return the options of the batch source."""
        options = {
            **self.source,
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "columns": "key,value,partition,offset",
        }
        if self.since_ms is not None:
            options["startingTimestamp"] = str(self.since_ms)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        return options


def rebalances(
    options: RebalancesOptions,
    spark: SparkSession | None = None,
    *,
    step: Callable[[str], None] = lambda what: None,
) -> RebalancesReport:
    """Run the job on Spark, or in this process if ``spark`` is None.

    Args:
        options: options of the job.
        spark: the session.
        step: called with a description of each step.

    Raises:
        OutputExistsError: if the output has tables and must not be overwritten.
        QueryFailedError: if the topic cannot be read, or has no matching events.
        OSError: if the output cannot be written.
    """
    from partage.pipelines.rebalances.results import write_tables  # imports pyarrow

    check_output(options.output, may_overwrite=options.may_overwrite)
    step(f"reading {options.topic}")
    results, unread = _analyse(options, spark)
    _check_found(results, options, unread)
    step("writing tables")
    tables = write_tables(results, options.output, options.table_format)
    step("drawing pictures")
    pictures = _draw(results, options)
    return make_report(
        results,
        output=str(options.output),
        tables=tables,
        pictures=[str(one) for one in pictures],
        unread_partitions=unread,
    )


def _analyse(options: RebalancesOptions, spark: SparkSession | None) -> tuple[Results, int]:
    """Return the results, and the number of partitions that could not be read."""
    from partage.pipelines.rebalances import online_partitions

    try:
        reach = online_partitions.find_online_partitions(options.source_options(), options.topic)
        while True:
            try:
                return _analyse_online(reach.source_options, options, spark), reach.unread
            except QueryFailedError:
                before = reach
                reach = online_partitions.find_online_partitions(
                    options.source_options(), options.topic
                )
                if reach.unread <= before.unread:
                    raise  # otherwise a broker went down in the meantime: retry without it
    except QueryFailedError as failed:
        if "there is no topic" not in str(failed):
            raise
        raise QueryFailedError(
            f"there is no topic {options.topic}: a Partage broker creates it at the first event "
            "of a group, unless it has partage.group.events.enable=false"
        ) from None


def _analyse_online(
    source: Mapping[str, str], options: RebalancesOptions, spark: SparkSession | None
) -> Results:
    if spark is None:
        from partage.pipelines.rebalances.local_analysis import analyse_locally

        return analyse_locally(source, options.groups)
    from partage.pipelines.rebalances.spark_analysis import analyse_on_spark

    return analyse_on_spark(spark, source, options.groups)


def _check_found(results: Results, options: RebalancesOptions, unread: int) -> None:
    groups = results.table("groups").to_pylist()
    if any(row["events"] for row in groups):
        return
    unreadable = sum(row["unreadable"] for row in groups)
    if unreadable:
        raise QueryFailedError(
            f"none of the {unreadable:,} records of {options.topic} is a group event; check "
            "that it is the right topic"
        )
    of = f" of {', '.join(options.groups)}" if options.groups else ""
    raise QueryFailedError(
        f"there are no events{of} in {options.topic}: either none happened in the requested time, "
        "or the broker has partage.group.events.enable=false"
        + (f", or they are in the {unread} partitions of brokers that are down" if unread else "")
    )


def _draw(results: Results, options: RebalancesOptions) -> list[Path]:
    """Draw the pictures if they are wanted and matplotlib is installed."""
    from importlib.util import find_spec

    directory = options.output / "pictures"
    if directory.is_dir():
        for old in directory.glob("*.png"):
            old.unlink()
    if not options.pictures_max or find_spec("matplotlib") is None:
        return []
    from partage.pipelines.rebalances.pictures import draw

    return draw(results, directory, options.pictures_max)
