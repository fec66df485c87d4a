"""A Spark session for a pipeline that is run by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from partage.pipelines.queries import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Times in UTC, no web page, little said; what a caller sets comes before it.
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
#: On one machine: nothing listens beyond it, and starting fast counts for more than running fast.
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class SparkUnavailableError(RuntimeError):
    """PySpark or what it needs is not installed, or does not start."""


@contextmanager
def spark_session(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of this name, ended afterwards; one that runs already is used, and goes on.

    Raises:
        SparkUnavailableError: there is none to be had; the message says what to do.
    """
    missing = [each for each in ("pyspark", "pyarrow") if find_spec(each) is None]
    if missing:
        raise SparkUnavailableError(
            f"{' and '.join(missing)} is not installed: pip install 'partage[spark]'"
        )
    from partage.spark import JavaNotFoundError, prepare_java

    try:
        prepare_java()
    except JavaNotFoundError as error:
        raise SparkUnavailableError(str(error)) from None
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.master(master).appName(name)
    local = _LOCAL if master.startswith("local") else {}
    for key, value in {**_SETTINGS, **local, **settings}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except spark_errors() as error:
        raise SparkUnavailableError(f"Spark did not start on {master}: {error}") from error
    try:
        yield session
    finally:
        session.stop()
