"""Conversion of rows to records, from the columns of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from partage.spark.bounds import SparkOptionError

if TYPE_CHECKING:
    import pyarrow as pa

Headers: TypeAlias = list[tuple[str, str | bytes | None]]

_BYTES: Final = (BinaryType, StringType)


class SinkRecord(NamedTuple):
    """A record to write; if ``partition`` is None, the key determines the partition."""

    topic: str
    key: bytes | str | None
    value: bytes | str | None
    partition: int | None
    headers: Headers


class ColumnPositions(NamedTuple):
    """Positions of the columns in a DataFrame; None for a column that it does not have."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None


def find_columns(schema: StructType, topic: str | None) -> ColumnPositions:
    """Find the columns by name and check their types. Unknown columns are ignored.

    Args:
        schema: the DataFrame's schema; the names are lower-case, as in Spark's connector.
        topic: the option ``topic``, which overrides the column ``topic``.

    Raises:
        SparkOptionError: if a required column is missing, or a column has the wrong type.
    """
    indexes = {name: index for index, name in enumerate(schema.names)}
    if "value" not in indexes:
        raise SparkOptionError(f"the DataFrame needs a column named value; it has {_names(schema)}")
    if topic is None and "topic" not in indexes:
        raise SparkOptionError(
            "the topic is missing: set the option topic, or add a column named topic"
        )
    for name, kinds in (("value", _BYTES), ("key", _BYTES), ("topic", (StringType,))):
        if name in indexes and not (name == "topic" and topic is not None):
            _check_type(name, schema[name].dataType, kinds)
    if "partition" in indexes:
        _check_type("partition", schema["partition"].dataType, (IntegerType,))
    if "headers" in indexes:
        _check_headers(schema["headers"].dataType)
    return ColumnPositions(
        indexes["value"],
        indexes.get("key"),
        None if topic is not None else indexes["topic"],
        indexes.get("partition"),
        indexes.get("headers"),
    )


def _names(schema: StructType) -> str:
    return ", ".join(schema.names) or "none"


def _check_type(name: str, found: DataType, wanted: tuple[type[DataType], ...]) -> None:
    if not isinstance(found, wanted):
        words = " or ".join(kind.typeName() for kind in wanted)
        raise SparkOptionError(
            f"the column {name} must be {words}, not {found.simpleString()}; cast it first"
        )


def _check_headers(found: DataType) -> None:
    """Check for an array of structs of a string and a binary, of any nullability."""
    element = found.elementType if isinstance(found, ArrayType) else None
    fields = element.fields if isinstance(element, StructType) else []
    kinds = [(field.name, type(field.dataType)) for field in fields]
    if kinds != [("key", StringType), ("value", BinaryType)]:
        raise SparkOptionError(
            "the column headers must be array<struct<key:string,value:binary>>, "
            f"not {found.simpleString()}"
        )


class NullTopicError(ValueError):
    """The topic of a row is null."""


def to_records(
    batch: pa.RecordBatch, shape: ColumnPositions, topic: str | None
) -> Iterator[SinkRecord]:
    """Yield the rows of a batch as records.

    Raises:
        NullTopicError: if a row has no topic and the option ``topic`` is not set.
        SparkOptionError: if a header has no key, or a partition is negative.
    """
    count = batch.num_rows

    def column(place: int | None) -> list[Any]:
        return [None] * count if place is None else batch.column(place).to_pylist()

    topics = [topic] * count if shape.topic is None else column(shape.topic)
    found = zip(
        topics,
        column(shape.key),
        column(shape.value),
        column(shape.partition),
        column(shape.headers),
        strict=True,
    )
    for named, key, value, partition, headers in found:
        if named is None:
            raise NullTopicError(
                "a row's topic is null: fill the column, or set the option topic for all rows"
            )
        if partition is not None and partition < 0:
            raise SparkOptionError(
                f"a row's partition is {partition}; it must be 0 or more, or null"
            )
        yield SinkRecord(named, key, value, partition, _headers(headers))


def _headers(given: list[dict[str, Any] | None] | None) -> Headers:
    found: Headers = []
    for one in given or ():
        if one is None or one["key"] is None:
            raise SparkOptionError("a header has no key; every header needs one")
        found.append((one["key"], one["value"]))
    return found
