"""The directory of the results: the format of its tables, and whether it can be written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

TABLES_DIRECTORY: Final = "tables"


class TableFormat(StrEnum):
    """File format of the tables."""

    PARQUET = "parquet"
    CSV = "csv"


class OutputExistsError(ValueError):
    """The output already has tables and must not be overwritten, or is a file."""


def check_output(output: Path, *, may_overwrite: bool) -> None:
    """Check that the output can be written, and create its directory.

    Raises:
        OutputExistsError: if it has tables, or is a file.
        OSError: if the directory cannot be created.
    """
    if output.exists() and not output.is_dir():
        raise OutputExistsError(f"{output} is a file; --output takes a directory")
    if (output / TABLES_DIRECTORY).exists() and not may_overwrite:
        raise OutputExistsError(
            f"{output} has the tables of an earlier run: use another --output, or --overwrite"
        )
    output.mkdir(parents=True, exist_ok=True)
