"""The frames of the first design of consumer groups, at a coordinator and at a consumer."""

from __future__ import annotations

from random import Random

from fuzz.corruption import damaged, reframed
from fuzz.targets import WAYS
from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.frames import (
    decode_at_broker,
    decode_at_consumer,
    encode_frame,
)
from partage.proposals.broker_side.invariants import check
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    ThreadOwnership,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

_PARTITIONS = 3
_QUIET = ConnectionId(1)
_NOISY = ConnectionId(2)


class PushFrames:
    """Damaged frames of one consumer: a consumer of another group must not notice them."""

    def try_one(self, rng: Random) -> list[str]:
        coordinator = PushCoordinator(PushCoordinatorSettings())
        coordinator.handle(machine.Elected(at_ms=0, topics={"t": _PARTITIONS}))
        _deliver(coordinator, _QUIET, registration("quiet"))
        _deliver(coordinator, _QUIET, StopFetcherResponse(consumer_id="c"))
        _deliver(coordinator, _QUIET, StartFetcherResponse(consumer_id="c"))
        if rng.random() < 0.5:
            _deliver(coordinator, _NOISY, registration("noisy"))
        outcomes = [self._try(rng, coordinator) for _ in range(WAYS)]
        quiet = coordinator.consumers[_QUIET]
        assert len(quiet.owned) == _PARTITIONS or len(coordinator.groups["quiet"].consumers) > 1
        return outcomes

    def _try(self, rng: Random, coordinator: PushCoordinator) -> str:
        if rng.random() < 0.3:
            return _decode_at_consumer(damaged_frame(rng, _to_consumer(rng)))
        try:
            message = decode_at_broker(damaged_frame(rng, to_broker(rng)))
        except MalformedError:
            return "malformed"
        outcome = _deliver(coordinator, _NOISY, message)
        return "closed" if outcome.closes else "answered" if outcome.sends else "read"


def _deliver(
    coordinator: PushCoordinator, connection: ConnectionId, message: Message
) -> machine.CoordinatorOutcome:
    event = machine.MessageReceived(at_ms=0, connection=connection, message=message, draw=0)
    outcome = coordinator.handle(event)
    check(coordinator)
    for _, sent in outcome.sends:
        encode_frame(sent)
    return outcome


def _decode_at_consumer(frame: bytes) -> str:
    try:
        decode_at_consumer(frame)
    except MalformedError:
        return "malformed"
    return "read"


def damaged_frame(rng: Random, message: Message) -> bytes:
    return reframed(rng, damaged(rng, encode_frame(message)[4:]))


def registration(group_id: str, session_timeout_ms: int = 9_000) -> RegisterConsumerRequest:
    return RegisterConsumerRequest(
        group_id=group_id,
        consumer_id="c",
        topic_count='{"t":2}',
        auto_commit=True,
        auto_offset_rest="largest",
        session_timeout_ms=session_timeout_ms,
    )


def _offsets(rng: Random) -> list[PartitionOffset]:
    return [
        PartitionOffset(topic="t", partition=f"0-{number}", offset=number)
        for number in range(rng.randrange(_PARTITIONS))
    ]


def to_broker(rng: Random) -> Message:
    return rng.choice(
        (
            ClusterMetadataRequest(),
            registration("noisy"),
            PingResponse(consumer_id="c", offset_info=_offsets(rng)),
            StopFetcherResponse(consumer_id="c", offset_info=rng.choice((None, _offsets(rng)))),
            StartFetcherResponse(consumer_id="c"),
        )
    )


def _to_consumer(rng: Random) -> Message:
    return rng.choice(
        (
            PingRequest(consumer_id="c", num_retries=1),
            StopFetcherRequest(consumer_id="c"),
            StartFetcherRequest(
                consumer_id="c",
                ownership_info=[
                    ThreadOwnership(consumer_thread_id="c-0", assigned_parts=_offsets(rng))
                ],
                brokers_info=[BrokerAddress(id=1, host="h", port=9092)],
            ),
        )
    )
