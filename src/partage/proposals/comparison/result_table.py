"""The results of cells as an Arrow table: one row for each cell and phase.

The columns are the parameters of the workload, the measurements of the phase, the figures of the
whole cell, and the command that runs the cell again. `COLUMNS` describes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from partage.proposals.comparison.cell import CellResult, PhaseResult, Workload
from partage.proposals.comparison.grid import cell_command

#: Fields of `Workload` and `CellResult` that are not columns: the phases are rows.
_ROWS: Final = frozenset({"phases", "workload"})

_TYPES: Final = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    list[str]: pa.list_(pa.string()),
    dict[str, int]: pa.map_(pa.string(), pa.int64()),
}


def _columns() -> pa.Schema:
    fields = []
    for struct in (Workload, PhaseResult, CellResult):
        for name, kind in get_type_hints(struct).items():
            if name in struct.__struct_fields__ and name not in _ROWS:
                kinds = [each for each in get_args(kind) if each is not NoneType]
                is_nullable = NoneType in get_args(kind)
                kind = kinds[0] if is_nullable else kind
                fields.append(pa.field(name, _TYPES[kind], nullable=is_nullable))
    fields.append(pa.field("is_over_sockets", pa.bool_(), nullable=False))
    fields.append(pa.field("command", pa.string(), nullable=False))
    return pa.schema(fields)


#: The columns of the table, in order.
COLUMNS: Final = _columns()


def results_table(
    results: Iterable[CellResult], socket_results: Iterable[CellResult] = ()
) -> pa.Table:
    """Return the table of some results, in their order.

    Args:
        results: The cells that ran in the simulator.
        socket_results: Those that ran over sockets.
    """
    rows = []
    cells = [(each, False) for each in results] + [(each, True) for each in socket_results]
    for result, is_over_sockets in cells:
        cell = _values(result.workload) | _values(result)
        cell["partitions"] = result.workload.partition_count
        cell["is_over_sockets"] = is_over_sockets
        cell["command"] = cell_command(result.workload, is_over_sockets=is_over_sockets)
        rows += [cell | _values(phase) for phase in result.phases]
    return pa.Table.from_pylist(rows, COLUMNS)


def _values(struct: msgspec.Struct) -> dict[str, Any]:
    return {
        name: [*value.items()] if isinstance(value, dict) else value
        for name, value in msgspec.structs.asdict(struct).items()
        if name not in _ROWS
    }


def write_results(
    path: Path, results: Iterable[CellResult], socket_results: Iterable[CellResult] = ()
) -> None:
    """Write the table to a Parquet file; see `results_table`."""
    pq.write_table(results_table(results, socket_results), path, compression="zstd")
