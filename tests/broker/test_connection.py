"""One connection: the order of responses, and how far a client may be ahead of them."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from contextlib import ExitStack

import msgspec
import pytest

from partage.broker.clock import Clock
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.server import Server
from partage.model.settings import ConnectionLimits
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.metadata import METADATA, MetadataRequest
from partage.wire.apis.produce import PRODUCE
from partage.wire.frames import encode_request_frame
from polled_conditions import eventually, eventually_async

from .broker_command import running_broker
from .group_requests import heartbeat_request, join, join_and_sync, join_request
from .raw_client import RawClient
from .requests import (
    LAST_VERSION_BY_NAME,
    batch,
    content,
    create,
    fetch,
    fetch_request,
    fetch_results,
    metadata,
    offset_range,
    produce,
    produce_request,
    produce_result,
    values,
)


@pytest.fixture
def other(broker):
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def test_heartbeat_waits_behind_parked_join(raw, other):
    """Its response must not be for the generation that the client wants to leave."""
    mine = join_and_sync(raw, "g")
    (theirs,) = [other.request(JOIN_GROUP, join_request("g"))]
    # parked until the first member rejoins
    other.send(JOIN_GROUP, join_request("g", theirs.member_id))
    other.send(HEARTBEAT, heartbeat_request("g", theirs))
    other.send(METADATA, MetadataRequest(topics=None))
    assert other.is_silent()
    join(raw, "g", mine.member_id)
    joined = other.receive()
    assert (joined.error_code, joined.generation_id) == (0, 2)
    assert other.receive().error_code == 22  # the heartbeat had no generation
    assert other.receive().topics


def test_overlapping_produces_are_answered_in_order(raw):
    create(raw, "t", 2)
    for n in range(200):
        raw.send(PRODUCE, produce_request("t", batch(b"%d" % n), partition=n % 2))
    offsets = [produce_result(raw.receive()).base_offset for _ in range(200)]
    assert offsets == [n // 2 for n in range(200)]


def test_failed_produce_is_answered_in_order(raw):
    create(raw, "t")
    raw.send(PRODUCE, produce_request("t", batch(b"a")))
    raw.send(PRODUCE, produce_request("nothing", batch(b"b")))
    raw.send(PRODUCE, produce_request("t", batch(b"c")))
    assert [produce_result(raw.receive()).error_code for _ in range(3)] == [0, 3, 0]


def test_produce_without_acks_keeps_order(raw):
    create(raw, "t")
    for n in range(30):
        raw.send(PRODUCE, produce_request("t", batch(b"x"), acks=0), is_answered=False)
        raw.send(PRODUCE, produce_request("t", batch(b"x"), acks=1))
        if n % 3 == 0:
            raw.send(API_VERSIONS, ApiVersionsRequest(), 0)
    answers = [raw.receive() for _ in range(40)]
    offsets = [produce_result(a).base_offset for a in answers if hasattr(a, "responses")]
    assert offsets == list(range(1, 60, 2))


def test_pipelined_requests_of_different_apis(raw):
    create(raw, "t")
    for _ in range(100):
        raw.send(PRODUCE, produce_request("t", batch(b"x")))
        raw.send(FETCH, fetch_request("t", max_bytes=1), LAST_VERSION_BY_NAME)
        raw.send(METADATA, MetadataRequest(topics=None))
    for n in range(100):
        assert produce_result(raw.receive()).base_offset == n
        (result,) = fetch_results(raw.receive())
        assert result.high_watermark == n + 1
        assert raw.receive().topics


def test_request_byte_by_byte(raw, other):
    create(other, "t")
    frame = raw.frame(PRODUCE, produce_request("t", batch(b"slow")))
    for at in range(len(frame)):
        raw.send_bytes(frame[at : at + 1])
        if at % 50 == 0:
            assert metadata(other, "t").topics
    raw.receive_frame()
    assert offset_range(other, "t") == (0, 1)


@pytest.mark.parametrize("step", [1, 7, 63, 1000, 65_536, 300_000])
def test_requests_split_anywhere(raw, step):
    """Frames of all sizes, in pieces that end within lengths, headers and records."""
    create(raw, "t")
    sizes = (10, 100, 65_400, 65_536, 70_000, 10) if step > 50 else (10, 100, 10)
    frames = b"".join(
        raw.frame(PRODUCE, produce_request("t", batch(bytes([65 + n]) * size)))
        for n, size in enumerate(sizes)
    )
    for at in range(0, len(frames), step):
        raw.send_bytes(frames[at : at + step])
    for _ in sizes:
        raw.receive_frame()
    got = values(*fetch(raw, "t"))
    assert got == [bytes([65 + n]) * size for n, size in enumerate(sizes)]


def test_pipelining_client_is_paused_without_loss(raw):
    """Thousands of requests behind one that waits: the broker pauses reading, then continues."""
    create(raw, "t")
    raw.send(FETCH, fetch_request("t", max_wait_ms=700, min_bytes=1), LAST_VERSION_BY_NAME)
    count = 3000
    frames = [raw.frame(METADATA, MetadataRequest(topics=[])) for _ in range(count)]
    sender = threading.Thread(target=raw.send_bytes, args=(b"".join(frames),))
    sender.start()
    assert content(*fetch_results(raw.receive())) == b""
    ids = [struct.unpack_from(">i", raw.receive_frame())[0] for _ in range(count)]
    sender.join()
    assert ids == [int.from_bytes(frame[8:12], "big") for frame in frames]


def test_produce_overlap_is_limited(broker, raw, other):
    create(raw, "t")
    broker.run(hold_writer(broker))
    for n in range(150):
        raw.send(PRODUCE, produce_request("t", batch(b"%d" % n)))
    metadata(other, "t")  # the broker has read them by now
    eventually(lambda: broker.run(end_offset(broker)) >= 100)
    assert raw.is_silent()
    assert broker.run(end_offset(broker)) == 100
    broker.run(release_writer(broker))
    assert [produce_result(raw.receive()).base_offset for _ in range(150)] == list(range(150))


async def hold_writer(broker):
    """Block the idle log writer: all later writes stay in progress.

    A group that is being written would end the block when it finishes.
    """
    writer = broker.broker._writer
    while writer._is_running:
        await writer.drain()
    writer._is_running = True


async def release_writer(broker):
    broker.broker._writer._start_group()


async def end_offset(broker):
    return broker.broker.log_manager.partition("t", 0).log.end_offset


def test_client_that_does_not_read_is_not_served(broker, other):
    """Otherwise a client could make the broker keep responses of any size in memory."""
    create(other, "t")
    for _ in range(16):
        assert not produce(other, "t", batch(b"x" * 450_000)).error_code
    server = broker.broker.server
    with RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096) as lazy:
        for _ in range(200):  # requests 2.8 GB
            lazy.send(FETCH, fetch_request("t"), LAST_VERSION_BY_NAME)
        eventually(lambda: server.resources.unsent_bytes)
        assert produce(other, "t", batch(b"others go on")).error_code == 0
        assert 0 < server.resources.unsent_bytes < 40_000_000
        first = fetch_results(lazy.receive())
        assert len(content(*first)) > 14_000_000
    eventually(lambda: server.resources.unsent_bytes == 0)


def test_unsent_bytes_reduce_fetch_size(broker, raw):
    """Otherwise many slow readers together would exceed the broker's limit."""
    server, limit = broker.broker.server, 12_000_000
    server.resources.limits = msgspec.structs.replace(
        server.resources.limits, responses_bytes_max=limit
    )
    largest = batch(b"x" * 450_000)

    def is_reduced():
        free = max(limit - server.resources.unsent_bytes, len(largest))
        (result,) = fetch(raw, "t")
        assert len(content(result)) >= 64 * 1024  # every client makes progress
        return len(content(result)) <= free

    create(raw, "t")
    for _ in range(16):
        assert not produce(raw, "t", largest).error_code
    with ExitStack() as stack:
        for _ in range(8):
            lazy = stack.enter_context(
                RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096)
            )
            lazy.send(FETCH, fetch_request("t"), LAST_VERSION_BY_NAME)
        # the system's socket buffers hold the rest
        eventually(lambda: server.resources.unsent_bytes > limit // 3)
        # At the limit, each reader gets one batch.
        assert server.resources.unsent_bytes <= limit + 8 * len(largest)
        eventually(is_reduced)


@pytest.mark.partage_broker({"connections.max.idle.ms": "300"})
def test_idle_connection_is_closed_waiting_is_kept(broker):
    with (
        RawClient(broker.bootstrap_servers) as idle,
        RawClient(broker.bootstrap_servers) as waiting,
    ):
        create(waiting, "t")
        waiting.send(FETCH, fetch_request("t", max_wait_ms=1500, min_bytes=1), LAST_VERSION_BY_NAME)
        assert idle.is_closed()
        assert fetch_results(waiting.receive())


def test_half_closed_connection_gets_responses(raw):
    """Half-closed connection: earlier requests are answered."""
    create(raw, "t")
    raw.send(METADATA, MetadataRequest(topics=None))
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.receive().topics


def test_failed_large_request_releases_memory(broker, raw, caplog):
    def failing(inbound):
        raise RuntimeError("a fault of ours")

    server = broker.broker.server
    server.resources.handlers[PRODUCE.key] = failing
    free = server.resources.memory_pool.available_bytes
    raw.send(PRODUCE, produce_request("t", batch(bytes(100_000))))
    assert raw.is_closed()
    assert server.resources.memory_pool.available_bytes == free
    caplog.clear()


def test_server_closes_although_listener_of_lost_connection_fails() -> None:
    """The server waits for its connections, so each lost one must be removed."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        failures: list[str] = []
        loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        server = Server(ConnectionLimits(), Clock())
        address = await server.listen("127.0.0.1", 0)
        with socket.create_connection(address):
            await eventually_async(lambda: server.connections)
            server.connections[0].on_lost = failing_listener
        await eventually_async(lambda: failures)
        assert failures == ["a fault of ours"]
        assert server.connections == []
        await asyncio.wait_for(server.close(), 10)

    def failing_listener() -> None:
        raise RuntimeError("a fault of ours")

    asyncio.run(play())


class SetClock(Clock):
    """A clock that a test sets."""

    ms = 1_000

    def now_ms(self) -> int:
        return self.ms


def test_request_that_waited_has_time_of_its_start() -> None:
    """A member that waited for a response must not lose the time that the broker took for it."""

    async def play() -> None:
        clock, handled = SetClock(), list[InboundRequest]()
        server = Server(ConnectionLimits(), clock)
        address = await server.listen("127.0.0.1", 0)
        server.serve({HEARTBEAT.key: handled.append})
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        frames = [
            b"".join(
                encode_request_frame(
                    HEARTBEAT, 4, number, "client", HEARTBEAT.encode_request(4, request)
                )
            )
            for number in (1, 2)
        ]
        with socket.create_connection(address) as client:
            client.sendall(b"".join(frames))
            await eventually_async(lambda: handled)
            clock.ms = 9_000
            handled[0].respond(HeartbeatResponse(error_code=0))
            await eventually_async(lambda: len(handled) == 2)
        assert [each.at_ms for each in handled] == [1_000, 9_000]
        await asyncio.wait_for(server.close(), 10)

    asyncio.run(play())


def test_disconnect_during_large_request_releases_memory(broker, raw):
    create(raw, "t")
    for cut in (1, 3, 4, 20, 70_000):
        with RawClient(broker.bootstrap_servers) as leaving:
            frame = leaving.frame(PRODUCE, produce_request("t", batch(b"x" * 100_000)))
            leaving.send_bytes(frame[:cut])
            leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert offset_range(raw, "t") == (0, 0)
    pool = broker.broker.server.resources.memory_pool
    # The broker may serve `raw` before it notices that the last connection is reset.
    eventually(lambda: pool.available_bytes == 256 << 20, lambda: pool.available_bytes)


@pytest.mark.partage_broker({"max.connections": "5"})
def test_connection_limit_max_connections(broker, raw, caplog):
    others = [RawClient(broker.bootstrap_servers) for _ in range(4)]
    for one in others:
        assert metadata(one).brokers
    for _ in range(3):
        with RawClient(broker.bootstrap_servers) as beyond:
            assert beyond.is_closed()
    (line,) = [r for r in caplog.records if "rejected a connection" in r.getMessage()]
    assert "max.connections=5" in line.getMessage()
    assert metadata(raw).brokers
    others.pop().close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with RawClient(broker.bootstrap_servers) as again:
            again.send(METADATA, MetadataRequest(topics=[]))
            if not again.is_closed(0.2):
                break
    else:
        pytest.fail("no connection is accepted after another one was closed")
    for one in others:
        one.close()


def test_connection_limit_file_descriptors(tmp_path):
    """The error names the limit; clients that are already connected notice nothing."""
    with running_broker(tmp_path, descriptors=120) as process:
        clients = []
        for _ in range(60):
            client = RawClient(process.servers)
            assert metadata(client).brokers
            clients.append(client)
        for _ in range(100):
            with RawClient(process.servers) as beyond:
                assert beyond.is_closed()
        create(clients[0], "t", 50)
        for n, client in enumerate(clients):
            assert produce(client, "t", batch(b"x"), partition=n % 50).error_code == 0
            client.close()
    story = process.log_text()
    (line,) = [text for text in story.splitlines() if "rejected a connection" in text]
    assert "60 connections are open" in line
    assert "120 file descriptors" in line
    assert "ulimit -n" in line
