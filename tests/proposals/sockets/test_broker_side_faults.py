"""Faulty consumers of the first design over sockets: the error, the close, and the quiet group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.frames import (
    decode_at_consumer,
    decode_response,
    encode_frame,
)
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    PushError,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.machine import Elected
from partage.proposals.sockets.broker_side.codecs import BrokerCodec
from partage.proposals.sockets.coordinator_server import CoordinatorServer, ServerLimits
from partage.proposals.sockets.record_store import MemoryRecordStore
from partage.wire.types import Message

WAIT_S = 30.0
SESSION_MS = 9_000
SESSION_MIN_MS = 1_200
BROKERS = (BrokerAddress(id=1, host="127.0.0.1", port=9292),)


class RawConsumer:
    """A consumer that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: Message) -> None:
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        self._writer.write(frame)

    async def frame(self) -> bytes | None:
        """Return the next frame; None if the connection was closed."""
        try:
            size = await asyncio.wait_for(self._reader.readexactly(4), WAIT_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return size + await self._reader.readexactly(int.from_bytes(size, "big"))

    async def request(self) -> Message | None:
        frame = await self.frame()
        return None if frame is None else decode_at_consumer(frame)

    async def error_of(self, message: Message | bytes) -> PushError:
        """Send a registration, and return the error in its response."""
        if isinstance(message, bytes):
            self.send_frame(message)
        else:
            self.send(message)
        frame = await self.frame()
        assert frame is not None, "closed"
        response = decode_response(frame, RegisterConsumerResponse)
        assert isinstance(response, RegisterConsumerResponse)
        return PushError(response.error_code)

    async def start(
        self, group_id: str, session_timeout_ms: int = SESSION_MS
    ) -> StartFetcherRequest:
        """Register, and answer until the fetchers are started."""
        request = registration(group_id=group_id, session_timeout_ms=session_timeout_ms)
        assert await self.error_of(request) is PushError.NONE
        assert isinstance(await self.request(), StopFetcherRequest)
        self.send(StopFetcherResponse(consumer_id="c", offset_info=[]))
        started = await self.request()
        assert isinstance(started, StartFetcherRequest)
        self.send(StartFetcherResponse(consumer_id="c"))
        return started

    def close(self) -> None:
        self._writer.close()


def registration(**changes: Any) -> RegisterConsumerRequest:
    given: dict[str, Any] = {
        "group_id": "g",
        "consumer_id": "c",
        "topic_count": '{"t":1}',
        "auto_commit": True,
        "auto_offset_rest": "smallest",
        "session_timeout_ms": SESSION_MS,
    }
    return RegisterConsumerRequest(**{**given, **changes})


class Stage:
    """A served coordinator with a quiet consumer, which no fault may disturb."""

    def __init__(self, limits: ServerLimits | None) -> None:
        self.machine = PushCoordinator(
            PushCoordinatorSettings(
                brokers=BROKERS, broker_id=1, session_timeout_min_ms=SESSION_MIN_MS
            )
        )
        self.store = MemoryRecordStore()
        self.errors: list[Exception] = []
        self.server = CoordinatorServer(
            self.machine, BrokerCodec, self.store, self.errors.append, limits=limits
        )
        self.consumers: list[RawConsumer] = []
        self.address = ("", 0)

    async def open(self) -> None:
        self.address = await self.server.listen("127.0.0.1", 0)
        self.server.handle(Elected(at_ms=self.server.now_ms(), topics={"t": 2}))
        self.quiet = await self.connect()
        await self.quiet.start("quiet")

    async def connect(self) -> RawConsumer:
        consumer = RawConsumer(*await asyncio.open_connection(*self.address))
        self.consumers.append(consumer)
        return consumer

    async def check_quiet(self) -> None:
        """The quiet consumer keeps its partitions, and gets nothing but pings."""
        assert not self.errors
        group = self.machine.groups["quiet"]
        (consumer,) = group.consumers.values()
        assert consumer.is_started
        assert len(consumer.owned) == 2
        probe = await self.connect()
        probe.send(ClusterMetadataRequest())
        frame = await probe.frame()
        assert frame is not None
        assert decode_response(frame, ClusterMetadataResponse) == ClusterMetadataResponse(
            coordinator_id=1, brokers_info=list(BROKERS)
        )


def on_stage(play: Callable[[Stage], Awaitable[None]], limits: ServerLimits | None = None) -> None:
    async def run() -> None:
        stage = Stage(limits)
        try:
            await stage.open()
            await play(stage)
            await stage.check_quiet()
        finally:
            await stage.server.close()
            for each in stage.consumers:
                each.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (registration(session_timeout_ms=SESSION_MIN_MS - 1), PushError.INVALID_SESSION_TIMEOUT),
        (registration(group_id="quiet"), PushError.DUPLICATE_CONSUMER_ID),
        (registration(group_id="a/b"), PushError.INVALID_REGISTRATION),
        (registration(topic_count="*1*("), PushError.INVALID_REGISTRATION),
        (registration(auto_offset_rest="middle"), PushError.INVALID_REGISTRATION),
        (b"\x00\x00\x00\x2b\x00\x06" + b"\xff" * 41, PushError.INVALID_REGISTRATION),
    ],
    ids=["session timeout", "duplicate id", "group id", "pattern", "offset reset", "damaged"],
)
def test_refused_registration_leaves_the_close_to_the_consumer(
    request_: Message | bytes, error: PushError
) -> None:
    async def play(stage: Stage) -> None:
        consumer = await stage.connect()
        assert await consumer.error_of(request_) is error
        # The coordinator has not closed the connection, so a valid registration follows on it.
        await consumer.start("g")

    on_stage(play)


