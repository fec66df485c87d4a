"""A harness that plays the consumers of the first design's coordinator, event by event."""

from __future__ import annotations

from typing import Any

from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import (
    Outcome,
    RebalancingSwitched,
)
from partage.proposals.broker_side.invariants import check
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)
from partage.proposals.broker_side.purgatory import RequestKind, WatcherTimer
from partage.proposals.broker_side.records import OwnerRecord, Record
from partage.proposals.broker_side.registry import RebalancePhase
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.wire.types import Message

BROKER = BrokerAddress(id=0, host="h", port=9092)
SESSION_MS = 9_000


class Harness:
    """An elected coordinator. Connections are numbers, and consumer ``c1`` is on connection 1."""

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        records: tuple[Record, ...] = (),
        **settings: Any,
    ) -> None:
        self.coordinator = PushCoordinator(PushCoordinatorSettings(brokers=(BROKER,), **settings))
        self.now_ms = 0
        self.timers: dict[Any, int] = {}
        self.records: list[Record] = []
        self.closed: list[int] = []
        self.failed: list[str] = []
        self.refused: list[tuple[str, str, str]] = []
        for record in records:
            self.coordinator.apply(record)
        self.elect({"t": 2} if topics is None else topics)

    def elect(self, topics: dict[str, int]) -> None:
        self.handle(machine.Elected(at_ms=self.now_ms, topics=topics))

    def handle(self, event: machine.Event) -> list[tuple[int, Any]]:
        outcome: Outcome = self.coordinator.handle(event)
        check(self.coordinator)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = deadline_ms
        self.records += outcome.records
        self.closed += outcome.closes
        self.failed += outcome.failed_rebalances.keys()
        self.refused += outcome.refused_offsets
        return list(outcome.sends)

    def send(self, connection: int, message: Message) -> list[tuple[int, Any]]:
        return self.handle(
            machine.MessageReceived(
                at_ms=self.now_ms, connection=ConnectionId(connection), message=message, draw=0
            )
        )

    def lose(self, connection: int) -> list[tuple[int, Any]]:
        return self.handle(
            machine.ConnectionLost(at_ms=self.now_ms, connection=ConnectionId(connection))
        )

    def fire(self, key: Any) -> list[tuple[int, Any]]:
        self.now_ms = self.timers.pop(key)
        return self.handle(machine.TimerFired(at_ms=self.now_ms, key=key))

    def change_topics(self, topics: dict[str, int]) -> list[tuple[int, Any]]:
        return self.handle(machine.ClusterTopicsChanged(at_ms=self.now_ms, topics=topics))

    def switch(self, *, is_enabled: bool, group_id: str = "g") -> list[tuple[int, Any]]:
        return self.handle(
            RebalancingSwitched(at_ms=self.now_ms, group_id=group_id, is_enabled=is_enabled)
        )

    def register(self, number: int, **changes: Any) -> list[tuple[int, Any]]:
        return self.send(number, registration(number, **changes))

    def settle(self, sends: list[tuple[int, Any]]) -> dict[int, StartFetcherRequest]:
        """Answer all requests; return the last StartFetcher request of each connection."""
        started: dict[int, StartFetcherRequest] = {}
        waiting = list(sends)
        while waiting:
            connection, message = waiting.pop(0)
            match message:
                case StopFetcherRequest(consumer_id=name):
                    waiting += self.send(connection, StopFetcherResponse(consumer_id=name))
                case StartFetcherRequest(consumer_id=name):
                    started[connection] = message
                    waiting += self.send(connection, StartFetcherResponse(consumer_id=name))
                case PingRequest(consumer_id=name):
                    waiting += self.send(connection, PingResponse(consumer_id=name))
        return started

    def watchers(self, kind: RequestKind) -> list[WatcherTimer]:
        return [
            each for each in self.timers if isinstance(each, WatcherTimer) and each.kind == kind
        ]

    @property
    def phase(self) -> RebalancePhase:
        return self.coordinator.groups["g"].phase

    @property
    def owners(self) -> dict[tuple[str, int], str | None]:
        return {
            (each.topic, each.partition): each.thread
            for each in self.records
            if isinstance(each, OwnerRecord)
        }


def registration(number: int, **changes: Any) -> RegisterConsumerRequest:
    fields: dict[str, Any] = {
        "group_id": "g",
        "consumer_id": f"c{number}",
        "topic_count": '{"t":1}',
        "auto_commit": True,
        "auto_offset_rest": "smallest",
        "session_timeout_ms": SESSION_MS,
    }
    return RegisterConsumerRequest(**{**fields, **changes})


def names(sends: list[tuple[int, Any]]) -> list[tuple[int, str]]:
    return [(connection, type(message).__name__) for connection, message in sends]


def parts(request: StartFetcherRequest) -> dict[str, list[tuple[str, str, int]]]:
    return {
        each.consumer_thread_id: [(p.topic, p.partition, p.offset) for p in each.assigned_parts]
        for each in request.ownership_info
    }


def offset(partition: int, value: int) -> PartitionOffset:
    return PartitionOffset(topic="t", partition=f"0-{partition}", offset=value)


def settled(count: int, **options: Any) -> Harness:
    """Return a harness with consumers that read their partitions."""
    harness = Harness(**options)
    for number in range(1, count + 1):
        harness.settle(harness.register(number))
    return harness
