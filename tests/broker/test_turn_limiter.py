"""Requests of a rebalance that arrive at once: their order, and the requests that overtake them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.broker.clock import Clock
from partage.broker.net.connection import Connection
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.server import Server
from partage.broker.net.turn_limiter import TurnLimiter, is_limited
from partage.model.settings import ConnectionLimits
from partage.wire.api import AnyApi
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse
from partage.wire.apis.produce import PRODUCE
from partage.wire.apis.sync_group import SYNC_GROUP
from partage.wire.frames import encode_request_frame

LIMIT = 64
MEMBERS = 3 * LIMIT

JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[],
)
HEARTBEATS = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
LEAVE = LeaveGroupRequest(group_id="g", members=[])


class FakeTransport(asyncio.Transport):
    """Collects the correlation ids of responses, and whether reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: list[int] = []
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            self.answered.append(int.from_bytes(data[4:8], "big"))
            data = data[end:]

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        """Do nothing; the test calls `connection_lost`."""


class Client:
    """A connection of a server, without a socket."""

    def __init__(self, server: Server) -> None:
        self.transport = FakeTransport()
        self.connection: Connection = server.make_connection()
        self.connection.connection_made(self.transport)

    def send(self, *requests: tuple[AnyApi, int, Any, int]) -> None:
        """Let requests arrive: API, version, message and correlation id of each."""
        frames = b"".join(
            part
            for api, version, message, correlation_id in requests
            for part in encode_request_frame(
                api, version, correlation_id, "c", api.encode_request(version, message)
            )
        )
        self.connection.get_buffer(-1)[: len(frames)] = frames
        self.connection.buffer_updated(len(frames))


