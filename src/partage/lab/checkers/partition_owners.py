"""Rule ``partition-owners``: no two members of the current generation own the same partition.

Some members may keep partitions that belong to another member by now, until their session expires.
The coordinator rejects their commits. These are:

- members that were removed and do not know it yet;
- static members that a new generation included without a join;
- members for which another client joined under their member id.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, OwnershipChanged, ResponseSent, RuleViolationError
from partage.lab.offset_log import LogChange
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.join_group import JoinGroupResponse


class PartitionOwnersChecker:
    """Checks each change of a process's owned partitions."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._holds: dict[str, OwnershipChanged] = {}
        #: By group and generation: the clients that learned of it, with their member ids.
        self._joined: dict[str, dict[int, set[tuple[str, str]]]] = defaultdict(dict)
        history.subscribe(OwnershipChanged, self._hold)
        history.subscribe(ResponseSent, self._on_response)
        ledger.on_durable(self._store)

    def _on_response(self, entry: ResponseSent) -> None:
        asked: Any = entry.request.message
        message = entry.message
        if isinstance(message, JoinGroupResponse) and not message.error_code:
            members = self._joined[asked.group_id].setdefault(message.generation_id, set())
            members.add((entry.request.client, message.member_id))

    def _store(self, record: LogChange) -> None:
        if isinstance(record, GroupRecord) and record.awaiting_sync:
            self._joined[record.group_id].setdefault(record.generation, set())
        elif isinstance(record, GroupTombstone):
            self._joined.pop(record.group_id, None)  # its generations start again

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

    def _judge(
        self, one: OwnershipChanged, other: OwnershipChanged, both: set[TopicPartition]
    ) -> None:
        if self._is_zombie(one) or self._is_zombie(other):
            return
        raise RuleViolationError(
            "partition-owners",
            f"{sorted(both)} is owned by {one.process} (generation {one.generation}) and by "
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
