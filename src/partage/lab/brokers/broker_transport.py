"""The broker's end of a connection in a world, as a transport of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from partage.lab.brokers.clock_loop import ClockLoop
from partage.lab.brokers.shell import BrokerShell
from partage.lab.environment.network import SimConnection
from partage.wire.types import Buffer


class BrokerTransport(asyncio.Transport):
    """A transport over a connection of the simulated network.

    Args:
        loop: The loop of the broker's process.
        shell: The broker.
        connection: The connection; None until a connection to another broker is open.
        is_client: True if the broker has opened the connection.

    Attributes:
        connection: The connection.
        arrived_ms: When the bytes that the broker reads now have arrived on its machine.
    """

    def __init__(
        self,
        loop: ClockLoop,
        shell: BrokerShell,
        connection: SimConnection | None,
        *,
        is_client: bool = False,
    ) -> None:
        super().__init__({"peername": (connection.client if connection else "", 0)})
        self.connection = connection
        self._is_client = is_client
        self.arrived_ms = 0
        self._loop = loop
        self._shell = shell
        self._bind = shell.process_binder()
        self._protocol: Any = None
        self._is_closing = False
        self._is_lost = False
        self._is_reading = True
        self._unread = bytearray()

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the protocol."""
        self._protocol = protocol
        self._loop.enter(lambda: protocol.connection_made(self))

    # The end of the network's connection

    def data_received(self, data: bytes) -> None:
        """Pass received bytes on, after the pause if the process is paused."""
        arrived_ms = self._shell.world.now_ms

        def read() -> None:
            self.arrived_ms = arrived_ms
            self._unread += data
            self._loop.enter(self._deliver)

        self._bind(lambda: self._shell.when_awake(self._bind(read)))()

    def connection_lost(self) -> None:
        """Tell the protocol that the connection is lost."""

        def lose() -> None:
            self._loop.enter(self._lose)

        self._bind(lambda: self._shell.when_awake(self._bind(lose)))()

    def _deliver(self) -> None:
        if self._is_client:
            if self._unread and self._is_reading and not self._is_closing:
                data = bytes(self._unread)
                self._unread.clear()
                self._protocol.data_received(data)
            return
        while self._unread and self._is_reading and not self._is_closing:
            buffer = self._protocol.get_buffer(len(self._unread))
            size = min(len(buffer), len(self._unread))
            buffer[:size] = self._unread[:size]
            del self._unread[:size]
            self._protocol.buffer_updated(size)

    def _lose(self) -> None:
        self._is_closing = True
        if not self._is_lost:
            self._is_lost = True
            if self._protocol is not None:  # otherwise the connection is not open yet
                self._protocol.connection_lost(None)

    # The transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        """Return True after `close`."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return True unless reading is paused."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Deliver no more bytes until `resume_reading`."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver the bytes that arrived meanwhile, and later ones."""
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._deliver)

    def write(self, data: Buffer) -> None:
        """Send bytes."""
        if not self._is_closing and not self._shell.disk.has_lost_power:
            assert self.connection is not None, "it is connected"
            way = self.connection.up if self._is_client else self.connection.down
            way.send(bytes(data))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send buffers."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return 0: the network takes all bytes."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits."""

    def close(self) -> None:
        """Close the connection after the bytes that were sent."""
        if not self._is_closing:
            self._is_closing = True
            self._close_connection()
            self._loop.call_soon(self._lose)

    def _close_connection(self, *, drops_bytes: bool = False) -> None:
        assert self.connection is not None, "it is connected"
        if not self._is_client:
            self.connection.close_from_broker()
        elif drops_bytes:
            self.connection.reset_from_client()
        else:
            self.connection.close_from_client()

    def abort(self) -> None:
        """Close the connection at once; a client drops the bytes that have not arrived."""
        if not self._is_closing:
            self._is_closing = True
            self._close_connection(drops_bytes=True)
            self._loop.call_soon(self._lose)

    def on_process_died(self) -> None:
        """Close the connection as the operating system does after the process died."""
        self._is_closing = self._is_lost = True
        if self.connection is not None:
            self._close_connection()
