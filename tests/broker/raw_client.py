"""A client with one blocking socket that sends exactly the given bytes."""

from __future__ import annotations

import socket
from collections import deque
from types import TracebackType
from typing import Any, Self

from partage.wire.api import AnyApi, Api, Req, Res
from partage.wire.frames import FRAME_LENGTH, encode_request_frame, parse_response_header
from polled_conditions import PATIENCE_S


class RawClient:
    """A connection. Responses are expected in the order of the requests, as in Kafka."""

    def __init__(
        self,
        servers: str,
        *,
        client_id: str = "raw",
        timeout_s: float = PATIENCE_S,
        receive_buffer_bytes: int | None = None,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> None:
        host, _, port = servers.rpartition(":")
        self.client_id = client_id
        self.socket = socket.socket(family)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expected: deque[tuple[int, AnyApi, int]] = deque()
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def frame(self, api: Api[Req, Res], message: Req, version: int | None = None) -> bytes:
        """Return the bytes of a request; its response is not expected yet."""
        version = api.by_name_max if version is None else version
        self._last_id += 1
        body = api.encode_request(version, message)
        return b"".join(encode_request_frame(api, version, self._last_id, self.client_id, body))

    def send(
        self,
        api: Api[Req, Res],
        message: Req,
        version: int | None = None,
        *,
        is_answered: bool = True,
    ) -> None:
        """Send a request, by default in the highest version that has the names of topics."""
        frame = self.frame(api, message, version)
        if is_answered:
            version = api.by_name_max if version is None else version
            self._expected.append((self._last_id, api, version))
        self.socket.sendall(frame)

    def receive(self) -> Any:
        """Return the response to the oldest request without one."""
        expected, api, version = self._expected.popleft()
        frame = self.receive_frame()
        correlation_id, pos = parse_response_header(api, version, frame)
        assert correlation_id == expected, "answers out of order"
        return api.decode_response(version, frame, pos)

    def request(self, api: Api[Req, Res], message: Req, version: int | None = None) -> Res:
        """Send a request and wait for its response."""
        self.send(api, message, version)
        answer: Res = self.receive()
        return answer

    def send_bytes(self, content: bytes) -> None:
        self.socket.sendall(content)

    def receive_bytes(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(1 << 20, count - len(parts)))
            if not part:
                raise ConnectionError(f"closed by the broker after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)

    def receive_frame(self) -> bytes:
        (size,) = FRAME_LENGTH.unpack(self.receive_bytes(FRAME_LENGTH.size))
        return self.receive_bytes(size)

    def is_closed(self, within_s: float = 20.0) -> bool:
        """True if the broker closes the connection in time and sends nothing more."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def is_silent(self, for_s: float = 0.05) -> bool:
        """True if nothing is received for this time and the connection stays open."""
        before = self.socket.gettimeout()
        self.socket.settimeout(for_s)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False
