"""``python -m partage.broker`` that kills itself once, at a given step of a transaction.

Usage: python -m broker.dying_transaction_coordinator STEP FLAG ...; it creates the file FLAG.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partage.broker.__main__ import main
from partage.broker.coordination.state_store import LocalStore, StoredCallback
from partage.broker.transactions.local_markers import LocalMarkers, MarkerDone, PartitionMarker
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.transactions.records import TransactionRecord
from partage.transactions.states import TransactionState

#: The states that a step stores; the decision and the completion are of a commit or an abort.
STORED_STATES = {
    "the id": {TransactionState.EMPTY},
    "the first partition": {TransactionState.ONGOING},
    "the decision": {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT},
    "the completion": {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT},
}
BETWEEN_MARKERS = "between two markers"
STEPS = (
    *(f"{when} {what} is stored" for what in STORED_STATES for when in ("before", "after")),
    BETWEEN_MARKERS,
)


def install_death(step: str, die: Callable[..., None]) -> None:
    """Let the broker die at a step; ``die`` gets any arguments."""
    if step == BETWEEN_MARKERS:
        die_between_markers(die)
    else:
        when, what = step.removesuffix(" is stored").split(" ", 1)
        die_at_record(STORED_STATES[what], die, is_before=when == "before")


def die_at_record(
    states: set[TransactionState], die: Callable[..., None], *, is_before: bool
) -> None:
    """Die before a record with one of these states is appended, or as soon as it is durable.

    No record is appended after it, so none becomes durable together with it.
    """
    append = LocalStore.append
    is_dying = False

    def dying(
        self: LocalStore,
        records: list[Any],
        at_ms: int,
        stored: StoredCallback,
        event_ends: Sequence[int],
    ) -> None:
        nonlocal is_dying
        if is_dying:
            return
        is_dying = any(isinstance(r, TransactionRecord) and r.state in states for r in records)
        if is_dying and is_before:
            die()
            return
        append(self, records, at_ms, die if is_dying else stored, event_ends)

    LocalStore.append = dying  # type: ignore[method-assign]  # the fault that is ordered


def die_between_markers(die: Callable[..., None]) -> None:
    """Die as soon as the first marker is durable; the other markers are not appended."""
    append = LocalMarkers.append
    is_first = True

    def dying(
        self: LocalMarkers, marker: PartitionMarker, where: TopicPartition, done: MarkerDone
    ) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            append(self, marker, where, on_result)

    def on_result(error: ErrorCode) -> None:
        assert not error, error
        die()

    LocalMarkers.append = dying  # type: ignore[method-assign]  # the fault that is ordered


def kill_this_process(flag: Path) -> None:
    flag.touch()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    death_flag = Path(sys.argv[2])
    if not death_flag.exists():
        install_death(sys.argv[1], lambda *_: kill_this_process(death_flag))
    sys.argv[1:] = sys.argv[3:]
    main()
