"""The shell of a member: it runs the state machine over one connection."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from partage.broker.clock import Clock
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.proposals.machine import (
    Action,
    CommitDue,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    Event,
    FetchMetadata,
    LeaveRequested,
    MemberMachine,
    MetadataFetched,
    PositionsTaken,
    ReportError,
    ResponseReceived,
    ResumeReading,
    Send,
    Started,
    StartReading,
    StopReading,
    TimerFired,
)
from partage.proposals.sockets.codec import Codec
from partage.proposals.sockets.frame_connection import FrameConnection
from partage.runtime.timers import TimerQueue
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 10.0


class PartitionReader(Protocol):
    """The reader of a member's partitions. No method waits."""

    def start(self, offsets: dict[TopicPartition, int]) -> None:
        """Read these partitions too, from these offsets (-1: none is committed)."""

    def stop(self, partitions: frozenset[TopicPartition] | None) -> None:
        """Stop to read these partitions, or all if None. Their positions stay known."""

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        """Read stopped partitions again from their positions."""

    def positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the next records; no entry if nothing was read."""


class OutgoingConnection:
    """The only connection of a client to one kind of server, such as the coordinator.

    Args:
        new_codec: Returns the codec of a new connection.
        on_connected: Called when it is open.
        on_message: Called with each message.
        on_lost: Called when it could not be opened, or is lost. Not called after `close`.
    """

    def __init__(
        self,
        new_codec: Callable[[], Codec],
        *,
        on_connected: Callable[[], None],
        on_message: Callable[[Message], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._new_codec = new_codec
        self._on_connected = on_connected
        self._on_message = on_message
        self._on_lost = on_lost
        self._opening: asyncio.Task[None] | None = None
        self._open: FrameConnection | None = None

    def connect(self, find: Callable[[], Awaitable[Address]]) -> None:
        """Close the current connection, and open another one.

        Args:
            find: Returns the host and port; raises OSError if there is none.
        """
        self.close()
        self._opening = asyncio.get_running_loop().create_task(self._connect(find))

    async def _connect(self, find: Callable[[], Awaitable[Address]]) -> None:
        loop = asyncio.get_running_loop()
        made = FrameConnection(
            self._new_codec(),
            on_opened=lambda connection: None,
            on_frame=self._on_frame,
            on_lost=self._on_connection_lost,
        )
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                host, port = await find()
                self._open = made
                await loop.create_connection(lambda: made, host, port)
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be encoded
            self._open = self._opening = None
            self._on_lost(str(error) or f"no connection within {_CONNECT_TIMEOUT_S:g} s")
            return
        except asyncio.CancelledError:
            made.close()
            raise
        self._opening = None
        if self._open is made:
            self._on_connected()

    def send(self, message: Message) -> None:
        """Send a message; it is dropped if the connection was lost just now."""
        if self._open is not None:
            self._open.send(message)

    def close(self) -> None:
        """Close the connection, or stop to open it."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _on_frame(self, connection: FrameConnection, frame: bytes) -> None:
        if connection is not self._open:
            return
        try:
            message = connection.codec.decode(frame)
        except MalformedError as error:
            log.error("invalid frame of %s: %s", connection.peer, error)
            connection.lose(str(error))
            return
        self._on_message(message)

    def _on_connection_lost(self, connection: FrameConnection, reason: str) -> None:
        if connection is self._open:
            self._open = None
            self._on_lost(reason)


