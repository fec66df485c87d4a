"""The shell of one member in a world: time, timers, and the connection to the coordinator.

It corresponds to the group driver in `partage.client` on asyncio. The process can crash or pause at
any moment. Subclasses have the state machine of the member.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from partage.bridge.member_requests import MemberRequest, to_error_code, to_event, to_request
from partage.lab.clients.client_connection import ClientConnection
from partage.lab.context import WorldContext
from partage.lab.options import REQUEST_TIMEOUT_MS
from partage.member import events, outcome
from partage.member.timers import MemberTimer
from partage.runtime.timers import TimerQueue
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest


class MemberShell(ABC):
    """A process with one member of a group.

    Args:
        world: The world.
        name: The name of the process, also its client id.
        group_id: The group.
        versions_below_newest: How many versions below the newest the process uses of each API.
        versions: The versions of the APIs for which it uses a certain one, by API key.
    """

    def __init__(
        self,
        world: WorldContext,
        name: str,
        group_id: str,
        versions_below_newest: int,
        versions: Mapping[int, int] | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.rng = Random(f"{world.scenario.seed} {name}")
        self.is_alive = True
        self.is_paused = False
        self.coordinator_id = 1  # the last coordinator found
        self.connection: ClientConnection | None = None  # to the coordinator
        #: The listener callback that is not yet called.
        self.pending_callback: outcome.CallListener | None = None
        self._versions_below_newest = versions_below_newest
        self._versions = versions
        self._found: int | None = None  # serial of the last successful coordinator lookup
        self._deferred_calls: list[Callable[[], None]] = []
        self._timers: TimerQueue[MemberTimer] = TimerQueue()
        self._wake_ms: int | None = None

    # The member

    @property
    @abstractmethod
    def is_in_poll(self) -> bool:
        """True if the user waits in poll, as far as the member knows."""

    @abstractmethod
    def handle(self, event: events.Event) -> None:
        """Let the member handle an event, and perform the resulting actions."""

    # Time

    def when_awake(self, call: Callable[[], None]) -> None:
        """Call now, or after the pause if the process is paused. A dead process drops the call."""
        if self.is_paused:
            self._deferred_calls.append(call)
        elif self.is_alive:
            call()

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call after a delay, or later if the process is paused then."""
        self.world.clock.call_later(delay_ms, lambda: self.when_awake(call))

    def pause(self, for_ms: int) -> None:
        """Pause the process for a time."""
        if not self.is_paused:
            self.is_paused = True
            self.world.clock.call_later(for_ms, self.resume)

    def resume(self) -> None:
        """End the pause. The member gets the current time before any deferred call runs."""
        if not self.is_paused:
            return
        self.is_paused = False
        deferred, self._deferred_calls = self._deferred_calls, []
        if self.is_alive:
            self.handle(events.Polled(at_ms=self.world.now_ms, is_in_poll=self.is_in_poll))
        for call in deferred:
            self.when_awake(call)

    # Timers

    def _arm(self, key: MemberTimer, deadline_ms: int | None) -> None:
        # jittered, as in the production driver
        if deadline_ms is not None and key is MemberTimer.RETRY:
            wait_ms = max(0, deadline_ms - self.world.now_ms)
            deadline_ms = self.world.now_ms + int(wait_ms * self.rng.uniform(0.8, 1.2))
        self._timers.set(key, deadline_ms)
        self._wake()

    def _wake(self) -> None:
        """Schedule a wake-up for the next timer. It replaces a later one."""
        wake_ms = self._timers.wake_at_ms()
        if wake_ms is not None and (self._wake_ms is None or wake_ms < self._wake_ms):
            self._wake_ms = wake_ms
            self.call_later(max(0, wake_ms - self.world.now_ms), lambda: self._fire(wake_ms))

    def _fire(self, wake_ms: int) -> None:
        if wake_ms != self._wake_ms:
            return
        self._wake_ms = None
        now_ms = self.world.now_ms
        for key in self._timers.pop_due(now_ms):
            self.handle(events.TimerFired(at_ms=now_ms, key=key))
        self._wake()

    # Connections

    def connect(
        self,
        broker_id: int,
        on_lost: Callable[[], None],
        on_opened: Callable[[ClientConnection | None], None],
    ) -> ClientConnection:
        """Open a new connection to a broker.

        Args:
            broker_id: The broker.
            on_lost: Called when the connection is lost later.
            on_opened: Called with the open connection, or with None if it failed.

        Returns:
            The connection, which is not open yet.
        """
        connection = ClientConnection(
            self.world.network,
            self.name,
            broker_id,
            self._versions_below_newest,
            on_lost,
            self.when_awake,
            self._versions,
        )
        connection.open(lambda is_open: on_opened(connection if is_open else None))
        return connection

    # Coordinator

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _find_coordinator(self, serial: int) -> None:
        self._disconnect()

        def on_lost() -> None:
            now_ms = self.world.now_ms
            if self._found == serial:
                self.handle(events.CoordinatorLost(at_ms=now_ms, serial=serial))
            else:
                self.handle(events.CoordinatorNotFound(at_ms=now_ms, serial=serial))

        broker_ids = self.world.shuffled_broker_ids(self.rng)

        def ask_next(connection: ClientConnection | None) -> None:
            if connection is None and broker_ids:
                self.connection = self.connect(broker_ids.pop(0), on_lost, ask_next)
                return
            if connection is None:
                self.handle(events.CoordinatorNotFound(at_ms=self.world.now_ms, serial=serial))
                return
            request = FindCoordinatorRequest(key=self.group_id, coordinator_keys=[self.group_id])
            connection.send(FIND_COORDINATOR, request, on_response, REQUEST_TIMEOUT_MS)

        def on_response(response: Any) -> None:
            coordinator = response.coordinators[0] if response.coordinators else response
            at_ms = self.world.now_ms
            if coordinator.error_code:
                error = to_error_code(coordinator.error_code)
                self.handle(events.CoordinatorNotFound(at_ms=at_ms, serial=serial, error=error))
                return
            self.coordinator_id = coordinator.node_id
            if self.connection is not None and self.connection.broker_id == coordinator.node_id:
                on_connected(self.connection)
            else:
                self._disconnect()
                self.connection = self.connect(coordinator.node_id, on_lost, on_connected)

        def on_connected(connection: ClientConnection | None) -> None:
            if connection is None:
                self.handle(events.CoordinatorNotFound(at_ms=self.world.now_ms, serial=serial))
                return
            self._found = serial
            self.handle(events.CoordinatorFound(at_ms=self.world.now_ms, serial=serial))

        ask_next(None)

    def _send(self, action: MemberRequest) -> None:
        assert self.connection is not None, "a member sends only to a known coordinator"
        api, message = to_request(action, self.group_id)
        self.connection.send(
            api, message, self._response_handler(action), self._request_timeout_ms(action)
        )

    def _response_handler(self, action: MemberRequest) -> Callable[[Any], None]:
        return lambda response: self.handle(to_event(action, response, self.world.now_ms))

    def _request_timeout_ms(self, action: MemberRequest) -> int:
        """Return the request timeout."""
        return REQUEST_TIMEOUT_MS

    def _close_connections(
        self, connections: Iterable[ClientConnection | None], *, silently: bool
    ) -> None:
        """Close connections. A machine that dies (``silently``) does not notify its brokers."""
        for connection in connections:
            if connection is not None:
                if silently:
                    connection.drop_silently()
                else:
                    connection.close()
