"""Schema of the rows: the columns of Spark's Kafka connector, or a selection of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

#: All columns in the connector's order; all are nullable, as in the connector.
COLUMN_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
HEADERS: Final = "headers"


def row_schema(columns: Sequence[str]) -> StructType:
    """Return the schema of the named columns, in the given order."""
    return StructType([StructField(name, COLUMN_TYPES[name]) for name in columns])