class SocketMemberShell(ABC):
    """Runs a member. All methods belong to one event loop.

    A subclass finds the coordinator, and performs the actions that only its design has.

    Args:
        machine: The member.
        new_codec: Returns the codec of a new connection to the coordinator.
        reader: The reader of the partitions.
    """

    def __init__(
        self, machine: MemberMachine, new_codec: Callable[[], Codec], reader: PartitionReader
    ) -> None:
        self.machine = machine
        self.reader = reader
        #: The error for the user, after `ReportError`.
        self.error: str | None = None
        self.coordinator = OutgoingConnection(
            new_codec,
            on_connected=self._on_coordinator_connected,
            on_message=self.on_message,
            on_lost=self._on_coordinator_lost,
        )
        self._is_outage_logged = False
        self._clock = Clock()
        self._loop = asyncio.get_running_loop()
        self._timers: TimerQueue[Hashable] = TimerQueue()
        self._wake: asyncio.TimerHandle | None = None
        self._following: deque[Event] = deque()
        self._is_handling = False
        self._is_stopped = False
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # What a design adds

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """True if the machine has left the group, and does nothing from now on."""

    @abstractmethod
    async def find_coordinator(self, action: Connect) -> Address:
        """Return the host and port of the coordinator.

        Raises:
            OSError: It was not found.
        """

    async def fetch_metadata(self, *, is_from_coordinator: bool) -> dict[str, int]:
        """Return the partition count of each topic. It tries again until it succeeds."""
        raise AssertionError(f"{type(self.machine).__name__} fetches no metadata")

    def on_message(self, message: Message) -> None:
        """Hand a message of the coordinator to the machine."""
        self.handle(ResponseReceived(at_ms=0, message=message))

    def perform(self, action: Action) -> None:
        """Perform an action that only this design has."""
        raise AssertionError(f"unexpected action {action}")

    # Events

    def start(self) -> None:
        """Start the member."""
        self.handle(Started(at_ms=0))

    def leave(self) -> None:
        """Leave the group; see `wait_closed`."""
        self.handle(LeaveRequested(at_ms=0))

    async def wait_closed(self) -> None:
        """Return when the member has left the group or has reported an error.

        Raises:
            Exception: The machine failed.
        """
        while not (self.is_closed or self.error is not None or self._failure is not None):
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Close all connections and cancel all timers, without leaving the group."""
        self._is_stopped = True
        if self._wake is not None:
            self._wake.cancel()
        for task in self._tasks:
            task.cancel()
        self.coordinator.close()

    def handle(self, event: Event) -> None:
        """Hand an event to the machine now, or after the current one. Its time is set here."""
        self._following.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._following and not self._is_stopped:
                self._handle(self._following.popleft())
        except Exception as error:  # a bug
            log.exception("the member failed")
            self._failure = error
            self.stop()
        finally:
            self._is_handling = False
            self._changed.set()

    def _handle(self, event: Event) -> None:
        # The clock also runs while the machine is suspended.
        outcome = self.machine.handle(msgspec.structs.replace(event, at_ms=self._clock.boot_ms()))
        for key, deadline_ms in outcome.timers:
            self._timers.set(key, deadline_ms)
        for action in outcome.actions:
            self._perform(action)
        self._schedule()

    def _perform(self, action: Action) -> None:
        match action:
            case Connect():
                self.coordinator.connect(partial(self.find_coordinator, action))
            case Disconnect():
                self.coordinator.close()
            case Send(message=message):
                self.coordinator.send(message)
            case StartReading(offsets=offsets):
                self.reader.start(offsets)
            case ResumeReading(partitions=partitions):
                self.reader.resume(partitions)
            case StopReading(partitions=stopped):
                self.reader.stop(stopped)
            case CommitDue(partitions=partitions):
                positions = self.reader.positions(partitions)
                self._following.append(PositionsTaken(at_ms=0, positions=positions))
            case FetchMetadata(is_from_coordinator=is_from_coordinator):
                self._spawn(self._fetch_metadata(is_from_coordinator))
            case ReportError(reason=reason):
                log.error("the member has left the group: %s", reason)
                self.error = reason
            case _:
                self.perform(action)

    async def _fetch_metadata(self, is_from_coordinator: bool) -> None:
        topics = await self.fetch_metadata(is_from_coordinator=is_from_coordinator)
        self.handle(MetadataFetched(at_ms=0, topics=topics))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_coordinator_connected(self) -> None:
        self._is_outage_logged = False
        self.handle(Connected(at_ms=0))

    def _on_coordinator_lost(self, reason: str) -> None:
        level = logging.INFO if self._is_outage_logged else logging.WARNING
        self._is_outage_logged = True
        log.log(level, "no connection to the coordinator: %s; trying again", reason)
        self.handle(Disconnected(at_ms=0))

    # Timers

    def _schedule(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        wake_ms = self._timers.wake_at_ms()
        if wake_ms is not None and not self._is_stopped:
            delay_s = max(0, wake_ms - self._clock.boot_ms()) / 1000
            self._wake = self._loop.call_later(delay_s, self.fire_due_timers)

    def fire_due_timers(self) -> None:
        """Fire the timers that are due, such as the end of the session in a suspended process."""
        for key in self._timers.pop_due(self._clock.boot_ms()):
            self.handle(TimerFired(at_ms=0, key=key))
        self._schedule()
