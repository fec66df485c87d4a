"""The analysis on Arrow: from records of ``__group_events`` to tables."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any, Final, Union, get_args, get_origin

import msgspec
import pyarrow as pa

from partage.pipelines.rebalances.event_decoder import parse_event
from partage.pipelines.rebalances.group_analysis import GroupAnalysis
from partage.pipelines.rebalances.rows import (
    AnalysisRow,
    CauseRow,
    CoordinatorRow,
    GroupRow,
    LagRow,
    MemberRow,
    MoveRow,
    OwnershipRow,
    RebalanceRow,
    RefusedRow,
    StallRow,
)
from partage.store.group_events import DROPPED, order_by_epoch
from partage.wire.primitives import MalformedError

#: All tables with their row classes.
TABLES: Final[Mapping[str, type[AnalysisRow]]] = {
    "groups": GroupRow,
    "coordinators": CoordinatorRow,
    "rebalances": RebalanceRow,
    "causes": CauseRow,
    "members": MemberRow,
    "stalls": StallRow,
    "moves": MoveRow,
    "ownership": OwnershipRow,
    "lag": LagRow,
    "refused_commits": RefusedRow,
}

_TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")
_TYPES: Final = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}


def _field(field: msgspec.structs.FieldInfo) -> pa.Field:
    kind = field.type
    if get_origin(kind) in (Union, types.UnionType):  # an optional type
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if field.name.endswith("_at"):
        return pa.field(field.name, _TIMESTAMP_TYPE)
    if field.name == "partition":
        return pa.field(field.name, pa.int32())
    return pa.field(field.name, _TYPES[kind])


#: Arrow schema of each table.
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    name: pa.schema([_field(field) for field in msgspec.structs.fields(row)])
    for name, row in TABLES.items()
}
#: Arrow type of a group's result on Spark: a struct with a list of rows for each table.
GROUP_TABLES_TYPE: Final = pa.struct(
    [(name, pa.list_(pa.struct(list(SCHEMAS[name])))) for name in TABLES]
)


def make_table(name: str, rows: Iterable[AnalysisRow]) -> pa.Table:
    """Return the rows as an Arrow table."""
    schema = SCHEMAS[name]
    columns: list[list[Any]] = [[] for _ in schema.names]
    for row in rows:
        for column, field in zip(columns, schema.names, strict=True):
            column.append(getattr(row, field))
    arrays = [_array(column, field) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    if field.type == _TIMESTAMP_TYPE:
        values = [None if value is None else value * 1000 for value in values]
    return pa.array(values, field.type)


def group_id_of(key: bytes | None) -> str:
    """Return the group id in a record's key. Different keys give different ids."""
    return (key or b"").decode(errors="backslashreplace")


class TopicAnalysis:
    """The analyses of all groups, from the records of each group in order."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupAnalysis] = {}  # "" has the records that belong to no group

    def add(self, group_id: str, value: bytes | None) -> None:
        """Add the next record of a group; count it as unreadable if it is not an event."""
        history = self._groups.get(group_id)
        if history is None:
            history = self._groups[group_id] = GroupAnalysis(group_id)
        try:
            event = parse_event(value or b"")
        except MalformedError:
            history.group.unreadable += 1
            return
        if event.event == DROPPED:
            history.group.lost_events += event.count
        else:
            history.apply(event)

    def tables(self) -> dict[str, list[AnalysisRow]]:
        """Return the rows of each table. Call it once, at the end."""
        rows: dict[str, list[AnalysisRow]] = {name: [] for name in TABLES}
        for history in self._groups.values():
            rows["causes"] += history.finish()
            rows["groups"].append(history.group)
            rows["coordinators"] += history.coordinators
            rows["rebalances"] += history.rebalances
            rows["members"] += history.members
            rows["stalls"] += history.stalls
            rows["moves"] += history.moves
            rows["ownership"] += history.ownership
            rows["lag"] += history.lag
            rows["refused_commits"] += history.refused
        return rows


def analyse_groups(keys: pa.Array, records: pa.Array) -> pa.Array:
    """Analyse groups and return a struct of all tables for each group.

    Args:
        keys: record key of each group.
        records: for each group its records, with the field ``value``, by partition and offset.
    """
    tables: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for key, of_group in zip(keys, records, strict=True):
        analysis = TopicAnalysis()
        group_id = group_id_of(key.as_py())
        values = of_group.values.field("value")
        for index in order_by_epoch(value.as_py() for value in values):
            analysis.add(group_id, values[index].as_py())
        for name, rows in analysis.tables().items():
            tables[name].append(make_table(name, rows))
    return pa.StructArray.from_arrays(
        [_lists(name, of) for name, of in tables.items()], fields=list(GROUP_TABLES_TYPE)
    )


def _lists(name: str, tables: list[pa.Table]) -> pa.Array:
    """Return a list array with one list for each table, and a struct for each row."""
    offsets = [0]
    for table in tables:
        offsets.append(offsets[-1] + table.num_rows)
    whole = pa.concat_tables([SCHEMAS[name].empty_table(), *tables]).combine_chunks()
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in whole.columns
    ]
    structs = pa.StructArray.from_arrays(columns, fields=list(SCHEMAS[name]))
    kind = GROUP_TABLES_TYPE.field(name).type
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=kind)
