"""Execution of streaming queries, and access to the offsets that Spark stores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from partage.spark.failures import failure_reason

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.2
#: Line of the first source's offset in a file of Spark's offset log.
_OFFSET_LINE: Final = 2


class QueryFailedError(RuntimeError):
    """A streaming query ended with an error; the message is the query's error."""


def run_until(
    query: StreamingQuery, is_over: Callable[[], bool], on_poll: Callable[[], None]
) -> None:
    """Wait until the query ends, or stop it when ``is_over``. Call ``on_poll`` while waiting.

    Raises:
        QueryFailedError: if the query failed.
    """
    try:
        while not _has_ended(query):
            on_poll()
            if is_over():
                break
    finally:
        if query.isActive:
            query.stop()
    on_poll()


def _has_ended(query: StreamingQuery) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type]  # accepts fractions
    except StreamingQueryException as error:
        raise QueryFailedError(failure_reason(error)) from error


def read_batch_offset(checkpoint: Path, number: int) -> dict[str, Any]:
    """Return the stored end offset of a batch. Spark writes it before it runs the batch."""
    lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    kept: dict[str, Any] = json.loads(lines[_OFFSET_LINE])
    return kept


def topic_ids(offset: Mapping[str, Any]) -> dict[str, str]:
    """Return the topic ids of a batch in hex; "" if brokers have none (before Kafka 2.8)."""
    found = {name: topic_id for name, (topic_id, _) in offset.get("topics", {}).items()}
    return {name: each if int(each or "0", 16) else "" for name, each in found.items()}


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that PySpark raises for errors in Spark or in Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError
