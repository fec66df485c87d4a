"""The HTTP server: a socket with uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType
from typing import Final

import uvicorn

from partage.web.guard import AsgiApplication

_ACCEPTING_TURNS: Final = 3  # turns of the event loop from an accepted socket to its protocol


class BindError(Exception):
    """Raised if the address cannot be used for listening; the message says why."""


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free port.

    Raises:
        BindError: The address is in use, or not an address of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(128)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise BindError(error.strerror or str(error)) from error
    return made


def is_loopback(made: socket.socket) -> bool:
    """True if only this machine can connect."""
    return ip_address(made.getsockname()[0].partition("%")[0]).is_loopback


def url_of(made: socket.socket) -> str:
    """Return the URL for a browser."""
    host, port = made.getsockname()[:2]
    if ip_address(host.partition("%")[0]).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Server(uvicorn.Server):
    """A server that calls ``ready`` after its startup."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        for listening in sockets or []:
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.remove_reader(listening)
        # Let the accepted connections reach uvicorn, which closes those it knows. asyncio never
        # closes a socket that it accepted just before the listener closed (CPython issue 109564).
        for _ in range(_ACCEPTING_TURNS):
            await asyncio.sleep(0)
        await super().shutdown(sockets)


def serve(
    application: AsgiApplication, made: socket.socket, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until Ctrl-C or SIGTERM. Works only in the main thread; elsewhere use `make_server`."""
    running = make_server(application, ready)

    def end(number: int, frame: FrameType | None) -> None:
        running.should_exit = True

    # While uvicorn runs, it handles signals itself, and raises them again at its end.
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        running.run(sockets=[made])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_server(
    application: AsgiApplication, ready: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    """Return a server that is not started."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        limit_concurrency=256,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
    )
    return _Server(config, ready)
