"""A consumer of the first design over sockets."""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

from partage.model.addresses import Address, format_address
from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.consumer import ConsumerState, PushConsumer
from partage.proposals.broker_side.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerResponseReceived,
    ConnectBroker,
    ConnectCoordinator,
    DisconnectBroker,
    OffsetsOutOfRange,
    ResetPositions,
    SendToBroker,
)
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataResponse,
    PushError,
    RegisterConsumerResponse,
)
from partage.proposals.broker_side.settings import PushConsumerSettings
from partage.proposals.machine import Action, Connect, PartitionCountsChanged
from partage.proposals.sockets.broker_side.codecs import BrokerListCodec, ConsumerCodec
from partage.proposals.sockets.member_shell import (
    OutgoingConnection,
    PartitionReader,
    SocketMemberShell,
)
from partage.wire.types import Message

log = logging.getLogger(__name__)


class ResettableReader(PartitionReader, Protocol):
    """A reader that can begin at the end of a partition."""

    def reset(self, partitions: frozenset[TopicPartition], to: str) -> None:
        """Read these partitions too, from the "smallest" or "largest" offset."""


class PushConsumerShell(SocketMemberShell):
    """Runs a `PushConsumer`.

    Args:
        settings: The consumer's settings.
        reader: The reader of its partitions.
    """

    def __init__(self, settings: PushConsumerSettings, reader: ResettableReader) -> None:
        self._consumer = PushConsumer(settings)
        super().__init__(self._consumer, ConsumerCodec, reader)
        self._resettable = reader
        self._broker = OutgoingConnection(
            BrokerListCodec,
            on_connected=lambda: self.handle(BrokerConnected(at_ms=0)),
            on_message=self._on_broker_message,
            on_lost=self._on_broker_lost,
        )
        self._broker_name = ""
        self._logged: set[str] = set()  # problems since the last registration

    @property
    def is_closed(self) -> bool:
        return self._consumer.state is ConsumerState.CLOSED

    async def find_coordinator(self, action: Connect) -> Address:
        assert isinstance(action, ConnectCoordinator), f"unexpected action {action}"
        return Address(action.broker.host, action.broker.port)

    def on_message(self, message: Message) -> None:
        if isinstance(message, RegisterConsumerResponse):
            if message.error_code:
                self._log(f"the coordinator refused the registration: {_name(message.error_code)}")
            else:
                log.info("the coordinator registered the consumer")
                self._logged.clear()
        super().on_message(message)

    def perform(self, action: Action) -> None:
        match action:
            case ConnectBroker(broker=broker):
                self._broker_name = format_address(broker.host, broker.port)
                self._broker.connect(partial(_address, broker))
            case SendToBroker(message=message):
                self._broker.send(message)
            case DisconnectBroker():
                self._broker.close()
            case ResetPositions(partitions=partitions, to=to):
                self._resettable.reset(partitions, to)
            case _:
                super().perform(action)

    def check_stall(self) -> None:
        """Stop reading if the process was stopped for a third of the session timeout.

        A reader calls it before it delivers records: they may have waited during the stall.
        """
        self.handle(PartitionCountsChanged(at_ms=0, topics={}))

    def on_out_of_range(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop the fetchers: the offsets of these partitions are out of range."""
        self.handle(OffsetsOutOfRange(at_ms=0, partitions=partitions))

    def stop(self) -> None:
        super().stop()
        self._broker.close()

    def _on_broker_message(self, message: Message) -> None:
        if isinstance(message, ClusterMetadataResponse) and message.error_code:
            self._log(f"broker {self._broker_name} answers: {_name(message.error_code)}")
        self.handle(BrokerResponseReceived(at_ms=0, message=message))

    def _on_broker_lost(self, reason: str) -> None:
        self._log(f"no connection to broker {self._broker_name} of the list: {reason}")
        self.handle(BrokerDisconnected(at_ms=0))

    def _log(self, problem: str) -> None:
        """Log a problem as an error (section 7, step 1.1), but not with each attempt."""
        if problem not in self._logged:
            self._logged.add(problem)
            log.error("%s; trying the next broker", problem)


async def _address(broker: BrokerAddress) -> Address:
    return Address(broker.host, broker.port)


def _name(error_code: int) -> str:
    try:
        return PushError(error_code).name
    except ValueError:
        return f"error {error_code}"
