"""The shell of coordinators: durability, order, bounds and faults of peers."""

from __future__ import annotations

import asyncio
import resource
import socket
from itertools import count

import pytest

from partage.proposals import machine
from partage.proposals.sockets import coordinator_server, frame_connection
from partage.proposals.sockets.coordinator_server import ServerLimits
from partage.wire.types import Message
from polled_conditions import eventually_async
from proposals.sockets.toy_design import Client, Stage, Words, WordsCodec, on_stage


def test_response_waits_until_its_record_is_durable() -> None:
    async def play(stage: Stage) -> None:
        first, second = await stage.client(), await stage.client()
        stage.store.gate.clear()
        first.send("store", "a")
        await eventually_async(lambda: stage.store.writes)
        second.send("echo", "after")
        await eventually_async(lambda: stage.machine.count(machine.MessageReceived) == 2)
        responses = [asyncio.create_task(each.receive()) for each in (first, second)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in responses)
        assert stage.store.records == []
        stage.store.gate.set()
        assert await asyncio.gather(*responses) == [["store", "a"], ["echo", "after"]]
        assert stage.store.records == ["a"]

    on_stage(play)


def test_records_during_a_write_share_the_next_one() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        stage.store.gate.clear()
        for number in range(5):
            client.send("store", str(number))
        await eventually_async(lambda: stage.machine.count(machine.MessageReceived) == 5)
        stage.store.gate.set()
        assert [await client.receive() for _ in range(5)] == [["store", str(n)] for n in range(5)]
        assert stage.store.records == ["0", "1", "2", "3", "4"]
        assert stage.store.writes <= 2

    on_stage(play)


def test_failed_store_is_fatal_and_sends_nothing() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        stage.store.error = OSError("disk full")
        client.send("store", "a")
        client.send("echo")
        await eventually_async(lambda: stage.errors)
        await stage.server.close()
        assert await client.receive() is None
        assert [str(error) for error in stage.errors] == ["disk full"]

    on_stage(play)


def test_failed_machine_is_fatal() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.send("fail")
        client.send("echo")
        await eventually_async(lambda: stage.errors)
        assert stage.machine.count(machine.MessageReceived) == 1

    on_stage(play)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        (1001).to_bytes(4, "big"),
        b"\x00\x00\x00\x02no",
    ],
    ids=["negative size", "size above the maximum", "undecodable"],
)
def test_damaged_frame_closes_only_its_connection(data: bytes) -> None:
    async def play(stage: Stage) -> None:
        good, bad = await stage.client(), await stage.client()
        assert await good.ask("echo", "1") == ["echo", "1"]
        bad.writer.write(data)
        assert await bad.receive() is None
        await eventually_async(lambda: stage.machine.count(machine.ConnectionLost) == 1)
        assert await good.ask("echo", "2") == ["echo", "2"]
        assert stage.server.connection_count == 1

    on_stage(play)


def test_damaged_request_with_an_error_response_keeps_its_connection() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.send_raw(b"!")
        assert await client.receive() == ["damaged"]
        assert await client.ask("echo") == ["echo"]

    on_stage(play)


def test_frames_arrive_in_pieces_and_together() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.writer.transport.set_write_buffer_limits(0)
        frame = WordsCodec().encode(Words(words=["echo", "x"]))
        for byte in frame:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        client.writer.write(frame + frame)
        assert [await client.receive() for _ in range(3)] == 3 * [["echo", "x"]]

    on_stage(play)


def test_connection_is_closed_after_its_last_message() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await client.ask("close", "now") == ["close", "now"]
        assert await client.receive() is None
        assert stage.machine.count(machine.ConnectionLost) == 0  # the machine knows

    on_stage(play)


def test_requests_before_the_end_of_a_connection_are_handled() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        client.send("store", "last")
        client.writer.close()
        await eventually_async(lambda: stage.machine.count(machine.ConnectionLost))
        await stage.server.flush()
        assert stage.store.records == ["last"]

    on_stage(play)


def test_blocked_store_stops_reading_until_it_continues() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        stage.store.gate.clear()
        for number in range(100):
            client.send("store", str(number))
        await eventually_async(lambda: stage.machine.count(machine.MessageReceived) == 11)
        for _ in range(100):
            await asyncio.sleep(0)
        assert stage.machine.count(machine.MessageReceived) == 11
        late = await stage.client()
        late.send("echo")
        for _ in range(100):
            await asyncio.sleep(0)
        assert stage.machine.count(machine.MessageReceived) == 11
        stage.store.gate.set()
        for number in range(100):
            assert await client.receive() == ["store", str(number)]
        assert await late.receive() == ["echo"]

    on_stage(play, ServerLimits(outcomes_max=10))


