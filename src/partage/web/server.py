"""The server: a socket, and uvicorn on it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType

import uvicorn

from partage.web.guard import AsgiApplication


class BindError(Exception):
    """Nothing can listen there; the text says why."""


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one.

    Raises:
        CannotListen: somebody else does, or it is no address of this machine.
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
    """Whether only this machine can connect."""
    return ip_address(made.getsockname()[0].partition("%")[0]).is_loopback


def url_of(made: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = made.getsockname()[:2]
    if ip_address(host.partition("%")[0]).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(
    application: AsgiApplication, made: socket.socket, ready: Callable[[], None] = lambda: None
) -> None:
    """Answer until Ctrl-C or SIGTERM. In a thread that is not the main one: `server`."""
    running = make_server(application, ready)

    def end(number: int, frame: FrameType | None) -> None:
        running.should_exit = True

    # uvicorn has its own handlers while it runs, and afterwards raises what it got once more.
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        running.run(sockets=[made])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_server(
    application: AsgiApplication, ready: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    """A server that is not running yet."""
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
