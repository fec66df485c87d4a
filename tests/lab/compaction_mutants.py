"""Mutants of log compaction: which records, batches and markers it keeps."""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant
from .transaction_mutants import COMPACTION_WORLDS

_COMPACTION = "partage.log.compaction"
#: The worlds of mutants that need tombstones: offsets are deleted again and again.
_TOMBSTONE_WORLDS: Final[dict[str, Any]] = {
    **COMPACTION_WORLDS,
    "compactions": 40,
    "transaction_kinds": "offset_is_deleted_beside_transactions",
}


def _mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, COMPACTION_WORLDS)


def _tombstone_mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _TOMBSTONE_WORLDS)


def _cleaner(name: str, original: str, replacement: str) -> Mutant:
    return _mutant(name, f"{_COMPACTION}.cleaner", original, replacement)


def _filter(name: str, original: str, replacement: str) -> Mutant:
    return _mutant(name, f"{_COMPACTION}.transaction_filter", original, replacement)


COMPACTION_MUTANTS = (
    _cleaner(
        "compaction drops tombstones at once",
        "self._tombstones_end = plan.tombstone_horizon\n",
        "self._tombstones_end = plan.end_offset\n",
    ),
    _tombstone_mutant(
        "compaction keeps tombstones for ever",
        f"{_COMPACTION}.cleaner",
        "        return value is not None or offset >= self._tombstones_end\n",
        "        return True\n",
    ),
    _tombstone_mutant(
        "compaction forgets when it first saw a tombstone",
        f"{_COMPACTION}.plan",
        "rounds.append(CompactionRun(end_offset, self.now_ms))",
        "rounds.append(CompactionRun(end_offset, 0))",
    ),
    _cleaner(
        "compaction keeps superseded records",
        "key is None or self._latest.get(key, offset) > offset",
        "key is None",
    ),
    _cleaner(
        "a record of an aborted transaction supersedes others",
        "            if transactions.is_aborted(header):\n                continue\n",
        "",
    ),
    _cleaner(
        "compaction drops the last batch of a producer",
        "        if kept or header.last_offset in self._producers_last:\n",
        "        if kept:\n",
    ),
    _cleaner(
        "compaction keeps all empty batches",
        "        if kept or header.last_offset in self._producers_last:\n",
        "        if kept or header.producer_id >= 0:\n",
    ),
    _cleaner(
        "a rewritten batch loses its sequence",
        "        base_sequence=header.base_sequence,\n",
        "        base_sequence=-1,\n",
    ),
    _cleaner(
        "a rewritten batch ends with its last record",
        "        last_offset_delta=header.last_offset_delta,\n",
        "        last_offset_delta=kept[-1][0] - header.base_offset\n"
        "        if kept\n        else header.last_offset_delta,\n",
    ),
    _cleaner(
        "a rewritten batch loses its transaction",
        "        is_transactional=header.is_transactional,\n",
        "        is_transactional=False,\n",
    ),
    _cleaner(
        "a rewritten record gets the time of its batch",
        "SimpleRecord(key, value, headers, timestamp_ms, offset - header.base_offset)\n",
        "SimpleRecord(key, value, headers, header.max_timestamp_ms, offset - header.base_offset)\n",
    ),
    _filter(
        "compaction drops the later batches of a producer with an aborted transaction",
        "return at >= 0 and header.base_offset < found[at].last_offset",
        "return at >= 0",
    ),
    _filter(
        "compaction drops the marker of a transaction with records",
        "        if header.producer_id in self._with_data:\n",
        "        if header.producer_id in self._with_data and not header.base_sequence + 1:\n"
        "            self._with_data.remove(header.producer_id)\n"
        "        elif header.producer_id in self._with_data:\n",
    ),
    _filter(
        "compaction drops a marker without records at once",
        "            return _with_delete_horizon(batch, horizon_ms)\n",
        '            return b""\n',
    ),
    _filter(
        "compaction keeps markers for ever",
        '        return b"" if header.base_timestamp_ms <= self._now_ms else batch.content\n',
        "        return batch.content\n",
    ),
    _filter(
        "compaction drops the marker that fences a producer",
        "        if self._producer_epochs.get(header.producer_id) == header.producer_epoch:\n",
        "        if self._producer_epochs.get(header.producer_id) == header.producer_epoch + 1:\n",
    ),
    _filter(
        "the delete horizon changes the time of a marker",
        "    age = encode_varint(time_ms - horizon_ms)\n",
        "    age = encode_varint(0 * time_ms)\n",
    ),
    _mutant(
        "young records are compacted",
        f"{_COMPACTION}.plan",
        "if one.newest_ms > old_enough_ms and",
        "if one.newest_ms > now_ms and",
    ),
    _mutant(
        "an interrupted compaction only removes the old segments",
        f"{_COMPACTION}.segment_swap",
        "    rename_swapped_files(disk, directory, swap)\n    finish_swap(disk, directory, swap)\n",
        "    finish_swap(disk, directory, swap)\n",
    ),
)
