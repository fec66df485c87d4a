"""DataFrames of the join: offset ranges of both topics, and their joined rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from partage.pipelines.join.window import JoinWindow
from partage.pipelines.offset_spans import OffsetSpan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

_COLUMNS: Final = "key,value,topic,partition,offset,timestamp"
_EARLIEST: Final = -2


def left_rows(
    spark: SparkSession, source: Mapping[str, str], topic: str, spans: Mapping[int, OffsetSpan]
) -> DataFrame:
    """Return the left records in these spans; a span from 0 starts at the earliest record."""
    starting = {str(partition): span.first or _EARLIEST for partition, span in spans.items()}
    ending = {str(partition): span.end for partition, span in spans.items()}
    return (
        _read(spark, source, topic, list(spans))
        .options(
            startingOffsets=json.dumps({topic: starting}), endingOffsets=json.dumps({topic: ending})
        )
        .load()
    )


def right_rows(
    spark: SparkSession, source: Mapping[str, str], topic: str, from_ms: Mapping[int, int]
) -> DataFrame:
    """Return all existing right records of these partitions from the given timestamps on."""
    times = {str(partition): at_ms for partition, at_ms in from_ms.items()}
    return (
        _read(spark, source, topic, list(from_ms))
        .options(
            startingOffsetsByTimestamp=json.dumps({topic: times}),
            startingOffsetsByTimestampStrategy="latest",
        )
        .load()
    )


def _read(
    spark: SparkSession, source: Mapping[str, str], topic: str, partitions: list[int]
) -> DataFrameReader:
    reader = spark.read.format("partage").options(**source)
    return reader.options(assign=json.dumps({topic: sorted(partitions)}), columns=_COLUMNS)


def time_bounds_ms(rows: DataFrame) -> dict[int, tuple[int, int]]:
    """Return the earliest and latest timestamp of each partition's records, in ms since 1970."""
    from pyspark.sql import functions as f

    at_ms = f.unix_millis("timestamp")
    found = rows.groupBy("partition").agg(f.min(at_ms), f.max(at_ms)).collect()
    return {row[0]: (row[1], row[2]) for row in found}


def complete_spans(
    rows: DataFrame,
    spans: Mapping[int, OffsetSpan],
    latest_ms: Mapping[int, int],
    terms: JoinWindow,
) -> dict[int, OffsetSpan]:
    """Return the part of each span before the first record that is not complete."""
    from pyspark.sql import functions as f

    limit = f.lit(None).cast("long")
    for partition, at_ms in latest_ms.items():
        limit = f.when(f.col("partition") == partition, terms.last_complete_ms(at_ms)).otherwise(
            limit
        )
    waits = limit.isNull() | (f.unix_millis("timestamp") > limit)
    first = rows.where(waits).groupBy("partition").agg(f.min("offset")).collect()
    ends = {row[0]: row[1] for row in first}
    found = {p: OffsetSpan(span.first, ends.get(p, span.end)) for p, span in spans.items()}
    return {partition: span for partition, span in found.items() if len(span) > 0}


def join_rows(
    left: DataFrame, right: DataFrame, spans: Mapping[int, OffsetSpan], terms: JoinWindow
) -> DataFrame:
    """Return a row for each left record in the spans, with its sorted list of matching records."""
    from pyspark.sql import functions as f

    ours = left.where(_within(spans)).alias("l")
    theirs = right.where(f.col("key").isNotNull()).alias("r")
    apart_ms = f.abs(f.unix_millis("l.timestamp") - f.unix_millis("r.timestamp"))
    on = (
        (f.col("l.partition") == f.col("r.partition"))
        & (f.col("l.key") == f.col("r.key"))
        & (apart_ms <= terms.within_ms)
    )
    match = f.struct(f.col("r.offset"), f.col("r.timestamp"), f.col("r.value"))
    pairs = ours.join(theirs, on, "left")
    # Without a match the value is null, and collect_list drops nulls.
    matches = f.collect_list(f.when(f.col("r.offset").isNotNull(), match))
    return pairs.groupBy("l.topic", "l.partition", "l.offset").agg(
        f.first("l.key").alias("key"),
        f.first("l.value").alias("value"),
        f.first("l.timestamp").alias("timestamp"),
        f.sort_array(matches).alias("matches"),
    )


def _within(spans: Mapping[int, OffsetSpan]) -> Column:
    from pyspark.sql import functions as f

    found = f.lit(False)
    for partition, span in spans.items():
        is_in = f.col("offset").between(span.first, span.end - 1)
        found = found | ((f.col("partition") == partition) & is_in)
    return found
