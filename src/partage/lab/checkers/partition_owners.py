"""``owners``: no partition is held by two members of the group at a time.

What a member of the present generation holds, nobody else does. One that was dropped and has not
heard of it yet may hold on to what is somebody else's by now, until its own session is over: the
coordinator refuses its commits. The same goes for a static member that a generation has kept its
place for without it, and for one that somebody else has joined for in its name.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from partage.coordinator.records import GroupRecord, GroupTombstone, Record
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    OwnershipChanged,
    Partition,
    ResponseSent,
    RuleViolationError,
)
from partage.model.settings import GroupSettings
from partage.wire.apis.join_group import JoinGroupResponse


class PartitionOwnersChecker:
    """Judges whenever a consumer process comes to hold something else."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._holds: dict[str, OwnershipChanged] = {}
        #: By group and generation: which clients were told that they are in it, and as whom.
        self._joined: dict[str, dict[int, set[tuple[str, str]]]] = defaultdict(dict)
        history.subscribe(OwnershipChanged, self._hold)
        history.subscribe(ResponseSent, self._answer)
        ledger.on_durable(self._store)

    def _answer(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        message = entry.message
        if isinstance(message, JoinGroupResponse) and not message.error_code:
            told = self._joined[asked.group_id].setdefault(message.generation_id, set())
            told.add((entry.request.client, message.member_id))

    def _store(self, record: Record) -> None:
        if isinstance(record, GroupRecord) and record.awaiting_sync:
            self._joined[record.group_id].setdefault(record.generation, set())
        elif isinstance(record, GroupTombstone):
            self._joined.pop(record.group_id, None)  # whose generations begin again

    def _hold(self, entry: OwnershipChanged) -> None:
        self._holds[entry.process] = entry
        if not entry.partitions:
            del self._holds[entry.process]
            return
        held = set(entry.partitions)
        for other in self._holds.values():
            if other.process != entry.process and other.group_id == entry.group_id:
                both = held.intersection(other.partitions)
                if both:
                    self._judge(entry, other, both)

    def _judge(self, one: OwnershipChanged, other: OwnershipChanged, both: set[Partition]) -> None:
        if self._is_zombie(one) or self._is_zombie(other):
            return
        raise RuleViolationError(
            "owners",
            f"{sorted(both)} is held by {one.process} (generation {one.generation}) and by "
            f"{other.process} (generation {other.generation})",
        )

    def _is_zombie(self, holds: OwnershipChanged) -> bool:
        latest = self._ledger.latest(holds.group_id)
        members = [] if latest is None else [m.member_id for m in latest.members]
        if holds.member_id not in members:
            return True
        return any(
            generation > holds.generation and (holds.process, holds.member_id) not in joined
            for generation, joined in self._joined[holds.group_id].items()
        )
