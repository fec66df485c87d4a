"""The designs with JoinGroup over sockets, in one process."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from partage.assignors import RoundRobin
from partage.assignors.group_view import Member
from partage.client.addresses import parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.frames import MemberFrames, ProtocolVersions
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import Event
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.messages import (
    JOIN_GROUP,
    JoinGroupProtocol,
    JoinGroupRequest,
)
from partage.proposals.simulation.message_sizes import SHARED_APIS
from partage.proposals.single_assignor.member import (
    ComputeShares,
    ShareComputationFailed,
    SharesComputed,
    SingleAssignorMember,
    SingleAssignorOptions,
)
from partage.proposals.sockets.coordinator_server import CoordinatorServer
from partage.proposals.sockets.frame_connection import WRITE_BYTES_MAX
from partage.proposals.sockets.join_group.codecs import CoordinatorCodec, MemberCodec
from partage.proposals.sockets.join_group.member import JoinGroupMemberShell, TopicMetadataSource
from partage.proposals.sockets.record_store import MemoryRecordStore
from partage.testing import ThreadedBroker
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.types import Message

VERSIONS = ProtocolVersions((*SHARED_APIS, (JOIN_GROUP, 0)))
JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupProtocol(name="range", metadata=b"m")],
)


class Client:
    """A client that sends frames of its choice."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.frames = MemberFrames(VERSIONS)
        self._reader = reader

    async def receive(self) -> bytes | None:
        """Return the next frame, or None if the coordinator has closed the connection."""
        try:
            head = await self._reader.readexactly(4)
            return head + await self._reader.readexactly(struct.unpack(">i", head)[0])
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    def encode(self, message: Message) -> bytes:
        return b"".join(self.frames.encode(message))

    async def ask(self, message: Message) -> Any:
        self.writer.write(self.encode(message))
        frame = await self.receive()
        assert frame is not None
        return self.frames.decode(frame)


@asynccontextmanager
async def coordinator() -> AsyncIterator[tuple[Callable[[], Awaitable[Client]], list[Exception]]]:
    """Run a coordinator; yield what connects a client, and the errors that ended it."""
    errors: list[Exception] = []
    server = CoordinatorServer(
        MultiAssignorCoordinator(CoordinatorSettings(initial_rebalance_delay_ms=0)),
        lambda: CoordinatorCodec(VERSIONS),
        MemoryRecordStore(),
        errors.append,
    )
    address = await server.listen("127.0.0.1", 0)
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection(*address)))
        return clients[-1]

    try:
        yield connect, errors
    finally:
        for client in clients:
            client.writer.close()
        await server.close()


def _reframed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@pytest.mark.parametrize(
    "damage",
    [
        lambda frame: frame[:4] + b"\xff\xff" + frame[6:],  # an unknown API key
        lambda frame: frame[:6] + b"\x00\x09" + frame[8:],  # an unknown version
        lambda frame: _reframed(frame[4:-2]),
        lambda frame: _reframed(frame[4:] + b"\x00"),
        lambda frame: b"\xff\xff\xff\xff" + frame[4:],
        lambda frame: b"\x7f\xff\xff\xff" + frame[4:],
        lambda frame: frame + frame,  # a second request before the response to the first
    ],
    ids=["api key", "version", "short", "long", "negative", "huge", "pipelined"],
)
def test_damaged_frame_closes_its_connection_and_disturbs_no_member(
    damage: Callable[[bytes], bytes],
) -> None:
    async def play() -> None:
        async with coordinator() as (connect, errors):
            good, bad, parked = await connect(), await connect(), await connect()
            joined = await good.ask(JOIN)
            parked.writer.write(parked.encode(JOIN))  # it waits for the first member
            bad.writer.write(damage(bad.encode(JOIN)))
            assert await bad.receive() is None
            heartbeat = HeartbeatRequest(
                group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
            )
            assert await good.ask(heartbeat) == HeartbeatResponse(error_code=27)
            assert errors == []

    asyncio.run(play())


def test_response_above_the_write_limit_reaches_a_member_that_reads() -> None:
    async def play() -> None:
        async with coordinator() as (connect, _):
            client = await connect()
            metadata = bytes(WRITE_BYTES_MAX + (8 << 20))
            request = msgspec.structs.replace(
                JOIN, protocols=[JoinGroupProtocol(name="range", metadata=metadata)]
            )
            joined = await client.ask(request)
            assert joined.members[0].metadata == metadata

    asyncio.run(play())


class _RecordingShell(JoinGroupMemberShell):
    """Keeps the events that actions lead to."""

    def __init__(self, **options: Any) -> None:
        machine = SingleAssignorMember(
            DesignMemberSettings(group_id="g"),
            frozenset({"t"}),
            SingleAssignorOptions(assignor=RoundRobin()),
        )
        super().__init__(
            machine,
            lambda: MemberCodec(VERSIONS),
            options.pop("reader", None),
            coordinator=options.pop("coordinator", None),
            metadata=options.pop("metadata", None),
            metadata_refresh_ms=1_000,
        )
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    def handle(self, event: Event) -> None:
        self.events.put_nowait(event)


class _FailingAssignor(RoundRobin):
    def assign(self, members: object, topics: object) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("assignor", "event"),
    [(RoundRobin(), SharesComputed), (_FailingAssignor(), ShareComputationFailed)],
)
def test_assignor_runs_outside_of_the_member(assignor: RoundRobin, event: type[Event]) -> None:
    async def play() -> None:
        shell = _RecordingShell()
        members = (Member(member_id="m", topics=("t",)),)
        shell.perform(ComputeShares(number=3, assignor=assignor, members=members, topics={"t": 2}))
        found = await shell.events.get()
        assert type(found) is event
        assert found.number == 3  # type: ignore[attr-defined]
        if isinstance(found, SharesComputed):
            assert found.shares == {"m": {TopicPartition("t", 0), TopicPartition("t", 1)}}

    asyncio.run(play())


@pytest.mark.parametrize("is_from_coordinator", [False, True])
def test_topics_are_fetched_from_any_broker_or_the_first(
    partage_broker: ThreadedBroker, is_from_coordinator: bool
) -> None:
    partage_broker.create_topic("t", 3)
    partage_broker.create_topic("u", 1)

    async def play() -> dict[str, int]:
        async with Cluster(partage_broker.bootstrap_servers) as cluster:
            source = TopicMetadataSource(
                cluster, parse_bootstrap_servers(partage_broker.bootstrap_servers)[0]
            )
            return await source.fetch(is_from_coordinator=is_from_coordinator)

    assert asyncio.run(play()) == {"t": 3, "u": 1}
