"""The frames of the first design through the sockets of its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from fuzz.push_frames import damaged_frame, registration, to_broker
from fuzz.targets import WAYS
from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.frames import encode_frame
from partage.proposals.broker_side.invariants import check
from partage.proposals.broker_side.messages import StartFetcherResponse, StopFetcherResponse
from partage.proposals.broker_side.settings import PushCoordinatorSettings
from partage.proposals.sockets.broker_side.codecs import BrokerCodec
from partage.proposals.sockets.coordinator_server import CoordinatorServer
from partage.proposals.sockets.record_store import MemoryRecordStore

_PARTITIONS = 3
_WAIT_S = 30.0
_PATIENCE_S = 0.01  # an incomplete frame waits for its rest, which is correct


class PushSockets:
    """Damaged frames on separate connections: a consumer of another group must not notice them."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._errors: list[Exception] = []
        self._coordinator = PushCoordinator(PushCoordinatorSettings())

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[PushSockets]:
        """Open a target with a separate coordinator."""
        with asyncio.Runner() as runner:
            target = cls(runner)
            runner.run(target._start())
            try:
                yield target
            finally:
                runner.run(target._stop())

    async def _start(self) -> None:
        self._server = CoordinatorServer(
            self._coordinator, BrokerCodec, MemoryRecordStore(), self._errors.append
        )
        self._address = await self._server.listen("127.0.0.1", 0)
        now_ms = self._server.now_ms()
        self._server.handle(machine.Elected(at_ms=now_ms, topics={"t": _PARTITIONS}))
        reader, self._quiet = await asyncio.open_connection(*self._address)
        self._quiet.write(encode_frame(registration("quiet", session_timeout_ms=2**31 - 1)))
        await asyncio.wait_for(reader.read(1 << 16), _WAIT_S)  # with the first StopFetcher request
        self._quiet.write(encode_frame(StopFetcherResponse(consumer_id="c")))
        self._quiet.write(encode_frame(StartFetcherResponse(consumer_id="c")))

    async def _stop(self) -> None:
        await self._server.close()
        self._quiet.close()

    def try_one(self, rng: Random) -> list[str]:
        outcomes = [self._runner.run(self._try(rng)) for _ in range(WAYS)]
        assert not self._errors, self._errors
        check(self._coordinator)
        group = self._coordinator.groups["quiet"]
        (quiet,) = [each for each in group.consumers.values() if each.id == "c"]
        assert len(quiet.owned) == _PARTITIONS or len(group.consumers) > 1
        return outcomes

    async def _try(self, rng: Random) -> str:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            if rng.random() < 0.5:
                writer.write(encode_frame(registration("noisy")))
                await reader.read(1 << 16)
            writer.write(damaged_frame(rng, to_broker(rng)))
            async with asyncio.timeout(_PATIENCE_S):
                return "answered" if await reader.read(1 << 16) else "closed"
        except ConnectionError:
            return "closed"
        except TimeoutError:
            return "waits"
        finally:
            writer.close()
