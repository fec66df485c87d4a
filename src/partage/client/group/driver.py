"""The driver of a member core: it runs timers, requests and actions on the event loop.

The core handles one event at a time, on one event loop. The result of an action returns as another
event. Slow work (assignors, listeners) runs in threads or tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from partage.bridge.member_requests import MemberRequest, to_error_code, to_event, to_request
from partage.client.errors import BrokerResponseError, ClientError, UnsupportedApiError
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.jitter import jittered
from partage.member.consumer_group.events import ConsumerHeartbeatResponseReceived
from partage.member.consumer_group.outcome import SendConsumerHeartbeat
from partage.member.events import (
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNotFound,
    Event,
    TimerFired,
)
from partage.member.outcome import (
    Action,
    Disconnect,
    FindCoordinator,
    Outcome,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
)
from partage.member.settings import MemberSettings
from partage.member.timers import MemberTimer
from partage.model.errors import ErrorCode

log = logging.getLogger(__name__)


class MemberCore(Protocol):
    """A member core of `partage.member`."""

    def handle(self, event: Event) -> Outcome:
        """Handle an event and return its outcome."""
        ...


#: The clock that includes suspends; None on Windows, which only has Python's monotonic one.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def now_ms() -> int:
    """Return the time for member cores in ms. It is monotonic and includes suspends (on Linux)."""
    now_ns = time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)
    return now_ns // 1_000_000


class Driver:
    """The driver of one member core and its coordinator client.

    Args:
        perform: Performs the actions that are not requests or timers.
        on_event_handled: Called after each event, when all its actions have started.
        on_lookup_error: Called with an error if the coordinator lookup fails in a way that is
            probably permanent (wrong address or password), and with None once it succeeds. The
            lookup is retried in both cases.
    """

    def __init__(
        self,
        core: MemberCore,
        settings: MemberSettings,
        coordinator: CoordinatorClient,
        perform: Callable[[Action], None],
        on_event_handled: Callable[[], None],
        on_lookup_error: Callable[[ClientError | None], None] = lambda error: None,
    ) -> None:
        self._core = core
        self._settings = settings
        self._coordinator = coordinator
        self._perform = perform
        self._on_event_handled = on_event_handled
        self._on_lookup_error = on_lookup_error
        self._loop = asyncio.get_running_loop()
        self._timers: dict[MemberTimer, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._link: int | None = None  # serial of the lookup that found the current coordinator
        self._is_closed = False

    def handle(self, event: Event) -> None:
        """Pass an event to the core and perform its outcome."""
        if self._is_closed:
            return
        outcome = self._core.handle(event)
        for action in outcome.actions:
            self._perform_action(action)
        for key, deadline_ms in outcome.timers:
            self._arm(key, deadline_ms)
        self._on_event_handled()

    def close(self) -> None:
        """Stop: ignore further events and close the connection.

        ``on_event_handled`` may call it, too.
        """
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._coordinator.disconnect()

    def abandon(self, clean_up: Callable[[], None]) -> None:
        """Schedule `close` and another function on the event loop; any thread may call it."""

        def end() -> None:
            self.close()
            clean_up()

        with suppress(RuntimeError):  # The loop was closed, which has cancelled all tasks.
            self._loop.call_soon_threadsafe(end)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task and return it; it is cancelled when the driver closes."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("unexpected error in the group driver", exc_info=task.exception())

    # Timers.

    def _arm(self, key: MemberTimer, deadline_ms: int | None) -> None:
        before = self._timers.pop(key, None)
        if before is not None:
            before.cancel()
        if deadline_ms is not None:
            wait_s = max(0, deadline_ms - now_ms()) / 1000
            if key is MemberTimer.RETRY:
                wait_s = jittered(wait_s)
            self._timers[key] = self._loop.call_later(wait_s, self._fire, key, deadline_ms)

    def _fire(self, key: MemberTimer, deadline_ms: int) -> None:
        if now_ms() < deadline_ms and key is not MemberTimer.RETRY:
            self._arm(key, deadline_ms)  # The event loop's clock may differ slightly from `now_ms`.
            return
        del self._timers[key]
        self.handle(TimerFired(at_ms=now_ms(), key=key))

    # Actions.

    def _perform_action(self, action: Action) -> None:
        match action:
            case FindCoordinator(serial=serial):
                self.start_task(self._find(serial))
            case Disconnect():
                self._coordinator.disconnect()
            case SendLeave(is_parked=True):
                # The coordinator would not read it behind a parked JoinGroup.
                self._coordinator.disconnect()
                self.start_task(self._send_on_new_connection(action))
            case SendJoin() | SendSync() | SendHeartbeat() | SendLeave() | SendConsumerHeartbeat():
                self._send(action)
            case _:
                self._perform(action)

    async def _find(self, serial: int) -> None:
        try:
            await self._coordinator.connect()
        except BrokerResponseError as error:
            self._not_found(serial, to_error_code(error.code), error)
        except ClientError as error:
            self._not_found(serial, None, error)
        else:
            self._link = serial
            self._on_lookup_error(None)
            self.handle(CoordinatorFound(at_ms=now_ms(), serial=serial))

    def _not_found(self, serial: int, code: ErrorCode | None, error: ClientError) -> None:
        log.info("coordinator lookup failed: group=%s error=%s", self._settings.group_id, error)
        if code is None and not error.is_retriable:
            self._on_lookup_error(error)
        self.handle(CoordinatorNotFound(at_ms=now_ms(), serial=serial, error=code))

    def _send(self, action: MemberRequest) -> None:
        """Start to send at once, so that requests keep the order of the actions."""
        link = self._link
        assert link is not None, "a member core sends requests only after CoordinatorFound"
        self.start_task(self._exchange(action, link))

    async def _exchange(self, action: MemberRequest, link: int) -> None:
        api, message = to_request(action, self._settings.group_id)
        try:
            if isinstance(action, SendConsumerHeartbeat):
                self._coordinator.check_supports(action)
            response = await self._coordinator.send(
                api, message, timeout_ms=self._timeout_ms(action)
            )
        except ClientError as error:
            if isinstance(action, SendConsumerHeartbeat) and isinstance(error, UnsupportedApiError):
                self.handle(_unsupported(action, error))
                return
            log.info(
                "request failed: group=%s api=%s error=%s", self._settings.group_id, api.name, error
            )
            if link == self._link:
                self._coordinator.disconnect()
            self.handle(CoordinatorLost(at_ms=now_ms(), serial=link))
        else:
            self.handle(to_event(action, response, now_ms()))

    async def _send_on_new_connection(self, action: SendLeave) -> None:
        try:
            await self._coordinator.connect()
        except ClientError as error:
            log.info("LeaveGroup was not sent: group=%s error=%s", self._settings.group_id, error)
        else:
            self._link = action.serial
            await self._exchange(action, action.serial)

    def _timeout_ms(self, action: MemberRequest) -> int:
        """Return the request timeout: parked requests have a separate timer in the core."""
        settings = self._settings
        if isinstance(action, SendJoin | SendSync):
            longest = max(
                settings.rebalance_timeout_ms,
                settings.session_timeout_ms,
                settings.request_timeout_ms,
            )
            return longest + 2 * settings.parked_request_grace_ms
        return settings.request_timeout_ms


def _unsupported(
    action: SendConsumerHeartbeat, error: UnsupportedApiError
) -> ConsumerHeartbeatResponseReceived:
    """Return the response of a broker without the request: retries would not help."""
    return ConsumerHeartbeatResponseReceived(
        at_ms=now_ms(),
        serial=action.serial,
        error=ErrorCode.UNSUPPORTED_VERSION,
        error_message=str(error),
    )
