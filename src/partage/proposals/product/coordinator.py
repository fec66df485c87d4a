"""The product's coordinator as a coordinator of the simulator."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from partage.assignors.server_side import ServerSideRange, Uniform
from partage.bridge import API_ADAPTERS, ApiCall
from partage.bridge.api_adapter import BrokerContext, deliver
from partage.bridge.target_computation import compute_target
from partage.bridge.topic_regex import matching_topics
from partage.coordinator import events
from partage.coordinator.consumer_group.actions import Action, ComputeTarget, ResolveRegexes
from partage.coordinator.consumer_group.events import (
    RegexesResolved,
    TargetComputed,
    TopicImage,
    TopicsChanged,
)
from partage.coordinator.outcome import Outcome as ShardOutcome
from partage.coordinator.records import GroupRecord, OffsetRecord, Record
from partage.coordinator.shard import Shard
from partage.coordinator.timers import TimerKey
from partage.model.settings import GroupSettings
from partage.proposals.machine import (
    ClusterTopicsChanged,
    ConnectionId,
    ConnectionLost,
    CoordinatorOutcome,
    Elected,
    Event,
    MessageReceived,
    TimerFired,
)
from partage.proposals.product.topic_ids import topic_id
from partage.wire.api import AnyApi
from partage.wire.types import Message

Outcome = CoordinatorOutcome[TimerKey, Record]

_CONTEXT: Final = BrokerContext(shard_count=1, has_partition=lambda topic, partition: True)
_ASSIGNORS: Final = {each.name: each for each in (Uniform(), ServerSideRange())}


def record_key(record: Record) -> Hashable | None:
    """Return the key of a record that a later one replaces; None for all other records."""
    match record:
        case GroupRecord():
            return record.group_id
        case OffsetRecord():
            return record.group_id, record.topic, record.partition
    return None


class _Call(ApiCall[Any]):
    """A request with the connection that it came from."""

    __slots__ = ("connection",)

    connection: ConnectionId


class ProductCoordinator:
    """One shard of the group coordinator.

    Args:
        settings: The settings of groups.
        apis: The API and its version, by the type of the request.
    """

    def __init__(
        self, settings: GroupSettings, apis: Mapping[type[Message], tuple[AnyApi, int]]
    ) -> None:
        self.shard = Shard(settings, lambda metadata: None)
        self._apis = apis
        self._is_resumed = False
        self._topics_version = 0
        self._topic_names: list[str] = []

    def apply(self, record: Record) -> None:
        """Apply a stored record while loading."""
        self.shard.apply(record)

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        # Not `Outcome(...)`: a call of a generic alias is slow.
        outcome: Outcome = CoordinatorOutcome(event.at_ms)
        if isinstance(event, Elected | ClusterTopicsChanged):
            self._on_topics(outcome, event.topics)  # a shard needs them before it resumes
        if not self._is_resumed:
            self._is_resumed = True
            self._add(outcome, self.shard.resume(event.at_ms))
        match event:
            case MessageReceived(connection=connection, message=message, draw=draw):
                self._handle_message(outcome, connection, message, draw)
            case TimerFired(key=key):
                fired: Any = key
                self._add(
                    outcome, self.shard.handle(events.TimerFired(at_ms=event.at_ms, key=fired))
                )
            case Elected() | ClusterTopicsChanged():
                pass
            case ConnectionLost():
                pass  # a parked request continues, as in Kafka
            case _:
                raise AssertionError(f"unexpected event {event}")
        return outcome

    def _on_topics(self, outcome: Outcome, counts: Mapping[str, int]) -> None:
        self._topics_version += 1
        self._topic_names = list(counts)
        topics = {
            name: TopicImage(topic_id=topic_id(name), name=name, partition_count=count)
            for name, count in counts.items()
        }
        changed = TopicsChanged(at_ms=outcome.at_ms, topics=topics, version=self._topics_version)
        self._add(outcome, self.shard.handle(changed))

    def _handle_message(
        self, outcome: Outcome, connection: ConnectionId, message: Any, draw: int
    ) -> None:
        api, version = self._apis[type(message)]
        call = _Call(version, message, "consumer", "/simulation", outcome.at_ms)
        call.connection = connection
        asked = call.start(API_ADAPTERS[api.key], _CONTEXT, f"{draw:016x}")
        for event in asked:
            self._add(outcome, self.shard.handle(event))
        if not asked:
            self._respond(outcome, call)

    def _add(self, outcome: Outcome, shard_outcome: ShardOutcome) -> None:
        outcome.records += shard_outcome.records
        outcome.timers += shard_outcome.timers
        for ticket, reply in shard_outcome.replies:
            call: Any = deliver(ticket, reply)
            if call is not None:
                self._respond(outcome, call)
        for action in shard_outcome.actions:
            self._perform(outcome, action)

    def _perform(self, outcome: Outcome, action: Action) -> None:
        """Do the work at once, so that its time counts as time of the coordinator."""
        if isinstance(action, ResolveRegexes):
            matched = RegexesResolved(
                at_ms=outcome.at_ms,
                group_id=action.group_id,
                sequence=action.sequence,
                topics=matching_topics(action.regexes, self._topic_names),
                version=self._topics_version,
            )
            self._add(outcome, self.shard.handle(matched))
            return
        assert isinstance(action, ComputeTarget), f"unexpected action {action}"
        computed = compute_target(action, _ASSIGNORS[action.assignor])
        result = TargetComputed(
            at_ms=outcome.at_ms,
            group_id=action.group_id,
            sequence=action.sequence,
            group_epoch=action.group_epoch,
            target=computed.target,
            error=computed.error,
        )
        self._add(outcome, self.shard.handle(result))

    def _respond(self, outcome: Outcome, call: Any) -> None:
        outcome.send(call.connection, call.build_response())
