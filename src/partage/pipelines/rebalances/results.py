"""Results of an analysis, computed locally or on Spark: tables to read and to write."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from partage.pipelines.rebalances.output_directory import TABLES_DIRECTORY, TableFormat
from partage.pipelines.rebalances.rows import AnalysisRow
from partage.pipelines.rebalances.tables import SCHEMAS, TABLES, make_table

_NEW: Final = "tables.new"


class Results(Protocol):
    """The tables of `tables.TABLES`, by name."""

    def table(self, name: str, groups: Sequence[str] | None = None) -> pa.Table:
        """Return a table, of the given groups only if there are any."""

    def top(self, name: str, column: str, count_max: int) -> pa.Table:
        """Return the rows with the largest values of a column, in descending order."""

    def write(self, directory: Path, kind: TableFormat) -> dict[str, int]:
        """Write each table into its subdirectory of ``directory``. Return the row counts."""


class LocalResults:
    """Tables in the memory of this process."""

    def __init__(self, rows: Mapping[str, Iterable[AnalysisRow]]) -> None:
        self._tables = {name: make_table(name, of) for name, of in rows.items()}

    def table(self, name: str, groups: Sequence[str] | None = None) -> pa.Table:
        """Return a table, of the given groups only if there are any."""
        table = self._tables[name]
        if groups is None:
            return table
        return table.filter(pc.is_in(table["group_id"], pa.array(groups, pa.string())))

    def top(self, name: str, column: str, count_max: int) -> pa.Table:
        """Return the rows with the largest values of a column, in descending order."""
        return self._tables[name].sort_by([(column, "descending")]).slice(0, count_max)

    def write(self, directory: Path, kind: TableFormat) -> dict[str, int]:
        """Write each table into its subdirectory of ``directory``. Return the row counts."""
        from pyarrow import csv, parquet

        for name, table in self._tables.items():
            folder = directory / name
            folder.mkdir(parents=True)
            if kind is TableFormat.PARQUET:
                parquet.write_table(table, folder / "part-0.parquet")
            else:
                csv.write_csv(table, folder / "part-0.csv")
        return {name: table.num_rows for name, table in self._tables.items()}


def write_tables(results: Results, output: Path, kind: TableFormat) -> dict[str, int]:
    """Write all tables. The tables of an earlier run stay until the new ones are complete."""
    new, tables = output / _NEW, output / TABLES_DIRECTORY
    shutil.rmtree(new, ignore_errors=True)
    rows = results.write(new, kind)
    shutil.rmtree(tables, ignore_errors=True)
    new.rename(tables)
    assert rows.keys() == TABLES.keys() == SCHEMAS.keys()
    return rows
