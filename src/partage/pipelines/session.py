"""A Spark session for a pipeline that the command line starts."""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from partage.pipelines.queries import spark_errors
from partage.spark.failures import failure_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Size of the stacks of the driver's threads. When a query stops within a batch, Spark 4.3 matches
#: the message with a regular expression that overflows the default stack of 1 MiB.
_STACKS: Final = "-Xss16m"
#: Defaults: times in UTC, no web page, few log lines. A caller's settings override them.
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": _STACKS,
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
    "spark.driver.extraJavaOptions": f"{_STACKS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


#: The URLs of Spark's `SparkContext`, which prints the stack of its error for others.
_MASTER: Final = re.compile(
    r"local(\[(\d+|\*)( *, *\d+)?\])?|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|spark://.+"
    r"|yarn|k8s://.+"
)


class SparkUnavailableError(RuntimeError):
    """PySpark or one of its requirements is not installed, or Spark does not run."""


@contextmanager
def spark_session(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session and stop it afterwards. An active session is used instead, and not stopped.

    The caller's handler of SIGINT stays in force.

    Args:
        name: application name.
        master: Spark's master URL.
        settings: further configuration of the session.

    Raises:
        SparkUnavailableError: if no session can be started, or its JVM has ended; the message says
            how to fix it.
    """
    if not _MASTER.fullmatch(master):
        raise SparkUnavailableError(
            f"invalid Spark master '{master}'; use local[N], spark://HOST:PORT, yarn or "
            "k8s://HOST:PORT"
        )
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
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    conf = SparkConf().setMaster(master).setAppName(name)
    local = _LOCAL if master.startswith("local") else {}
    conf.setAll(list({**_SETTINGS, **local, **settings}.items()))
    with _quiet_interrupts():
        try:
            with _kept_interrupt_handler():
                SparkContext.getOrCreate(conf)
            session = SparkSession.builder.config(conf=conf).getOrCreate()
        except spark_errors() as error:
            raise SparkUnavailableError(
                f"Spark did not start on {master}: {_start_failure(error)}"
            ) from error
        with _stopped_afterwards(session):
            yield session


def switch_off_log(session: SparkSession) -> None:
    """Switch off Spark's log before jobs are cancelled, because each of them would log errors."""
    with suppress(*_session_errors()):
        session.sparkContext.setLogLevel("OFF")


@contextmanager
def _stopped_afterwards(session: SparkSession) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        switch_off_log(session)
        raise
    except _session_errors() as error:
        if _is_jvm_alive(session):
            raise
        raise SparkUnavailableError(failure_reason(ConnectionError())) from error
    finally:
        # A JVM that has ended cannot be stopped.
        with suppress(*_session_errors()):
            session.stop()


@contextmanager
def _quiet_interrupts() -> Iterator[None]:
    """Suppress Py4J's log records, with stacks, about calls that Ctrl-C interrupts."""

    def is_shown(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__context__
        return error is None

    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    for logger in loggers:
        logger.addFilter(is_shown)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_shown)


@contextmanager
def _kept_interrupt_handler() -> Iterator[None]:
    """Restore the handler of SIGINT, which a new `SparkContext` replaces in the main thread.

    PySpark's handler calls the JVM, which fails while another call waits for its response.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_failure(error: Exception) -> str:
    """Return the message of a failed start in one line, without the stack of Java."""
    thrown = getattr(error, "java_exception", None)
    text = str(error) if thrown is None else str(thrown.getMessage())
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))


def _session_errors() -> tuple[type[Exception], ...]:
    return ConnectionError, *spark_errors()


def _is_jvm_alive(session: SparkSession) -> bool:
    try:
        session.conf.get("spark.master")
    except _session_errors():
        return False
    return True
