"""Spark queries: flights joined with the weather, and mean delays by visibility and wind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from examples.flights.csv_records import WEATHER
from examples.flights.figures import Cell, Figures
from examples.flights.weather_bands import VISIBILITY_EDGES, WIND_EDGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FLIGHT: Final = "origin string, time_hour string, carrier string, flight int, dep_delay int"
_HOUR: Final = "origin string, time_hour string, visib double, wind_speed double"


def read_weather(spark: SparkSession, servers: str) -> DataFrame:
    """Return the weather as a static table with a row per airport and hour."""
    from pyspark.sql import functions as f

    records = (
        spark.read.format("partage")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", WEATHER)
        .option("columns", "value")
        .load()
    )
    hours = records.select(f.from_json(f.col("value").cast("string"), _HOUR).alias("hour"))
    return hours.select("hour.*").withColumn("has_weather", f.lit(True))


def joined(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return the flights with topic, partition and offset, joined with the weather."""
    from pyspark.sql import functions as f

    rows = flights.select(
        "topic",
        "partition",
        "offset",
        f.from_json(f.col("value").cast("string"), _FLIGHT).alias("flight"),
    ).select("topic", "partition", "offset", "flight.*")
    return rows.join(f.broadcast(weather), ["origin", "time_hour"], "left").withColumn(
        "has_weather", f.coalesce("has_weather", f.lit(False))
    )


def mean_delays(spark: SparkSession, path: Path) -> DataFrame:
    """Return the mean delay for each band of visibility and wind, with and without weather.

    ``path`` is the directory with the output of `joined`.
    """
    from pyspark.sql import functions as f

    return (
        spark.read.parquet(str(path))
        .groupBy(
            "has_weather",
            _band(f.col("visib"), VISIBILITY_EDGES).alias("visibility_band"),
            _band(f.col("wind_speed"), WIND_EDGES).alias("wind_band"),
        )
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("with_delay"),
            f.avg("dep_delay").alias("mean_delay_min"),
        )
    )


def _band(value: Column, edges: tuple[float, ...]) -> Column:
    """Return the band as `examples.flights.weather_bands.band` does."""
    from pyspark.sql import functions as f

    found = f.when(value < edges[0], 0)
    for number, edge in enumerate(edges[1:], start=1):
        found = found.when(value < edge, number)
    return found.when(value >= edges[-1], len(edges))


def write(frame: DataFrame, path: Path) -> None:
    """Write one Parquet file to the directory ``path``, sorted by band."""
    frame.orderBy("has_weather", "visibility_band", "wind_band").coalesce(1).write.mode(
        "overwrite"
    ).parquet(str(path))


def read_figures(path: Path) -> Figures:
    """Return the figures from Spark's Parquet file."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    cells = {
        (row["visibility_band"], row["wind_band"]): Cell(
            row["flights"], row["with_delay"], row["mean_delay_min"]
        )
        for row in rows
        if row["has_weather"]
    }
    flights = sum(row["flights"] for row in rows)
    joined = sum(cell.flights for cell in cells.values())
    without_delay = flights - sum(row["with_delay"] for row in rows)
    return Figures(flights, joined, flights - joined, without_delay, cells)
