"""The log of a consumer of the first design that finds no coordinator."""

from __future__ import annotations

import asyncio

import pytest

from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.messages import BrokerAddress
from partage.proposals.broker_side.settings import PushConsumerSettings, PushCoordinatorSettings
from partage.proposals.machine import Elected
from partage.proposals.sockets.broker_side.codecs import BrokerCodec
from partage.proposals.sockets.broker_side.push_consumer import PushConsumerShell
from partage.proposals.sockets.coordinator_server import CoordinatorServer
from partage.proposals.sockets.record_store import MemoryRecordStore
from polled_conditions import eventually_async

ATTEMPTS = 5


class IdleReader:
    """A reader that reads nothing."""

    def start(self, offsets: dict[TopicPartition, int]) -> None: ...

    def stop(self, partitions: frozenset[TopicPartition] | None) -> None: ...

    def resume(self, partitions: frozenset[TopicPartition]) -> None: ...

    def reset(self, partitions: frozenset[TopicPartition], to: str) -> None: ...

    def positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {}


class CountingShell(PushConsumerShell):
    """A consumer that counts the brokers that it has tried."""

    def __init__(self, port: int, consumer_id: str = "c") -> None:
        super().__init__(
            PushConsumerSettings(
                bootstrap_brokers=(BrokerAddress(id=-1, host="127.0.0.1", port=port),),
                group_id="g",
                consumer_id=consumer_id,
                topic_count='{"t":1}',
                retry_backoff_ms=1,
            ),
            IdleReader(),
        )

    @property
    def attempts(self) -> int:
        return self._consumer._next_broker


def served_coordinator() -> CoordinatorServer:
    return CoordinatorServer(
        PushCoordinator(PushCoordinatorSettings(broker_id=1)),
        BrokerCodec,
        MemoryRecordStore(),
        lambda error: None,
    )


def test_unreachable_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        shell = CountingShell(1)
        shell.start()
        await eventually_async(lambda: shell.attempts > ATTEMPTS)
        shell.stop()

    asyncio.run(play())
    (message,) = caplog.messages
    assert message.startswith("no connection to broker 127.0.0.1:1 of the list: ")


def test_missing_coordinator_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        server = served_coordinator()
        _, port = await server.listen("127.0.0.1", 0)
        shell = CountingShell(port)
        try:
            shell.start()
            await eventually_async(lambda: shell.attempts > ATTEMPTS)
        finally:
            shell.stop()
            await server.close()
        (message,) = caplog.messages
        assert message.startswith(f"broker 127.0.0.1:{port} answers: COORDINATOR_NOT_AVAILABLE")

    asyncio.run(play())


def test_refused_registration_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        server = served_coordinator()
        _, port = await server.listen("127.0.0.1", 0)
        machine = server.machine
        assert isinstance(machine, PushCoordinator)
        machine.brokers = (BrokerAddress(id=1, host="127.0.0.1", port=port),)
        server.handle(Elected(at_ms=server.now_ms(), topics={"t": 1}))
        first, second = CountingShell(port), CountingShell(port)
        try:
            first.start()
            await eventually_async(lambda: machine.consumers)
            second.start()
            await eventually_async(lambda: second.attempts > ATTEMPTS)
        finally:
            first.stop()
            second.stop()
            await server.close()
        assert caplog.messages == [
            "the coordinator refused the registration: DUPLICATE_CONSUMER_ID; "
            "trying the next broker"
        ]

    asyncio.run(play())
