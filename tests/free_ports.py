"""Ports for servers of other programs, which cannot choose one themselves."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path
from typing import Final

#: Below these ports are those of well-known services.
_FIRST: Final = 10_000
_LAST: Final = 65_535
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Linux's default range, for systems without the file.
_EPHEMERAL_DEFAULT: Final = "32768 60999"


def free_ports(count: int) -> list[int]:
    """Return free ports that no other test process gets.

    The kernel takes the ports of connections, and of servers that listen on port 0, from the
    ephemeral range. It could take such a port before a server has started, or while it restarts.
    So these ports are outside that range. All processes take turns through them with one counter.
    """
    found: list[int] = []
    usable = _usable_ports()
    while len(found) < count:
        port = usable[_next_number() % len(usable)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def _usable_ports() -> list[int]:
    """Return the ports outside the ephemeral range; all ports if it leaves less than a thousand."""
    text = _EPHEMERAL.read_text() if _EPHEMERAL.exists() else _EPHEMERAL_DEFAULT
    low, high = map(int, text.split())
    outside = [port for port in range(_FIRST, _LAST + 1) if not low <= port <= high]
    return outside if len(outside) >= 1_000 else list(range(_FIRST, _LAST + 1))


def _next_number() -> int:
    """Return the next number of a counter that the processes of this user share.

    The first number is random, because other users of the machine have other counters.
    """
    counter = Path(tempfile.gettempdir(), f"partage-test-ports-{os.getuid()}")
    with os.fdopen(os.open(counter, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        number = int(text) + 1 if text else secrets.randbelow(_LAST)
        file.seek(0)
        file.write(str(number))
    return number
