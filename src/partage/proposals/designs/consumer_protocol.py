"""The consumer group protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import msgspec

from partage.coordinator.records import Record
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.model.settings import ConsumerGroupSettings, GroupSettings
from partage.proposals.consumer_protocol.apis import APIS
from partage.proposals.consumer_protocol.coordinator import ConsumerProtocolCoordinator
from partage.proposals.consumer_protocol.member import ConsumerProtocolMember
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.product.coordinator import record_key
from partage.proposals.simulation.design import Design, Finding, MemberTemplate
from partage.proposals.simulation.message_sizes import MessageSizes
from partage.wire.types import Message


class ConsumerProtocol848(Design):
    """The coordinator computes a target assignment, and each member moves to it by heartbeats.

    The coordinator decides the session timeout and the heartbeat interval. It gets those of the
    members of the other designs, so that all designs have the same ones. The protocol has no user
    data, so the size of the metadata has no effect.
    """

    name: ClassVar[str] = "consumer-protocol"
    findings: ClassVar[tuple[Finding, ...]] = (
        Finding(
            rules=("lost commits",),
            faults=("cut",),
            reason=(
                "A commit on an abandoned connection may arrive after later commits on the next "
                "one. The coordinator accepts it also after a change of the member's epoch, if "
                "the member has had the partition since the older epoch (KIP-1251): users may "
                "commit lower offsets, so it cannot tell."
            ),
        ),
    )
    watches_topics: ClassVar[bool] = True

    def __init__(self, coordinator: CoordinatorSettings, member: DesignMemberSettings) -> None:
        session_ms, heartbeat_ms = member.session_timeout_ms, member.heartbeat_interval_ms
        consumer = msgspec.structs.replace(
            ConsumerGroupSettings(),
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
        )
        self._group_settings = msgspec.structs.replace(
            GroupSettings(),
            consumer=consumer,
            initial_rebalance_delay_ms=coordinator.initial_rebalance_delay_ms,
        )
        self._member_settings = ConsumerMemberSettings(
            group_id=member.group_id,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
        )
        self._commit_interval_ms = member.commit_interval_ms
        self._sizes = MessageSizes(APIS)

    def coordinator(self) -> ConsumerProtocolCoordinator:
        return ConsumerProtocolCoordinator(self._group_settings)

    def member(self, template: MemberTemplate) -> ConsumerProtocolMember:
        return ConsumerProtocolMember(
            self._member_settings,
            template.name,
            template.topics,
            self._commit_interval_ms,
            template.pattern,
        )

    def record_key(self, record: Record) -> Hashable | None:
        return record_key(record)

    def message_size(self, message: Message) -> int:
        return self._sizes.size(message)
