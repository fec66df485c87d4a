"""Checks of each request, and security headers of each response.

The page has no login. These rules protect it from other web sites in the same browser: it accepts
only its own host names (DNS rebinding), other sites cannot embed or read it, and it is read-only.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from ipaddress import ip_address
from typing import Any, Final

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApplication = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_METHODS: Final = frozenset({"GET", "HEAD"})
_HOST: Final = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")


def is_own_host(host: str, names: Collection[str]) -> bool:
    """True if a ``Host`` header is an IP address, ``localhost`` or one of the names, with any port.

    An attacker with DNS rebinding makes the browser send the attacker's host name. The browser
    sends an IP address only for a page that was opened by IP address.
    """
    found = _HOST.fullmatch(host.strip())
    if found is None:
        return False
    name = found["name"].lower().removesuffix(".")
    if name == "localhost" or name in names:
        return True
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


class Guard:
    """ASGI application that rejects invalid requests and adds security headers to responses.

    ``names`` are allowed host names, in lower case.
    """

    def __init__(self, application: AsgiApplication, names: Collection[str] = ()) -> None:
        self._application = application
        self._names = frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), text.encode()) for name, text in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not is_own_host(hosts[0], self._names):
            words = "unknown host name; allow it with partage web --host-name"
            await _refuse(send_guarded, 421, words)
        elif scope["method"] not in _METHODS:
            await _refuse(
                send_guarded, 405, "this page is read-only: use GET or HEAD", allow="GET, HEAD"
            )
        else:
            await self._application(scope, receive, send_guarded)


async def _refuse(send: Send, status: int, words: str, **headers: str) -> None:
    body = f"{words}\n".encode()
    response_headers = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        **headers,
    }
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.encode(), value.encode()) for name, value in response_headers.items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
