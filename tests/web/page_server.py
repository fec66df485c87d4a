"""The page on a real socket in a thread of this process, with an HTTP client."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from partage.console.common.cluster_client import ClusterClient
from partage.console.web.snapshot_source import ClusterSnapshotSource
from partage.web.app import WebOptions, application
from partage.web.poller import SnapshotSource
from partage.web.server import bind_socket, make_server
from polled_conditions import eventually

from .html_page import Page


class Answer(NamedTuple):
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def page(self) -> Page:
        assert self.headers["content-type"] == "text/html; charset=utf-8", self
        return Page(self.body)

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body)


class PageServer:
    """``partage web`` for a cluster, without the command; a context manager."""

    def __init__(
        self,
        servers: str,
        *,
        interval_ms: int = 50,
        source: SnapshotSource | None = None,
        timeout_ms: int = 5_000,
    ) -> None:
        cluster = ClusterClient(servers, {}, timeout_ms, verbose=False)
        options = WebOptions(servers=servers, interval_ms=interval_ms, host_names=["page.example"])
        self._socket = bind_socket("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self._ready = threading.Event()
        pages = application(source or ClusterSnapshotSource(cluster), options)
        self._server = make_server(pages, self._ready.set)
        sockets = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def get(self, path: str, *, method: str = "GET", host: str | None = None) -> Answer:
        """Request a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers={"Host": host} if host else {})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read().decode())
        finally:
            connection.close()

    def until(self, path: str, *words: str) -> Page:
        """Wait until the page contains all these words, and return it."""
        return self.until_page(path, lambda page: all(word in page.text for word in words))

    def until_page(self, path: str, is_expected: Callable[[Page], bool]) -> Page:
        """Wait until the page is as expected, and return it."""
        page = self.get(path).page

        def reload() -> bool:
            nonlocal page
            page = self.get(path).page
            return is_expected(page)

        eventually(reload, lambda: page.text)
        return page
