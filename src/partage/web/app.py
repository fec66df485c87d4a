"""The ASGI application and its routes. Requests only read what the poller has stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from partage.web.cluster_history import ClusterHistory
from partage.web.group_page import WINDOW_DEFAULT, WINDOWS, GroupQuery, group_section
from partage.web.guard import AsgiApplication, Guard
from partage.web.markup import element
from partage.web.overview import build_overview, group_line, parse_query
from partage.web.pages import PageContext, groups_section, live_section, page, search_form
from partage.web.poller import SnapshotSource, poll_cluster

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {"page.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


class WebOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the pages.

    Attributes:
        servers: Bootstrap servers, shown on the pages.
        interval_ms: Polling interval.
        host_names: Host names allowed in requests, besides localhost and IP addresses.
    """

    servers: str
    interval_ms: int = 2_000
    host_names: Collection[str] = ()


def application(
    source: SnapshotSource,
    options: WebOptions,
    *,
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> AsgiApplication:
    """Return the application for a cluster. It polls the cluster between startup and shutdown.

    Args:
        source: Source of snapshots.
        options: Options of the pages.
        now_ms: Clock, in ms since the epoch.
    """
    watched = ClusterHistory()
    pages = _Pages(watched, options, now_ms)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(poll_cluster(source, watched, options.interval_ms / 1000))
        yield
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher

    routes = [
        Route("/", pages.groups),
        Route("/groups/{id:path}", pages.group),
        Route("/api/groups", pages.api_groups),
        Route("/api/groups/{id:path}", pages.api_group),
        Route("/api/held-partitions", pages.api_held_partitions),
        Route("/healthz", pages.health),
        Route("/static/{name}", _static),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), options.host_names)


class _Pages:
    """Request handlers, which show the last snapshot."""

    def __init__(
        self, watched: ClusterHistory, options: WebOptions, now_ms: Callable[[], int]
    ) -> None:
        self._watched = watched
        self._options = options
        self._now_ms = now_ms

    async def groups(self, request: Request) -> Response:
        around = self._around()
        query = parse_query(request.query_params)
        live = groups_section(self._watched, build_overview(self._watched, query), around)
        if _is_part(request):
            return HTMLResponse(live)
        return HTMLResponse(page("Groups", live, around, search_form(query)))

    async def group(self, request: Request) -> Response:
        around, name = self._around(), _id(request)
        group = self._watched.group(name)
        if group is not None:
            window = request.query_params.get("window", "")
            wanted = GroupQuery(name=name, window=window if window in WINDOWS else WINDOW_DEFAULT)
            live, status = group_section(self._watched, group, wanted, around), 200
        else:
            words = f"There is no group {name!r}. This page shows the group when it appears."
            said = element("p", words) if self._watched.at_ms else None
            live = live_section(self._watched, around, said)
            status = 404 if self._watched.at_ms else 503
        if _is_part(request):
            return HTMLResponse(live, status)
        return HTMLResponse(page(name or "(empty)", live, around), status)

    async def api_groups(self, request: Request) -> Response:
        groups = sorted(self._watched.groups(), key=lambda group: group.group)
        return self._json({"groups": [group_line(group) for group in groups]})

    async def api_group(self, request: Request) -> Response:
        group = self._watched.group(_id(request))
        if group is None and self._watched.at_ms:
            return self._json({"error": "no such group"}, 404)
        return self._json({"groups": [group]})

    async def api_held_partitions(self, request: Request) -> Response:
        return self._json({"partitions": self._watched.held})

    async def health(self, request: Request) -> Response:
        """Report that the page runs and whether the cluster is reachable.

        An unreachable cluster is not an error here: restarting the page would not help.
        """
        seen_ms = self._watched.at_ms
        return _json(
            {
                "status": "ok",
                "cluster": "unreachable" if self._watched.failure or not seen_ms else "reachable",
                "age_ms": None if seen_ms is None else max(self._now_ms() - seen_ms, 0),
            }
        )

    def _json(self, document: object, status: int = 200) -> Response:
        """Return a document with its age in a header, or status 503 before the first snapshot."""
        seen_ms = self._watched.at_ms
        if seen_ms is None:
            why = self._watched.failure or "no data yet: the cluster was not polled"
            return _json({"error": why}, 503)
        answer = _json(document, status)
        answer.headers["partage-age-ms"] = str(max(self._now_ms() - seen_ms, 0))
        return answer

    def _around(self) -> PageContext:
        return PageContext(
            servers=self._options.servers,
            interval_ms=self._options.interval_ms,
            now_ms=self._now_ms(),
        )


def _id(request: Request) -> str:
    """Return the group id; it is in the query if a path cannot hold it (`formats.group_url`)."""
    in_path: str = request.path_params["id"]
    return in_path or request.query_params.get("id", "")


def _is_part(request: Request) -> bool:
    return request.query_params.get("part") == "live"


def _json(document: object, status: int = 200) -> Response:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return Response(text, status, media_type="application/json")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    kind = _TYPES.get(name)
    if kind is None:
        return PlainTextResponse("not found\n", 404)
    return Response((_STATIC / name).read_bytes(), media_type=kind)


__all__ = ["WebOptions", "application"]