def test_coordinator_that_may_not_act_sends_nothing_and_fires_no_timer() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await client.ask("echo", "1") == ["echo", "1"]
        stage.may_act = False
        client.send("timer", "1")
        client.send("echo", "2")
        await eventually_async(lambda: stage.machine.count(machine.MessageReceived) == 3)
        response = asyncio.create_task(client.receive())
        await asyncio.wait({response}, timeout=0.05)
        assert not response.done()
        assert stage.machine.count(machine.TimerFired) == 0
        stage.may_act = True
        stage.server.resume()
        assert await response == ["echo", "2"]
        assert await client.receive() == ["fired"]

    on_stage(play)


def test_discarded_effects_are_not_sent_and_all_connections_are_closed() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        stage.store.gate.clear()
        client.send("store", "a")
        await eventually_async(lambda: stage.store.writes)
        stage.server.discard_effects()
        stage.store.gate.set()
        assert await client.receive() is None
        assert stage.store.records == []
        assert stage.machine.count(machine.ConnectionLost) == 0
        later = await stage.client()
        assert await later.ask("store", "b") == ["store", "b"]

    on_stage(play)


def test_timer_fires() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await client.ask("timer", "1") == ["fired"]

    on_stage(play)


def test_connections_above_the_maximum_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def play(stage: Stage) -> None:
        first = await stage.client()
        assert await first.ask("echo") == ["echo"]
        for _ in range(2):
            second = await stage.client()
            assert await second.receive() is None
        (message,) = caplog.messages  # one for all rejected connections
        assert "1 connections are open; raise the limit of file descriptors" in message
        first.writer.close()
        await eventually_async(lambda: stage.server.connection_count == 0)
        third = await stage.client()
        assert await third.ask("echo") == ["echo"]

    on_stage(play, ServerLimits(connections_max=1))


def test_idle_connection_is_closed() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await client.receive() is None
        await eventually_async(lambda: stage.machine.count(machine.ConnectionLost) == 1)

    on_stage(play, ServerLimits(idle_max_s=0.05))


def test_connection_that_waits_for_a_response_is_not_idle() -> None:
    async def play(stage: Stage) -> None:
        waiting, idle = await stage.client(), await stage.client()
        assert await waiting.ask("timer", "300") == ["fired"]
        assert await idle.receive() is None

    on_stage(play, ServerLimits(idle_max_s=0.05), codec=WaitingCodec)


def test_lost_machine_of_a_peer_is_noticed_by_the_system() -> None:
    """A machine that was lost closes no connection."""

    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await client.ask("echo") == ["echo"]
        (connection,) = stage.server._connection_ids
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            values = [sock.getsockopt(socket.IPPROTO_TCP, each) for each in options]
            assert values[0] + values[1] * values[2] == 30
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000

    on_stage(play)


def test_listening_raises_the_limit_of_file_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))

    async def play(stage: Stage) -> None:
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])

    try:
        on_stage(play)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class WaitingCodec(WordsCodec):
    """A codec that knows whether its last request has a response."""

    _is_open = False

    def encode(self, message: Message) -> bytes:
        self._is_open = False
        return super().encode(message)

    def decode(self, frame: bytes) -> Message:
        self._is_open = True
        return super().decode(frame)

    @property
    def has_open_request(self) -> bool:
        return self._is_open


class LargeCodec(WordsCodec):
    """A codec with frames of up to 1 MB."""

    frame_bytes_max = 1_000_000


def large_frame(size: int) -> bytes:
    return LargeCodec().encode(Words(words=["count", "x" * size]))


