"""Raw connections that send requests with as little Python code as possible.

So the figures show the broker, not the load generator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from partage.wire.api import Api, Req, Res
from partage.wire.frames import encode_request_frame, parse_response_header

Address = tuple[str, int]

_LOST: Final = "the broker closed a connection"


class Caller(asyncio.Protocol):
    """A connection; `send` sends a frame, ``on_response`` is called with each response frame."""

    def __init__(self) -> None:
        self.on_response: Callable[[Caller, bytes], None] = _on_unexpected_response
        self.on_lost: Callable[[Caller], None] = _on_lost
        self.is_lost = False
        self.transport: asyncio.Transport
        self._tail = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's transport has the same methods
        self.send = self.transport.write

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the broker closed the connection."""
        self.is_lost = True
        self.on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Split the stream into responses."""
        tail = self._tail
        if not tail and len(data) == 4 + int.from_bytes(data[:4], "big"):
            self.on_response(self, data[4:])
            return
        tail += data
        pos = 0
        while len(tail) - pos >= 4:
            end = pos + 4 + int.from_bytes(tail[pos : pos + 4], "big")
            if len(tail) < end:
                break
            frame = bytes(tail[pos + 4 : end])
            pos = end
            self.on_response(self, frame)
        del tail[:pos]

    def close(self) -> None:
        """Close the connection without calling ``on_lost``."""
        self.on_lost = lambda _: None
        self.transport.close()


def _on_unexpected_response(caller: Caller, frame: bytes) -> None:
    raise AssertionError("a response without a request")


def _on_lost(caller: Caller) -> None:
    raise ConnectionResetError(_LOST)


async def connect(address: Address, count: int) -> list[Caller]:
    """Open ``count`` connections."""
    loop = asyncio.get_running_loop()
    callers: list[Caller] = []
    while len(callers) < count:
        few = min(256, count - len(callers))
        made = await asyncio.gather(*(loop.create_connection(Caller, *address) for _ in range(few)))
        callers += [protocol for _, protocol in made]
    return callers


def encoded(api: Api[Req, Res], version: int, message: Req, client_id: str = "bench") -> bytes:
    """Return a request as one buffer."""
    body = api.encode_request(version, message)
    return b"".join(encode_request_frame(api, version, 0, client_id, body))


def decoded(api: Api[Req, Res], version: int, frame: bytes) -> Res:
    """Decode the response in a frame."""
    _, pos = parse_response_header(api, version, frame)
    return api.decode_response(version, frame, pos)


async def call(caller: Caller, api: Api[Req, Res], version: int, message: Req) -> Res:
    """Send a request and return its decoded response."""
    return decoded(api, version, await exchange(caller, encoded(api, version, message)))


async def exchange(caller: Caller, frame: bytes) -> bytes:
    """Send a request frame and return the response frame.

    Raises:
        ConnectionResetError: The broker closed the connection.
    """
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    caller.on_response = lambda _, response: future.set_result(response)
    on_lost, caller.on_lost = caller.on_lost, partial(_fail_on_lost, future)
    if caller.is_lost:
        raise ConnectionResetError(_LOST)
    caller.send(frame)
    response = await future
    caller.on_response, caller.on_lost = _on_unexpected_response, on_lost
    return response


def _fail_on_lost(future: asyncio.Future[Any], caller: Caller) -> None:
    """Fail a wait for responses, which would not end."""
    if not future.done():
        future.set_exception(ConnectionResetError(_LOST))


class Load(NamedTuple):
    """The results of a closed loop.

    ``load_share`` is the share of its core that the generator used. Near 1, the generator was the
    limit, not the broker.
    """

    responses: int
    seconds: float
    latencies_s: list[float]
    load_share: float

    @property
    def per_s(self) -> float:
        """Requests per second."""
        return self.responses / self.seconds


async def closed_loop(callers: Sequence[Caller], frames: Sequence[bytes], seconds: float) -> Load:
    """Send the next request on each connection when a response arrives; keep every 16th latency.

    Raises:
        AssertionError: A response differs from the first response of its connection.
        ConnectionResetError: The broker closed a connection.
    """
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    done, alive = 0, len(callers)
    latencies: list[float] = []
    frame_of = dict(zip(callers, frames, strict=True))
    expected = {c: (await exchange(c, frame))[4:] for c, frame in frame_of.items()}
    sent_at: dict[Caller, float] = {}
    clock = time.perf_counter
    until = clock() + seconds

    def on_response(caller: Caller, response: bytes) -> None:
        nonlocal done, alive
        done += 1
        if response[4:] != expected[caller]:
            with suppress(asyncio.InvalidStateError):
                finished.set_exception(AssertionError(f"answered otherwise: {response[4:]!r}"))
        if caller in sent_at:
            latencies.append(clock() - sent_at.pop(caller))
        if not done & 15:
            now = clock()
            if now < until:
                sent_at[caller] = now
            else:
                for other in callers:
                    other.on_response = on_last_response
        if caller.on_response == on_last_response:
            on_last_response(caller, response)
        else:
            caller.send(frame_of[caller])

    def on_last_response(caller: Caller, _: bytes) -> None:
        nonlocal alive
        alive -= 1
        if not alive and not finished.done():
            finished.set_result(None)

    begin, cpu_before = clock(), time.process_time()
    for caller in callers:
        caller.on_response, caller.on_lost = on_response, partial(_fail_on_lost, finished)
        caller.send(frame_of[caller])
    await finished
    took = clock() - begin
    for caller in callers:
        caller.on_lost = _on_lost
    return Load(done, took, latencies, (time.process_time() - cpu_before) / took)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the values are; NaN for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
