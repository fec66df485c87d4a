"""A client process of a world whose work is a coroutine: it can pause, and it can die."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final

from partage.lab.clients.client_connection import ClientConnection
from partage.lab.context import WorldContext
from partage.lab.environment.coroutines import SimFuture, SimTaskSet
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.wire.api import AnyApi
from partage.wire.types import Message

_CONNECT_AGAIN_MS: Final = 200


class ClientProcess:
    """A process with connections to one broker at a time, at first to the first one.

    Args:
        world: The world.
        name: The name of the process, also its client id.
        versions: The versions of the APIs for which it uses a certain one, by API key.
    """

    def __init__(self, world: WorldContext, name: str, versions: Mapping[int, int]) -> None:
        self.world = world
        self.name = name
        self.rng = Random(f"{world.scenario.seed} {name}")
        self.is_alive = True
        #: The broker to which it connects next.
        self.broker_id = 1
        self._versions = versions
        self._tasks = SimTaskSet()
        self._is_paused = False
        self._deferred_calls: list[Callable[[], None]] = []
        self._lanes: dict[tuple[int, int | None], _Lane] = {}

    def spawn(self, work: Coroutine[SimFuture[Any], None, None]) -> None:
        """Run a coroutine until it ends or the process dies."""
        self._tasks.spawn(work, self.when_awake)

    def when_awake(self, call: Callable[[], None]) -> None:
        """Call now, or after the pause if the process is paused. A dead process drops the call."""
        if self._is_paused:
            self._deferred_calls.append(call)
        elif self.is_alive:
            call()

    def pause(self, for_ms: int) -> None:
        """Pause the process for a time."""
        if not self._is_paused:
            self._is_paused = True
            self.world.clock.call_later(for_ms, self.resume)

    def resume(self) -> None:
        """End the pause."""
        if not self._is_paused:
            return
        self._is_paused = False
        deferred, self._deferred_calls = self._deferred_calls, []
        for call in deferred:
            self.when_awake(call)

    def kill(self, *, silently: bool) -> None:
        """Kill the process; its machine may fail with it, so that no connection is closed."""
        self.is_alive = False
        for lane in self._lanes.values():
            lane.kill(silently=silently)

    def on_connect_failed(self) -> None:
        """Select the broker for the next attempt after a connection failed."""

    async def sleep(self, for_ms: int) -> None:
        """Wait for a time."""
        moment: SimFuture[None] = SimFuture()
        self.world.clock.call_later(for_ms, lambda: moment.set_result(None))
        await moment

    async def request(
        self, api: AnyApi, message: Message, lane: int = 0, broker_id: int | None = None
    ) -> Any:
        """Send a request.

        Args:
            api: The API of the request.
            message: The request.
            lane: The number of the connection; requests on several may overtake each other.
            broker_id: The broker; None for the one of the process, which it connects to until it
                succeeds.

        Returns:
            The response; None if it was lost or did not arrive in time.
        """
        key = lane, broker_id
        if key not in self._lanes:
            self._lanes[key] = _Lane(self, self._versions, broker_id)
        return await self._lanes[key].request(api, message)


class _Lane:
    """One connection after the other, each with at most one request in flight."""

    def __init__(
        self, process: ClientProcess, versions: Mapping[int, int], broker_id: int | None
    ) -> None:
        self._process = process
        self._broker_id = broker_id
        self._versions = versions
        self._connection: ClientConnection | None = None
        self._response: SimFuture[Any] | None = None

    async def request(self, api: AnyApi, message: Message) -> Any:
        connection = await self._connect()
        if connection is None:
            return None
        self._response = response = SimFuture[Any]()
        if not connection.send(api, message, response.set_result, REQUEST_TIMEOUT_MS):
            return None
        return await response

    async def _connect(self) -> ClientConnection | None:
        process = self._process
        broker_id = self._broker_id or process.broker_id
        if self._connection is not None and self._connection.broker_id != broker_id:
            self._connection.close()
        while self._connection is None or not self._connection.is_open:
            opened = SimFuture[bool]()
            self._connection = ClientConnection(
                process.world.network,
                process.name,
                self._broker_id or process.broker_id,
                0,
                self._on_lost,
                process.when_awake,
                self._versions,
            )
            self._connection.open(opened.set_result)
            if not await opened:
                await process.sleep(_CONNECT_AGAIN_MS)
                if self._broker_id is not None:
                    return None
                process.on_connect_failed()
        return self._connection

    def _on_lost(self) -> None:
        if self._response is not None:
            self._response.set_result(None)

    def kill(self, *, silently: bool) -> None:
        if self._connection is None:
            return
        if silently:
            self._connection.drop_silently()
        else:
            self._connection.close()
