"""Raw connections that ask as cheaply as Python can, so that the broker is what is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from partage.wire.api import Api, Req, Res
from partage.wire.frames import encode_request_frame, parse_response_header

Address = tuple[str, int]


class Caller(asyncio.Protocol):
    """One connection; `ask` sends a frame, ``answered`` is called with each response frame."""

    def __init__(self) -> None:
        self.answered: Callable[[Caller, bytes], None] = _nobody_asked
        self.lost: Callable[[Caller], None] = _lost
        self.transport: asyncio.Transport
        self._tail = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's is one by behaviour
        self.ask = self.transport.write

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker closed it."""
        self.lost(self)

    def data_received(self, data: bytes) -> None:
        """Split responses."""
        tail = self._tail
        if not tail and len(data) == 4 + int.from_bytes(data[:4], "big"):
            self.answered(self, data[4:])
            return
        tail += data
        pos = 0
        while len(tail) - pos >= 4:
            end = pos + 4 + int.from_bytes(tail[pos : pos + 4], "big")
            if len(tail) < end:
                break
            frame = bytes(tail[pos + 4 : end])
            pos = end
            self.answered(self, frame)
        del tail[:pos]

    def close(self) -> None:
        """Close it, which is then no loss."""
        self.lost = lambda _: None
        self.transport.close()


def _nobody_asked(caller: Caller, frame: bytes) -> None:
    raise AssertionError("a response that nobody asked for")


def _lost(caller: Caller) -> None:
    raise ConnectionResetError("the broker closed a connection")


async def connect(address: Address, count: int) -> list[Caller]:
    """``count`` connections."""
    loop = asyncio.get_running_loop()
    callers: list[Caller] = []
    while len(callers) < count:
        few = min(256, count - len(callers))
        made = await asyncio.gather(*(loop.create_connection(Caller, *address) for _ in range(few)))
        callers += [protocol for _, protocol in made]
    return callers


def encoded(api: Api[Req, Res], version: int, message: Req, client_id: str = "bench") -> bytes:
    """A request as one buffer."""
    body = api.encode_request(version, message)
    return b"".join(encode_request_frame(api, version, 0, client_id, body))


def decoded(api: Api[Req, Res], version: int, frame: bytes) -> Res:
    """The response in a frame."""
    _, pos = parse_response_header(api, version, frame)
    return api.decode_response(version, frame, pos)


async def call(caller: Caller, api: Api[Req, Res], version: int, message: Req) -> Res:
    """One request and its decoded response."""
    return decoded(api, version, await ask(caller, encoded(api, version, message)))


async def ask(caller: Caller, frame: bytes) -> bytes:
    """One request and its response frame."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    caller.answered = lambda _, response: future.set_result(response)
    caller.ask(frame)
    response = await future
    caller.answered = _nobody_asked
    return response


class Load(NamedTuple):
    """What a closed loop saw. ``load_share`` is what of its core the generator itself used: near
    1 it, not the broker, was what kept the figure down."""

    answered: int
    seconds: float
    latencies_s: list[float]
    load_share: float

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.answered / self.seconds


async def closed_loop(callers: Sequence[Caller], frames: Sequence[bytes], seconds: float) -> Load:
    """Each connection asks again as soon as it is answered; every 16th latency is kept.

    Raises:
        AssertionError: an answer is not the one that the connection's first request got.
    """
    loop = asyncio.get_running_loop()
    finished = loop.create_future()
    done, alive = 0, len(callers)
    latencies: list[float] = []
    frame_of = dict(zip(callers, frames, strict=True))
    expected = {c: (await ask(c, frame))[4:] for c, frame in frame_of.items()}
    sent_at: dict[Caller, float] = {}
    clock = time.perf_counter
    until = clock() + seconds

    def answered(caller: Caller, response: bytes) -> None:
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
                    other.answered = stopped
        if caller.answered == stopped:
            stopped(caller, response)
        else:
            caller.ask(frame_of[caller])

    def stopped(caller: Caller, _: bytes) -> None:
        nonlocal alive
        alive -= 1
        if not alive and not finished.done():
            finished.set_result(None)

    begin, cpu_before = clock(), time.process_time()
    for caller in callers:
        caller.answered = answered
        caller.ask(frame_of[caller])
    await finished
    took = clock() - begin
    return Load(done, took, latencies, (time.process_time() - cpu_before) / took)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
