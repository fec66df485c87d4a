"""The low watermark of a socket's receive buffer while a large response arrives.

An event loop wakes for any number of readable bytes. A response of several MiB then takes a hundred
iterations. Each costs system calls, contention for the interpreter lock and a window update to the
sender: more CPU time than copying the bytes. A partial response is useless. So the kernel is asked
to
wait for more bytes (``SO_RCVLOWAT``). The receive buffer grows with it, to twice the size.
"""

from __future__ import annotations

import asyncio
import platform
import re
import socket
import sys
from contextlib import suppress
from typing import Final

_BYTES_MIN: Final = 128 * 1024  # Less is not worth a system call
_BYTES_MAX: Final = 2 * 1024 * 1024  # More saves little, and the kernel has to hold it


class ReceiveLowWatermark:
    """The low watermark of the socket of ``transport``; update it after each read.

    It does nothing where the kernel may wait for bytes that it has no room for: Linux before 5.8,
    and other systems. It also does nothing with TLS, where the
    bytes on the socket are not those that are read.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        is_plain = transport.get_extra_info("sslcontext") is None
        self._socket = transport.get_extra_info("socket") if is_plain and IS_RCVLOWAT_SAFE else None
        self._bytes = 1

    def set_missing_bytes(self, missing: int) -> None:
        """Set the number of bytes missing in the current response; 0 between responses."""
        wanted = 1 if missing < _BYTES_MIN else min(missing, _BYTES_MAX)
        if wanted != self._bytes and self._socket is not None:
            self._bytes = wanted
            with suppress(OSError):  # The connection is already broken
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)


def is_rcvlowat_safe(system: str, release: str) -> bool:
    """True if a socket also becomes readable when its receive buffer is nearly full."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return system == "linux" and version is not None and tuple(map(int, version.groups())) >= (5, 8)


IS_RCVLOWAT_SAFE: Final = is_rcvlowat_safe(sys.platform, platform.release())