class TestMemory:
    """The memory of large frames suffices for one of the maximum size."""

    def test_second_large_frame_waits_until_the_first_is_complete(self) -> None:
        async def play(stage: Stage) -> None:
            first, second, small = [await stage.client() for _ in range(3)]
            frame = large_frame(900_000)
            first.writer.write(frame[:300_000])
            await eventually_async(lambda: stage.server._pool.available_bytes < 200_000)
            second.writer.write(frame)
            await eventually_async(lambda: stage.server._pool.has_waiters)
            assert await small.ask("echo") == ["echo"]
            assert stage.machine.count(machine.MessageReceived) == 1
            first.writer.write(frame[300_000:])
            assert await first.receive() == ["900000"]
            assert await second.receive() == ["900000"]
            assert stage.server._pool.available_bytes == 1_000_000

        on_stage(play, LARGE_LIMITS, codec=LargeCodec)

    def test_lost_connection_returns_its_memory(self) -> None:
        async def play(stage: Stage) -> None:
            first, second, third = [await stage.client() for _ in range(3)]
            frame = large_frame(900_000)
            first.writer.write(frame[:300_000])
            await eventually_async(lambda: stage.server._pool.available_bytes < 200_000)
            second.writer.write(frame[:300_000])
            third.writer.write(frame)
            await eventually_async(lambda: len(stage.server._pool._waiting) == 2)
            second.writer.transport.abort()  # it waits
            first.writer.transport.abort()  # it has memory
            assert await third.receive() == ["900000"]
            assert stage.server._pool.available_bytes == 1_000_000

        on_stage(play, LARGE_LIMITS, codec=LargeCodec)

    def test_frame_without_progress_is_dropped_if_others_wait(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(coordinator_server, "_STALLED_MAX_S", 0.1)

        async def play(stage: Stage) -> None:
            first, second = await stage.client(), await stage.client()
            frame = large_frame(900_000)
            first.writer.write(frame[:300_000])
            await eventually_async(lambda: stage.server._pool.available_bytes < 200_000)
            second.writer.write(frame)
            assert await second.receive() == ["900000"]
            assert await first.receive() is None

        on_stage(play, LARGE_LIMITS, codec=LargeCodec)


LARGE_LIMITS = ServerLimits(frames_bytes_max=1_000_000)


class TestSlowPeers:
    """A peer does not read its responses, which exceed the buffers of the system."""

    def test_further_responses_wait_until_the_peer_reads(self) -> None:
        async def play(stage: Stage) -> None:
            good, slow = await stage.client(), await stage.client()
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send("repeat", "20000")
            await eventually_async(lambda: stage.server._unsent_bytes >= 200_000)
            assert stage.server._unsent_bytes < 300_000
            good.send("echo")
            await eventually_async(lambda: stage.machine.count(machine.MessageReceived) == 2)
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            response = WordsCodec().encode(Words(words=["x" * 900]))
            assert await slow.reader.readexactly(20_000 * len(response)) == 20_000 * response
            assert await good.receive() == ["echo"]
            await eventually_async(lambda: stage.server._unsent_bytes == 0)

        on_stage(play, UNSENT_LIMITS)

    def test_peer_that_reads_nothing_is_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(coordinator_server, "_STALLED_MAX_S", 0.1)

        async def play(stage: Stage) -> None:
            good, slow = await stage.client(), await stage.client()
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send("repeat", "20000")
            await eventually_async(lambda: stage.server._unsent_bytes >= 200_000)
            assert await good.ask("echo") == ["echo"]
            assert stage.server.connection_count == 1
            assert stage.server._unsent_bytes == 0

        on_stage(play, UNSENT_LIMITS)


UNSENT_LIMITS = ServerLimits(unsent_bytes_max=200_000)


def test_peer_that_does_not_read_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_connection, "WRITE_BYTES_MAX", 100_000)

    async def play(stage: Stage) -> None:
        good, slow = await stage.client(), await stage.client()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.send("repeat", "20000")
        await eventually_async(lambda: stage.machine.count(machine.ConnectionLost) == 1)
        assert await good.ask("echo") == ["echo"]

    on_stage(play)


def test_message_that_does_not_fit_its_frame_closes_the_connection() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        assert await client.ask("huge") is None
        await eventually_async(lambda: stage.machine.count(machine.ConnectionLost) == 1)

    on_stage(play)


def test_close_ends_while_clients_keep_storing() -> None:
    async def play(stage: Stage) -> None:
        stage.store.delay_turns = 20
        clients = [await stage.client() for _ in range(5)]

        async def store_forever(client: Client) -> None:
            while await client.ask("store", "x") is not None:
                pass

        storing = [asyncio.create_task(store_forever(each)) for each in clients]
        await eventually_async(lambda: len(stage.store.records) > 10)
        await asyncio.wait_for(stage.server.close(), 10)
        await asyncio.gather(*storing)

    on_stage(play)


def test_flush_waits_for_the_records_so_far_only() -> None:
    async def play(stage: Stage) -> None:
        stage.store.delay_turns = 20
        client = await stage.client()

        async def store_forever() -> None:
            for number in count():
                if await client.ask("store", str(number)) is None:
                    return

        storing = asyncio.create_task(store_forever())
        await eventually_async(lambda: stage.store.records)
        await asyncio.wait_for(stage.server.flush(), 10)
        await stage.server.close()
        await storing

    on_stage(play)


def test_close_stores_what_was_received() -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client()
        stage.store.gate.clear()
        client.send("store", "a")
        client.send("store", "b")
        await eventually_async(lambda: stage.machine.count(machine.MessageReceived) == 2)
        closing = asyncio.create_task(stage.server.close())
        await asyncio.sleep(0)
        stage.store.gate.set()
        await closing
        assert stage.store.records == ["a", "b"]
        assert await client.receive() == ["store", "a"]
        assert await client.receive() == ["store", "b"]
        assert await client.receive() is None

    on_stage(play)
