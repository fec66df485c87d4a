"""Spark's part: both topics joined, and the mean delay by visibility and wind."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from partage.demo.bands import VISIBILITY_EDGES, WIND_EDGES
from partage.demo.figures import Cell, Figures
from partage.demo.flights import FLIGHTS, WEATHER
from partage.spark import prepare_java

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # For a job of seconds the optimising compiler costs more than it gives.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class SparkStarting:
    """A session that starts in a thread while other things go on; what it logs is in a file."""

    def __init__(self, log_path: Path) -> None:
        self.java = prepare_java()
        self._log_path = log_path
        self._gateway: Any = None
        self._session: Future[SparkSession] = Future()
        threading.Thread(target=self._run, name="spark", daemon=True).start()

    def session(self) -> SparkSession:
        """Wait for it; raises what kept it from starting."""
        return self._session.result()

    def stop(self) -> None:
        """End the session, and the Java process; one that is still starting ends with this one."""
        if not self._session.done() or self._session.exception() is not None:
            return
        self._session.result().stop()
        self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.wait()

    def _run(self) -> None:
        try:
            self._session.set_result(self._start())
        except BaseException as error:  # told to whoever waits
            self._session.set_exception(error)

    def _start(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf().setMaster("local[2]").setAppName("partage demo")
        conf.setAll(list(_CONF.items()))
        with self._log_path.open("wb") as log:
            self._gateway = launch_gateway(  # type: ignore[no-untyped-call]  # PySpark's own lack
                conf, popen_kwargs={"stderr": log}
            )
        return SparkSession(SparkContext(conf=conf, gateway=self._gateway))


def mean_delays(spark: SparkSession, servers: str) -> DataFrame:
    """A row for each visibility band and wind band, and one for flights without weather."""
    from pyspark.sql import functions as f

    flights = _read(spark, servers, FLIGHTS, "origin string, time_hour string, dep_delay int")
    weather = _read(
        spark, servers, WEATHER, "origin string, time_hour string, visib double, wind_speed double"
    ).withColumn("has_weather", f.lit(True))
    return (
        flights.join(weather, ["origin", "time_hour"], "left")
        .groupBy(
            f.coalesce("has_weather", f.lit(False)).alias("has_weather"),
            _band(f.col("visib"), VISIBILITY_EDGES).alias("visibility_band"),
            _band(f.col("wind_speed"), WIND_EDGES).alias("wind_band"),
        )
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("with_delay"),
            f.avg("dep_delay").alias("mean_delay_min"),
        )
    )


def _read(spark: SparkSession, servers: str, topic: str, columns: str) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        spark.read.format("partage")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("columns", "value")
        .load()
        .select(f.from_json(f.col("value").cast("string"), columns).alias("row"))
        .select("row.*")
    )


def _band(value: Column, edges: tuple[float, ...]) -> Column:
    """As `partage.demo.bands.band`."""
    from pyspark.sql import functions as f

    found = f.when(value < edges[0], 0)
    for number, edge in enumerate(edges[1:], start=1):
        found = found.when(value < edge, number)
    return found.when(value >= edges[-1], len(edges))


def write(frame: DataFrame, path: Path) -> None:
    """One Parquet file in the directory ``path``, in the bands' order."""
    frame.orderBy("has_weather", "visibility_band", "wind_band").coalesce(1).write.mode(
        "overwrite"
    ).parquet(str(path))


def read_figures(path: Path) -> Figures:
    """The figures out of the Parquet file that Spark wrote."""
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
