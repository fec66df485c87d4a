"""A Spark session for a pipeline that the command line starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from partage.pipelines.queries import spark_errors
from partage.spark.failures import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Defaults: times in UTC, no web page, few log lines. A caller's settings override them.
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
#: Defaults on one machine: listen on loopback only, and prefer a fast start.
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class SparkUnavailableError(RuntimeError):
    """PySpark or one of its requirements is not installed, or Spark does not run."""


@contextmanager
def spark_session(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session and stop it afterwards. An active session is used instead, and not stopped.

    Args:
        name: application name.
        master: Spark's master URL.
        settings: further configuration of the session.

    Raises:
        SparkUnavailableError: if no session can be started, or its JVM has ended; the message says
            how to fix it.
    """
    missing = [each for each in ("pyspark", "pyarrow") if find_spec(each) is None]
    if missing:
        raise SparkUnavailableError(
            f"not installed: {', '.join(missing)}; pip install 'partage[spark]'"
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
    except _session_errors() as error:
        if _is_jvm_alive(session):
            raise
        raise SparkUnavailableError(failure_reason(ConnectionError())) from error
    finally:
        # A JVM that has ended cannot be stopped.
        with suppress(*_session_errors()):
            session.stop()


def _session_errors() -> tuple[type[Exception], ...]:
    return ConnectionError, *spark_errors()


def _is_jvm_alive(session: SparkSession) -> bool:
    try:
        session.conf.get("spark.master")
    except _session_errors():
        return False
    return True
