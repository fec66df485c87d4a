"""``partage broker`` that kills itself once at a given point.

Usage: python -m cluster.crashing_broker POINT FLAG GROUP ...; it creates the file FLAG.

The points are those of the proposal's "Handling Coordinator Failures": before and after a
generation is stored, and before and after the leader's sync is stored.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from partage.broker.cluster.kazoo_session import KazooSession
from partage.console import main
from partage.coordinator.records import GroupRecord
from partage.store.record_formats import decode_record
from partage.store.zookeeper import Create, Operation
from partage.wire.records.decoder import decode_pairs

CRASH_POINTS = (
    "before the generation is stored",
    "after the generation is stored",
    "before the sync is stored",
    "after the sync is stored",
)
_HEADER_BYTES = 5  # of a log entry


def stored_groups(operations: Sequence[Operation], group: str) -> list[GroupRecord]:
    """Return the records of a group in a transaction."""
    found = []
    for operation in operations:
        if isinstance(operation, Create) and "/log/" in operation.path:
            for key, value in decode_pairs(operation.data[_HEADER_BYTES:]):
                record = None if key is None else decode_record(key, value)
                if isinstance(record, GroupRecord) and record.group_id == group:
                    found.append(record)
    return found


def install_crash(point: str, flag: Path, group: str) -> None:
    when, what = point.split(" ", 1)
    awaits_sync = "generation" in what
    transact = KazooSession.transact
    is_armed = not flag.exists()

    def die() -> None:
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)

    async def dying(self: KazooSession, operations: Sequence[Operation]) -> None:
        is_it = is_armed and any(
            record.members and record.awaiting_sync is awaits_sync
            for record in stored_groups(operations, group)
        )
        if is_it and when == "before":
            die()
        await transact(self, operations)
        if is_it:
            die()

    KazooSession.transact = dying  # type: ignore[method-assign]  # the fault that is ordered


if __name__ == "__main__":
    install_crash(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    sys.argv[1:] = sys.argv[4:]
    main()
