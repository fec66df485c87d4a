"""The first design, with its two ways to rebalance."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Final

from partage.proposals.broker_side.consumer import PushConsumer
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import (
    BrokerConnected,
    BrokerResponseReceived,
    ConnectBroker,
    DisconnectBroker,
    RebalancingSwitched,
    SendToBroker,
)
from partage.proposals.broker_side.frames import encode_frame
from partage.proposals.broker_side.messages import BrokerAddress, ClusterMetadataResponse
from partage.proposals.broker_side.records import Record, record_key
from partage.proposals.broker_side.settings import (
    PushConsumerSettings,
    PushCoordinatorSettings,
    RebalanceMethod,
)
from partage.proposals.broker_side.topic_count import pattern_topic_count, static_topic_count
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import Action, Event
from partage.proposals.simulation.design import Design, Finding, MemberTemplate
from partage.wire.types import Message

#: The brokers of a simulated cluster. Any of them may be the coordinator.
_BROKERS: Final = tuple(
    BrokerAddress(id=number, host=f"broker-{number}.example.com", port=9092) for number in range(3)
)


class BrokerSide(Design):
    """The coordinator assigns partitions, and stops and starts the consumers' fetchers."""

    name: ClassVar[str] = "broker-side"
    findings: ClassVar[tuple[Finding, ...]] = (
        Finding(
            rules=("one reader",),
            faults=("coordinator crash", "coordinator expiry"),
            reason=(
                "The coordinator records the owners after the consumers have started to read "
                "(step 4.6). If it is lost in between, the next one does not wait for a consumer "
                "that owned nothing before and is cut off."
            ),
        ),
    )
    partitions_per_member_max: ClassVar[int | None] = 0x7FFF  # the int16 ``num_partitions``
    watches_topics: ClassVar[bool] = True
    commits_at_intervals: ClassVar[bool] = False
    can_switch_rebalancing: ClassVar[bool] = True
    method: ClassVar[RebalanceMethod] = RebalanceMethod.STOP_FETCHERS

    def __init__(self, coordinator: CoordinatorSettings, member: DesignMemberSettings) -> None:
        self._coordinator_settings = PushCoordinatorSettings(
            session_timeout_min_ms=coordinator.session_timeout_min_ms,
            offset_commit_interval_ms=member.commit_interval_ms,
            rebalance_method=self.method,
            brokers=_BROKERS,
        )
        self._member_settings = member

    def coordinator(self) -> PushCoordinator:
        return PushCoordinator(self._coordinator_settings)

    def member(self, template: MemberTemplate) -> PushConsumer:
        settings = self._member_settings
        topic_count = static_topic_count(template.topics)
        if template.pattern:
            topic_count = pattern_topic_count(template.pattern)
        return PushConsumer(
            PushConsumerSettings(
                bootstrap_brokers=_BROKERS,
                group_id=settings.group_id,
                consumer_id=template.name,
                topic_count=topic_count,
                session_timeout_ms=settings.session_timeout_ms,
                retry_backoff_ms=settings.retry_backoff_ms,
            )
        )

    def record_key(self, record: Record) -> Hashable:
        return record_key(record)

    def rebalancing_switched(self, *, is_enabled: bool) -> Event:
        return RebalancingSwitched(
            at_ms=0, group_id=self._member_settings.group_id, is_enabled=is_enabled
        )

    def message_size(self, message: Message) -> int:
        return len(encode_frame(message))

    def perform(self, action: Action) -> Iterable[tuple[int, Event]]:
        match action:
            case ConnectBroker():
                return [(2, BrokerConnected(at_ms=0))]
            case SendToBroker():
                response = ClusterMetadataResponse(coordinator_id=0, brokers_info=list(_BROKERS))
                return [(2, BrokerResponseReceived(at_ms=0, message=response))]
            case DisconnectBroker():
                return []
        raise AssertionError(f"unexpected action {action}")


class BrokerSideClosing(BrokerSide):
    """To rebalance, the coordinator closes the connections, and all consumers register again."""

    name: ClassVar[str] = "broker-side-closing"
    method: ClassVar[RebalanceMethod] = RebalanceMethod.CLOSE_CONNECTIONS
    findings: ClassVar[tuple[Finding, ...]] = (
        *BrokerSide.findings,
        Finding(
            rules=("duplicates", "shutdown"),
            faults=(),
            reason=(
                "The coordinator closes connections without waiting for the offsets that consumers "
                "have read since their last ping."
            ),
        ),
    )
