"""A request that arrives alone is served without queues, with the same result as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.broker.clock import Clock
from partage.broker.net.connection import Connection
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.net.shared_resources import SharedResources
from partage.model.settings import ConnectionLimits
from partage.wire.api import AnyApi
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.frames import encode_request_frame

#: What the handler does with a request.
ACTIONS = ("answer", "answer later", "close", "close after the answer")
REQUEST_BYTES_MAX = 200


class FakeTransport:
    """Keeps what a connection sends."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False
        self.is_reading = True

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.sent.append(bytes(data))

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 5000) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Client:
    """A connection whose requests arrive whole, or in pieces and so through the queues."""

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self.handled: list[tuple[Any, ...]] = []
        self._later: list[InboundRequest] = []
        self._action = ""
        self.resources = SharedResources(
            ConnectionLimits(request_bytes_max=REQUEST_BYTES_MAX), Clock()
        )
        self.resources.apis = {HEARTBEAT.key: HEARTBEAT, API_VERSIONS.key: API_VERSIONS}
        self.resources.handlers = dict.fromkeys(self.resources.apis, self._handle)
        ignore: Callable[[Connection], None] = lambda _: None  # noqa: E731
        self.connection = Connection(self.resources, on_opened=ignore, on_closed=ignore)
        self.transport = FakeTransport()
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def _handle(self, inbound: InboundRequest) -> None:
        self.handled.append(
            (inbound.api.key, inbound.version, inbound.correlation_id, inbound.client_id)
        )
        if self._action == "fail":
            raise ZeroDivisionError("a bug in the handler")
        if self._action == "close":
            self.connection.close()
        elif self._action == "answer later":
            self._later.append(inbound)
        else:
            respond(inbound)
            if self._action == "close after the answer":
                self.connection.close()

    def receive(self, data: bytes, action: str) -> None:
        """Receive bytes; the handler takes the action for the request in them."""
        self._action = action
        pieces = [data] if self._is_whole else [data[:1], data[1:]]
        for piece in pieces:
            if piece and not self.transport.is_closed and self.transport.is_reading:
                self.connection.get_buffer(len(piece))[: len(piece)] = piece
                self.connection.buffer_updated(len(piece))

    def answer_oldest(self) -> None:
        """Respond to the first request that waits, as a handler does later."""
        if self._later:
            respond(self._later.pop(0))

    @property
    def seen(self) -> tuple[Any, ...]:
        """The effects that the other side and the handlers see."""
        return (
            self.handled,
            b"".join(self.transport.sent),
            self.transport.is_closed,
            self.transport.is_reading,
            self.connection.has_pending_work,
        )


def respond(inbound: InboundRequest) -> None:
    if inbound.api is HEARTBEAT:
        inbound.respond(HeartbeatResponse(error_code=inbound.correlation_id % 3))
    else:
        inbound.respond(ApiVersionsResponse(error_code=0, api_keys=[]))


def frame(api: AnyApi, version: int, correlation_id: int, request: Any) -> bytes:
    body = api.encode_request(version, request)
    return b"".join(encode_request_frame(api, version, correlation_id, "client", body))


def heartbeat(correlation_id: int, member_id: str) -> bytes:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    return frame(HEARTBEAT, 3, correlation_id, request)


def api_versions(correlation_id: int, version: int) -> bytes:
    return frame(API_VERSIONS, version, correlation_id, ApiVersionsRequest())


IDS = st.integers(0, 2**31 - 1)
REQUESTS = st.one_of(
    st.builds(heartbeat, IDS, st.sampled_from(("m", "m", "m", "other"))),
    st.builds(api_versions, IDS, st.sampled_from((0, 2))),
)
DAMAGED = st.sampled_from(
    [
        b"\0\0\0\0",  # no request
        b"\0\0\0\1x",
        b"\x7f\0\0\0" + b"x" * 20,  # too large
        b"\0\0\0\xc9" + b"x" * 201,
        b"\0\0\0\x0a\0\x63\0\0\0\0\0\1\xff\xff",  # an unknown API
        b"\0\0\0\x0c" + heartbeat(1, "m")[4:16],  # the fields end too early
        heartbeat(1, "m")[:4] + b"\0\x12\0\x63" + heartbeat(1, "m")[8:],  # a later ApiVersions
        heartbeat(1, "m") + b"\0",
        heartbeat(1, "m") + heartbeat(2, "m"),
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(REQUESTS, st.sampled_from(("answer", "answer", "answer", *ACTIONS))),
        st.tuples(st.one_of(REQUESTS, REQUESTS, DAMAGED), st.sampled_from(ACTIONS[:2])),
        st.none(),  # a late response
    ),
    max_size=12,
)


@given(STEPS)
def test_single_request_has_the_same_result_as_one_in_pieces(
    steps: list[tuple[bytes, str] | None],
) -> None:
    async def compare() -> None:
        whole, pieces = Client(is_whole=True), Client(is_whole=False)
        for step in steps:
            for client in (whole, pieces):
                if step is None:
                    client.answer_oldest()
                else:
                    client.receive(*step)
            assert whole.seen == pieces.seen

    asyncio.run(compare())


@pytest.mark.parametrize("is_whole", [True, False])
def test_failed_handler_closes_the_connection(
    is_whole: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        client = Client(is_whole=is_whole)
        client.receive(heartbeat(1, "m"), "answer")
        client.receive(heartbeat(2, "m"), "fail")
        assert (len(client.transport.sent), client.transport.is_closed) == (1, True)

    asyncio.run(check())
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "request handler failed"
    ]
    caplog.clear()


def test_client_that_reads_nothing_is_not_served() -> None:
    async def check() -> None:
        client = Client(is_whole=True)
        client.connection.pause_writing()
        client.receive(heartbeat(1, "m"), "answer")
        assert client.handled == []
        client.connection.resume_writing()
        assert len(client.handled) == len(client.transport.sent) == 1

    asyncio.run(check())


def test_request_waits_until_the_broker_serves() -> None:
    async def check() -> None:
        client = Client(is_whole=True)
        handlers, client.resources.handlers = client.resources.handlers, {}
        client.receive(heartbeat(1, "m"), "answer")
        assert client.handled == []
        client.resources.handlers = handlers
        client.connection.on_serving()
        assert len(client.handled) == len(client.transport.sent) == 1

    asyncio.run(check())