class ServerFixture:
    """A server whose handlers answer at once, and note what they handle."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, int]] = []
        self.server = Server(ConnectionLimits(), Clock())
        answers = {
            JOIN_GROUP.key: JoinGroupResponse(
                error_code=0, protocol_name="p", leader="m", member_id="m", members=[]
            ),
            HEARTBEAT.key: HeartbeatResponse(error_code=0),
            LEAVE_GROUP.key: LeaveGroupResponse(error_code=0),
        }

        def handler_of(answer: Any) -> Callable[[InboundRequest], None]:
            def handle(inbound: InboundRequest) -> None:
                self.handled.append((inbound.api.name, inbound.correlation_id))
                inbound.respond(answer)

            return handle

        self.server.serve({key: handler_of(answer) for key, answer in answers.items()})

    @property
    def turns(self) -> TurnLimiter:
        return self.server.resources.turns

    def joins(self) -> list[int]:
        return [correlation_id for api, correlation_id in self.handled if api == "JoinGroup"]

    def join_at_once(self, count: int = MEMBERS) -> list[Client]:
        """Let a JoinGroup of each of many members arrive in one turn of the loop."""
        clients = [Client(self.server) for _ in range(count)]
        for number, client in enumerate(clients):
            client.send((JOIN_GROUP, 9, JOIN, number))
        return clients


async def turns_of_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(scenario: Callable[[ServerFixture], Coroutine[None, None, None]]) -> None:
    async def play() -> None:
        await scenario(ServerFixture())

    asyncio.run(play())


def test_foreign_request_overtakes_joins_beyond_the_limit() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        fixture.join_at_once()
        Client(fixture.server).send((HEARTBEAT, 4, HEARTBEATS, 1_000))
        assert fixture.joins() == list(range(LIMIT))
        assert fixture.handled[-1] == ("Heartbeat", 1_000)

    run(scenario)


def test_joins_beyond_the_limit_are_handled_in_order() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        clients = fixture.join_at_once()
        for turn in range(2, 4):
            await asyncio.sleep(0)
            assert fixture.joins() == list(range(turn * LIMIT))
        assert [client.transport.answered for client in clients] == [[n] for n in range(MEMBERS)]

    run(scenario)


def test_later_join_does_not_overtake_waiting_ones() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        fixture.join_at_once(LIMIT + 2)
        Client(fixture.server).send((LEAVE_GROUP, 5, LEAVE, LIMIT + 2))
        assert len(fixture.handled) == LIMIT
        await asyncio.sleep(0)
        assert [number for _, number in fixture.handled] == list(range(LIMIT + 3))

    run(scenario)


def test_requests_of_one_connection_keep_their_order() -> None:
    """A heartbeat behind a join that waits for its turn waits too, and pauses reading."""

    async def scenario(fixture: ServerFixture) -> None:
        *_, last = fixture.join_at_once()
        last.send((HEARTBEAT, 4, HEARTBEATS, 1_000), (JOIN_GROUP, 9, JOIN, 1_001))
        assert last.transport.is_paused
        assert fixture.handled[-1] == ("JoinGroup", LIMIT - 1)
        await turns_of_loop(4)
        assert last.transport.answered == [MEMBERS - 1, 1_000, 1_001]
        assert not last.transport.is_paused

    run(scenario)


def test_waiting_join_does_not_pause_reading() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        clients = fixture.join_at_once()
        assert not any(client.transport.is_paused for client in clients)

    run(scenario)


def test_lost_connection_takes_no_turn() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        clients = fixture.join_at_once()
        clients[LIMIT].connection.connection_lost(None)
        await asyncio.sleep(0)
        assert LIMIT not in fixture.joins()
        assert fixture.joins()[LIMIT:] == list(range(LIMIT + 1, 2 * LIMIT))

    run(scenario)


def test_slow_reader_takes_its_turn_when_it_reads_again() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        clients = fixture.join_at_once()
        slow = clients[LIMIT]
        slow.connection.pause_writing()
        await turns_of_loop(3)
        assert len(fixture.joins()) == MEMBERS - 1
        slow.connection.resume_writing()
        assert fixture.joins()[-1] == LIMIT

    run(scenario)


def test_quiet_turn_restores_the_whole_limit() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        fixture.join_at_once(LIMIT)
        await asyncio.sleep(0)
        fixture.join_at_once(LIMIT + 1)
        assert len(fixture.joins()) == 2 * LIMIT

    run(scenario)


def test_call_after_waiting_follows_the_waiting_requests() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        counts: list[int] = []
        fixture.join_at_once(LIMIT)
        fixture.turns.call_after_waiting(lambda: counts.append(len(fixture.handled)))
        assert counts == [LIMIT], "no request waits"
        fixture.join_at_once(LIMIT)
        fixture.turns.call_after_waiting(lambda: counts.append(len(fixture.handled)))
        assert counts == [LIMIT]
        await turns_of_loop(4)
        assert counts == [LIMIT, 2 * LIMIT]

    run(scenario)


def test_failed_turn_does_not_stop_later_ones() -> None:
    async def scenario(fixture: ServerFixture) -> None:
        failures: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        fixture.join_at_once(LIMIT)

        def fail() -> None:
            raise RuntimeError("a fault of ours")

        assert not fixture.turns.take_turn(fail)
        fixture.join_at_once(1)
        await turns_of_loop(4)
        assert failures == ["a fault of ours"]
        assert len(fixture.joins()) == LIMIT + 1

    run(scenario)


STEPS = ("join", "join", "heartbeat", "leave", "pause", "resume", "lose", "burst", "turn")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=40))
def test_each_request_is_answered_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """Clients that stop reading, disconnect, or send ahead, while the limit is exhausted or not."""
    requests: dict[str, tuple[AnyApi, int, Any]] = {
        "join": (JOIN_GROUP, 9, JOIN),
        "heartbeat": (HEARTBEAT, 4, HEARTBEATS),
        "leave": (LEAVE_GROUP, 5, LEAVE),
    }

    async def scenario(fixture: ServerFixture) -> None:
        clients = [Client(fixture.server) for _ in range(4)]
        sent: list[list[int]] = [[] for _ in clients]
        lost = set[int]()
        for number, (step, at) in enumerate(steps):
            client = clients[at].connection
            if step == "burst":
                fixture.join_at_once(LIMIT)
            elif step == "turn":
                await asyncio.sleep(0)
            elif at not in lost:
                if step == "pause":
                    client.pause_writing()
                elif step == "resume":
                    client.resume_writing()
                elif step == "lose":
                    client.connection_lost(None)
                    lost.add(at)
                else:
                    clients[at].send((*requests[step], number))
                    sent[at].append(number)
        for at in {*range(4)} - lost:
            clients[at].connection.resume_writing()
        await turns_of_loop(2 * len(steps) + 4)
        for at in {*range(4)} - lost:
            assert clients[at].transport.answered == sent[at]
            assert not clients[at].transport.is_paused
        for at in lost:
            answered = clients[at].transport.answered
            assert answered == sent[at][: len(answered)]

    run(scenario)


@pytest.mark.parametrize(
    ("api", "is_in_turns"),
    [(JOIN_GROUP, True), (SYNC_GROUP, True), (LEAVE_GROUP, True)]
    + [(api, False) for api in (PRODUCE, HEARTBEAT)],
)
def test_limited_apis_change_the_members_of_a_group(api: AnyApi, is_in_turns: bool) -> None:
    frame = api.key.to_bytes(2, "big") + bytes(6)
    assert is_limited(frame) is is_in_turns
    assert not is_limited(frame[:1])
    assert not is_limited(b"\1" + frame[1:]), "no such API"
