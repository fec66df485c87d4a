"""Rule ``assignments``: within a generation, each partition has one owner, which subscribes to its
topic.
"""

from __future__ import annotations

from partage.coordinator.records import GroupRecord
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, RuleViolationError
from partage.lab.offset_log import LogChange
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.consumer_protocol import decode_assignment, decode_subscription


def decode_partitions(assignment: bytes) -> list[TopicPartition]:
    """Return the partitions of an encoded assignment; an empty one has none."""
    if not assignment:
        return []
    said = decode_assignment(assignment)
    return [
        TopicPartition(topic.topic, index)
        for topic in said.assigned_partitions
        for index in topic.partitions
    ]


class AssignmentsChecker:
    """Checks each stored assignment."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._awaited: dict[str, int] = {}
        ledger.on_durable(self._judge)

    def _judge(self, record: LogChange) -> None:
        if not isinstance(record, GroupRecord):
            return
        is_new = self._awaited.get(record.group_id) == record.generation
        self._awaited[record.group_id] = record.generation if record.awaiting_sync else -1
        if record.awaiting_sync:
            return
        owners: dict[TopicPartition, str] = {}
        for member in record.members:
            share = decode_partitions(member.assignment)
            topics = decode_subscription(member.subscription).topics if share else []
            for partition in share:
                other = owners.setdefault(partition, member.member_id)
                if other != member.member_id:
                    problem = f"{partition} is assigned to both {other} and {member.member_id}"
                    raise RuleViolationError(
                        "assignments", f"{problem} in generation {record.generation}"
                    )
                # A static member may return with another subscription; it detects the mismatch
                # itself.
                if is_new and partition.topic not in topics:
                    raise RuleViolationError(
                        "assignments",
                        f"{member.member_id} has {partition} but does not subscribe to it",
                    )
