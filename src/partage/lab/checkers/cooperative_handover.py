"""Rule ``cooperative-handover``: a cooperative member revokes a partition before another gets it.

The claims are the owned partitions in the JoinGroup subscriptions. A partition that a member claims
with the newest generation is not assigned to another member in the same rebalance (KIP-429).
"""

from __future__ import annotations

from partage.coordinator.records import GroupRecord
from partage.lab.checkers.assignments import decode_partitions
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, RuleViolationError
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.consumer_protocol import decode_subscription


class CooperativeHandoverChecker:
    """Checks each cooperative-sticky assignment against the members' claims."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        ledger.on_assigned(self._judge)

    def _judge(self, record: GroupRecord) -> None:
        if record.protocol != "cooperative-sticky":
            return
        claims: dict[TopicPartition, tuple[int, str]] = {}
        contested: set[TopicPartition] = set()
        for member in record.members:
            said = decode_subscription(member.subscription)
            for topic in said.owned_partitions:
                for index in topic.partitions:
                    claim = (said.generation_id, member.member_id)
                    partition = TopicPartition(topic.topic, index)
                    if partition in claims:
                        contested.add(partition)
                    claims[partition] = max(claims.get(partition, claim), claim)
        for member in record.members:
            for partition in decode_partitions(member.assignment):
                owner = claims.get(partition, (0, member.member_id))[1]
                if owner != member.member_id and partition not in contested:
                    raise RuleViolationError(
                        "cooperative-handover",
                        f"{partition} moved from {owner} to {member.member_id} in one rebalance",
                    )
