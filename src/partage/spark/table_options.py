"""Options of tables: ``CREATE TABLE … USING partage OPTIONS (…)``.

Spark keeps the options of a table, but does not pass them to a Python source when a query reads the
table (as of Spark 4.3). It passes the schema of the table. So the source stores the options in the
metadata of the schema's first column, and finds them there again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from partage.spark.bounds import SparkOptionError

#: Only when Spark creates a table, it passes this property, and each option also with the prefix.
_PROVIDER: Final = "provider"
_OPTION_PREFIX: Final = "option."
_METADATA_KEY: Final = "partage.options"
#: Names of options that must not be in a schema, which all users of the catalog can read.
_SECRET: Final = re.compile(r"secret|password|passphrase|jaas|keystore\.key", re.IGNORECASE)


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that Spark is creating; None if it creates no table.

    Raises:
        SparkOptionError: if an option is a secret.
    """
    if _PROVIDER not in given:
        return None
    options = {
        name.removeprefix(_OPTION_PREFIX): value
        for name, value in given.items()
        if name.startswith(_OPTION_PREFIX)
    }
    for name in options:
        if _SECRET.search(name):
            raise SparkOptionError(
                f"{name} cannot be an option of a table: the table's schema would show it; "
                "set it in each query with SELECT ... FROM table WITH (...), or create a temporary "
                "view instead"
            )
    return options


def store_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema whose first column has the options of a table in its metadata."""
    first, *others = schema.fields
    metadata = {_METADATA_KEY: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def stored_options(schema: StructType) -> dict[str, str]:
    """Return the options of a table in a schema; empty if there are none."""
    for field in schema.fields:
        text = (field.metadata or {}).get(_METADATA_KEY)
        if text is not None:
            found: dict[str, str] = json.loads(text)
            return found
    return {}
