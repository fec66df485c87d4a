"""The product's coordinator as a coordinator of the simulator."""

from __future__ import annotations

from typing import Any, Final

from partage.bridge import API_ADAPTERS, ApiCall
from partage.bridge.api_adapter import BrokerContext, deliver
from partage.coordinator import events
from partage.coordinator.outcome import Outcome as ShardOutcome
from partage.coordinator.records import Record
from partage.coordinator.shard import Shard
from partage.coordinator.timers import TimerKey
from partage.model.settings import GroupSettings
from partage.proposals.machine import (
    Connection,
    ConnectionLost,
    CoordinatorOutcome,
    Event,
    MessageReceived,
    TimerFired,
)
from partage.proposals.two_phase.apis import API_BY_REQUEST

Outcome = CoordinatorOutcome[TimerKey, Record]

_CONTEXT: Final = BrokerContext(shard_count=1, has_partition=lambda topic, partition: True)


class _Call(ApiCall[Any]):
    """A request with the connection that it came from."""

    __slots__ = ("connection",)

    connection: Connection


class TwoPhaseCoordinator:
    """One shard of the group coordinator.

    Args:
        settings: The settings of groups.
    """

    def __init__(self, settings: GroupSettings) -> None:
        self.shard = Shard(settings, lambda metadata: None)
        self._is_resumed = False

    def apply(self, record: Record) -> None:
        """Apply a stored record while loading."""
        self.shard.apply(record)

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its effects."""
        # Not `Outcome(...)`: a call of a generic alias is slow.
        outcome: Outcome = CoordinatorOutcome(event.at_ms)
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
            case ConnectionLost():
                pass  # a parked request continues, as in Kafka
            case _:
                raise AssertionError(f"unexpected event {event}")
        return outcome

    def _handle_message(
        self, outcome: Outcome, connection: Connection, message: Any, draw: int
    ) -> None:
        api, version = API_BY_REQUEST[type(message)]
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

    def _respond(self, outcome: Outcome, call: Any) -> None:
        outcome.send(call.connection, call.build_response())
