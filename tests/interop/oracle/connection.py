"""A plain socket for Kafka's protocol, with one request at a time."""

from __future__ import annotations

import select
import socket
import struct
from typing import Generic, Self

from partage.wire import frames
from partage.wire.api import AnyApi, Api, Req, Res
from polled_conditions import PATIENCE_S

#: Timeout for responses that the broker does not delay on purpose.
ANSWER_WITHIN_S = PATIENCE_S


class NoResponseError(Exception):
    """No response arrived in time: the request is parked."""


class ConnectionClosedError(Exception):
    """The broker closed the connection instead of responding."""


class Connection:
    """One connection. A started request must finish before the next one."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self.bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self._client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api: Api[Req, Res], request: Req, version: int | None = None) -> Res:
        """Send a request, and wait for its response."""
        return self.begin(api, request, version).result()

    def begin(self, api: Api[Req, Res], request: Req, version: int | None = None) -> Pending[Res]:
        """Send a request; read its response later."""
        version = api.by_name_max if version is None else version
        self._correlation += 1
        body = api.encode_request(version, request)
        buffers = frames.encode_request_frame(
            api, version, self._correlation, self._client_id, body
        )
        try:
            self._socket.sendall(b"".join(buffers))
        except OSError as error:
            raise ConnectionClosedError(str(error)) from error
        return Pending(self, api, version, self._correlation)

    def wait(self, timeout_s: float) -> None:
        """Wait for a frame or the end of the connection.

        Raises:
            NoResponseError: Neither came within the timeout.
        """
        if not self._received and not select.select([self._socket], [], [], timeout_s)[0]:
            raise NoResponseError

    def receive(self, timeout_s: float) -> bytes:
        """Return the next frame. A partial frame is kept.

        Raises:
            NoResponseError: No whole frame came within the timeout.
            ConnectionClosedError: The broker closed the connection.
        """
        self._socket.settimeout(timeout_s)
        try:
            while len(self._received) < 4 or len(self._received) < 4 + self._length():
                chunk = self._socket.recv(65536)
                if not chunk:
                    raise ConnectionClosedError("end of stream")
                self._received += chunk
        except TimeoutError:
            raise NoResponseError from None
        except ConnectionError as error:
            raise ConnectionClosedError(str(error)) from error
        end = 4 + self._length()
        frame, self._received = self._received[4:end], self._received[end:]
        return frame

    def _length(self) -> int:
        (length,) = struct.unpack_from(">i", self._received)
        return int(length)


class Pending(Generic[Res]):
    """A response that has not been read yet."""

    def __init__(self, connection: Connection, api: AnyApi, version: int, correlation: int) -> None:
        self._connection = connection
        self._api = api
        self._version = version
        self._correlation = correlation

    def peek(self, timeout_s: float) -> None:
        """Wait for the response without reading it; raise `NoResponseError` after the timeout."""
        self._connection.wait(timeout_s)

    def result(self, timeout_s: float = ANSWER_WITHIN_S) -> Res:
        """Return the response. It can be called again after the timeout.

        Raises:
            NoResponseError: No response came within the timeout.
        """
        frame = self._connection.receive(timeout_s)
        correlation, pos = frames.parse_response_header(self._api, self._version, frame)
        assert correlation == self._correlation
        answer: Res = self._api.decode_response(self._version, frame, pos)
        return answer
