"""Response times for another client: a separate prober sends a request every few ms."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from bench.load import Address, encoded
from bench.worker_process import is_stopping
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest

_EVERY_S = 0.002


class Probe(NamedTuple):
    """One request of the prober.

    ``at_s`` is when it was sent, by `time.perf_counter`, which all processes share. ``took_s`` is
    its response time, and ``late_s`` the delay with which the prober itself woke before it.
    """

    at_s: float
    took_s: float
    late_s: float


def probe(address: Address) -> list[Probe]:
    """Send ApiVersions until the process must stop.

    Returns:
        The probes with a response time of more than a millisecond.
    """
    frame = encoded(API_VERSIONS, 0, ApiVersionsRequest())
    clock = time.perf_counter
    probes: list[Probe] = []
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = clock()
        while not is_stopping():
            due = max(due + _EVERY_S, clock())
            time.sleep(max(0.0, due - clock()))
            sent = clock()
            connection.sendall(frame)
            left = 4 + int.from_bytes(_exactly(connection, 4), "big") - 4
            _exactly(connection, left)
            took = clock() - sent
            if took > 1e-3:
                probes.append(Probe(sent, took, sent - due))
    return probes


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise ConnectionResetError("the broker closed the prober's connection")
        received += more
    return bytes(received)


def slowest(probes: list[Probe], begin_s: float, end_s: float) -> Probe:
    """Return the slowest probe in a span of time."""
    within = [p for p in probes if p.at_s + p.took_s >= begin_s and p.at_s <= end_s]
    return max(within, key=lambda p: p.took_s, default=Probe(begin_s, 1e-3, 0.0))
