"""When a socket counts as readable while a large answer comes in.

An event loop wakes as soon as there is anything to read. An answer of some MiB so takes it a
hundred turns, each with system calls, a fight for the interpreter's lock and a word to the sender
that there is room again: more CPU than copying the bytes. Nobody can use a part of an answer, so
the kernel is asked to wait for more of it (``SO_RCVLOWAT``). The receive buffer grows with that, to
twice as much.
"""

from __future__ import annotations

import asyncio
import platform
import re
import socket
import sys
from contextlib import suppress
from typing import Final

_BYTES_MIN: Final = 128 * 1024  # for less it is not worth a call
_BYTES_MAX: Final = 2 * 1024 * 1024  # more spares little, and the kernel has to keep it


class ReceiveLowWatermark:
    """When ``transport`` is readable; to be told after each read what `expect` wants to know.

    Does nothing where the kernel may wait for bytes that it has no room for: Linux before 5.8, and
    other systems. Nor with TLS, where what has come need not be what was read.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        is_plain = transport.get_extra_info("sslcontext") is None
        self._socket = transport.get_extra_info("socket") if is_plain and IS_RCVLOWAT_SAFE else None
        self._bytes = 1

    def set_missing_bytes(self, missing: int) -> None:
        """So many bytes of an answer have still to come; 0: none is under way."""
        wanted = 1 if missing < _BYTES_MIN else min(missing, _BYTES_MAX)
        if wanted != self._bytes and self._socket is not None:
            self._bytes = wanted
            with suppress(OSError):  # the connection has just broken
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)


def is_rcvlowat_safe(system: str, release: str) -> bool:
    """Whether a socket is readable, too, once its buffer is nearly full."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return system == "linux" and version is not None and tuple(map(int, version.groups())) >= (5, 8)


IS_RCVLOWAT_SAFE: Final = is_rcvlowat_safe(sys.platform, platform.release())
