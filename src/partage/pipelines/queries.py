"""Waiting for streaming queries, and what Spark keeps of their batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.2
#: Which line of a batch's file in Spark's log of offsets has those of the first source.
_OFFSET_LINE: Final = 2


class QueryFailedError(RuntimeError):
    """A streaming query ended by itself, with an error; the message is what it said."""


def run_until(query: StreamingQuery, is_over: Callable[[], bool], look: Callable[[], None]) -> None:
    """Wait for the query to end, or end it when ``is_over``; call ``look`` meanwhile.

    Raises:
        QueryFailedError: it failed.
    """
    try:
        while not _has_ended(query):
            look()
            if is_over():
                break
    finally:
        if query.isActive:
            query.stop()
    look()


def _has_ended(query: StreamingQuery) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type]  # takes fractions
    except StreamingQueryException as error:
        raise QueryFailedError(error_message(error)) from error


def read_batch_offset(checkpoint: Path, number: int) -> dict[str, Any]:
    """What Spark keeps of a batch (`partage.spark.stream.offset`): by then it is written."""
    lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    kept: dict[str, Any] = json.loads(lines[_OFFSET_LINE])
    return kept


def topic_ids(offset: Mapping[str, Any]) -> dict[str, str]:
    """The ids of a batch's topics, in hex; "" where brokers have none (before Kafka 2.8)."""
    found = {name: topic_id for name, (topic_id, _) in offset.get("topics", {}).items()}
    return {name: each if int(each or "0", 16) else "" for name, each in found.items()}


def spark_errors() -> tuple[type[Exception], ...]:
    """What PySpark raises where Spark fails, by itself or in Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def error_message(error: Exception) -> str:
    """What went wrong, out of what Spark tells around it: the last error that Python raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if _is_partage_error(line)]
    return raised[-1] if raised else (lines[0] if lines else repr(error))


def _is_partage_error(line: str) -> bool:
    """Whether a line is the end of a traceback of ours, ``partage.....Name: what``."""
    name, colon, _ = line.partition(": ")
    return bool(colon) and name.startswith("partage.") and " " not in name
