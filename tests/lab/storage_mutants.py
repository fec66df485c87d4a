"""Mutants of the log on disk and of the record formats."""

from __future__ import annotations

from .mutant import Mutant

_L = "partage.log"

STORAGE_MUTANTS = (
    Mutant(
        "files are not synced",
        "partage.log.io",
        "        disk.sync(*dict.fromkeys(write.path for write in writes))\n"
        "        sync_directories(",
        "        sync_directories(",
    ),
    Mutant(
        "directories are not synced",
        "partage.log.io",
        "        sync_directories(disk, (write.path for write in writes if write.position == 0))\n",
        "        pass\n",
    ),
    Mutant(
        "damage is truncated like a torn tail",
        "partage.log.recovery.partition_recovery",
        "return marker.position if marker.base_offset == segment.base_offset else 0",
        "return 0",
    ),
    Mutant(
        "a failed sync is not repaired at the next start",
        "partage.log.recovery.partition_recovery",
        "        self._rewrite_unacknowledged(scanned)\n",
        "",
    ),
    Mutant(
        "a torn tail is not truncated",
        "partage.log.recovery.partition_recovery",
        "                self._truncations.append(truncate_tail(self._disk, segment.path, *fault))\n",
        "",
    ),
    Mutant(
        "a checkpoint is written before its records are durable",
        f"{_L}.partition",
        "        writes.append(self._segments.append(stored))",
        "        writes.append(self._segments.append(stored))\n"
        "        self.mark_durable(self.end_offset)\n"
        "        writes.append(self.checkpoint_write())",
    ),
    Mutant(
        "the high watermark is not durable",
        f"{_L}.partition",
        "return self._segments.durable.offset",
        "return self._segments.end_offset",
    ),
    Mutant(
        "a duplicate produce request is appended again",
        "partage.log.producer_state",
        "            if duplicate := self._duplicate(batch):\n"
        "                if all(self._duplicate(each) for each in batches):\n"
        "                    return duplicate\n",
        "            if self._duplicate(batch):\n                continue\n",
    ),
    Mutant(
        "producer state is lost at a restart",
        "partage.log.recovery.partition_recovery",
        "        producers = producers or ProducerStateManager()\n        for base_offset in",
        "        producers = ProducerStateManager()\n        for base_offset in",
    ),
    Mutant(
        "compaction drops the last value of a key",
        "partage.log.compaction.cleaner",
        "self._latest.get(key, offset) > offset",
        "self._latest.get(key, -1) == offset",
    ),
    Mutant(
        "a load uses the first value of each key",
        "partage.store.shard_log",
        "    last = {key: value for key, value in decode_pairs(blobs) if key is not None}\n"
        "    for key, value in last.items():\n        if value is None:",
        "    last = dict(reversed([p for p in decode_pairs(blobs) if p[0] is not None]))\n"
        "    for key, value in last.items():\n        if value is None:",
    ),
    Mutant(
        "a stored group loses its awaiting_sync flag",
        "partage.store.record_formats",
        "        awaiting_sync=record.awaiting_sync,",
        "        awaiting_sync=False,",
    ),
    Mutant(
        "a stored group loses its leader",
        "partage.store.record_formats",
        "leader=held.leader,",
        "leader=None,",
    ),
)
