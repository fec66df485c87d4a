"""Resources that the connections of a broker share: limits, memory, buffers and handlers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Final

from partage.broker.clock import Clock
from partage.broker.net.inbound_request import Handler
from partage.broker.net.memory_pool import MemoryPool
from partage.broker.net.turn_limiter import TurnLimiter
from partage.broker.net.unsupported_requests import UnsupportedRequestLogger
from partage.model.settings import ConnectionLimits
from partage.wire.api import AnyApi
from partage.wire.types import Buffer

#: Up to this size it is cheaper to join buffers than to send them separately. With asyncio's own
#: loop all are joined: in Python 3.12.1 and 3.13.0 its writelines never calls pause_writing.
_JOIN_MAX: Final = 64 * 1024
_SCRATCH_SIZE: Final = 256 * 1024
_SENDABLE_MIN: Final = 64 * 1024


class SharedResources:
    """Limits, memory, buffers and handlers for all connections of a broker."""

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.handlers: Mapping[int, Handler] = {}
        self.apis: dict[int, AnyApi] = {}
        self.limits = limits
        self.clock = clock
        #: Receives the bytes of small requests; it is free again after each callback.
        self.scratch = memoryview(bytearray(_SCRATCH_SIZE))
        #: Shared by all requests above 64 KiB; one request of the maximum size always fits.
        self.memory_pool = MemoryPool(max(limits.requests_bytes_max, limits.request_bytes_max))
        self.turns = TurnLimiter()
        self.unsupported_requests = UnsupportedRequestLogger(self.apis)
        #: Bytes that slow clients have not received yet.
        self.unsent_bytes = 0
        self.is_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        self._join_max: float = _JOIN_MAX if self.is_uvloop else math.inf

    def send(self, transport: asyncio.Transport, parts: list[Buffer]) -> None:
        """Send buffers in order, without joining large ones."""
        if len(parts) == 1:
            transport.write(parts[0])
        elif sum(map(len, parts)) <= self._join_max:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)

    @property
    def response_bytes_max(self) -> int:
        """Maximum size of the next response, given the bytes that are still unsent."""
        return max(_SENDABLE_MIN, self.limits.responses_bytes_max - self.unsent_bytes)