def test_damaged_metadata_request_gets_an_error() -> None:
    async def play(stage: Stage) -> None:
        consumer = await stage.connect()
        consumer.send_frame(b"\x00\x00\x00\x03\x00\x05\x00")
        frame = await consumer.frame()
        assert frame is not None
        assert decode_response(frame, ClusterMetadataResponse) == ClusterMetadataResponse(
            error_code=PushError.UNKNOWN, coordinator_id=-1, brokers_info=[]
        )

    on_stage(play)


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x02\x00\x00",
        b"\x00\x00\x00\x02\x7f\xff",
        encode_frame(PingResponse(consumer_id="c")),
        encode_frame(PingRequest(consumer_id="c", num_retries=0)),
        b"\x00\x02\x80\x01" + b"\x00" * 10,
    ],
    ids=[
        "negative size",
        "huge size",
        "empty",
        "half a type",
        "type of Kafka 0.7",
        "unknown type",
        "response without a registration",
        "request of a coordinator",
        "size above that of a registration",
    ],
)
def test_other_damaged_frame_closes_the_connection(frame: bytes) -> None:
    async def play(stage: Stage) -> None:
        consumer = await stage.connect()
        consumer.send_frame(frame)
        assert await consumer.frame() is None

    on_stage(play)


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02\x7f\xff",
        encode_frame(PingResponse(consumer_id="c")),
        b"\x00\x00\x00\x04\x00\x07\x00\x00",
    ],
    ids=["negative size", "unknown type", "response without a request", "short response"],
)
def test_damaged_frame_of_a_consumer_removes_only_it(frame: bytes) -> None:
    async def play(stage: Stage) -> None:
        faulty = await stage.connect()
        await faulty.start("g")
        other = await stage.connect()
        assert await other.error_of(registration(consumer_id="d")) is PushError.NONE
        for each, name in ((faulty, "c"), (other, "d")):
            assert isinstance(await each.request(), StopFetcherRequest)
            each.send(StopFetcherResponse(consumer_id=name, offset_info=[]))
        for each, name in ((faulty, "c"), (other, "d")):
            assert isinstance(await each.request(), StartFetcherRequest)
            each.send(StartFetcherResponse(consumer_id=name))
        faulty.send_frame(frame)
        assert await faulty.frame() is None
        assert isinstance(await other.request(), StopFetcherRequest)
        other.send(StopFetcherResponse(consumer_id="d", offset_info=[]))
        started = await other.request()
        assert isinstance(started, StartFetcherRequest)
        assert sum(len(each.assigned_parts) for each in started.ownership_info) == 2

    on_stage(play)


def test_registered_consumer_is_not_closed_as_idle_between_its_pings() -> None:
    async def play(stage: Stage) -> None:
        idle = await stage.connect()
        assert await idle.frame() is None  # and the quiet consumer keeps its connection

    on_stage(play, ServerLimits(idle_max_s=0.5))


def test_offsets_of_partitions_not_owned_are_not_committed() -> None:
    async def play(stage: Stage) -> None:
        consumer = await stage.connect()
        started = await consumer.start("g", SESSION_MIN_MS)
        assert len(started.ownership_info[0].assigned_parts) == 2
        ping = await consumer.request()
        assert isinstance(ping, PingRequest)
        not_owned = [
            ("t", "1-9", 6),
            ("u", "1-0", 7),
            ("t", "x", 8),
            ("t", "1-1", -2),
        ]
        consumer.send(
            PingResponse(
                consumer_id="c",
                offset_info=[
                    PartitionOffset(topic=topic, partition=partition, offset=offset)
                    for topic, partition, offset in [("t", "1-0", 5), *not_owned]
                ],
            )
        )
        assert isinstance(await consumer.request(), PingRequest)  # the connection stays open
        assert stage.machine.groups["g"].offsets == {("t", 0): 5}

    on_stage(play)
