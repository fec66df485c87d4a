"""Address of a cluster's state: ``zookeeper://HOST:PORT,.../PATH``."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_SCHEME: Final = "zookeeper://"
_SERVER: Final = re.compile(r"(?:[^\s/,:\[\]]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")
_PORT_MAX: Final = 65_535
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]+)+")


class StateAddressError(ValueError):
    """Raised if ``--state`` is not a valid address."""


class StateAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of a ZooKeeper ensemble, ``HOST:PORT,HOST:PORT``, and the path of the cluster."""

    servers: str
    path: str


def parse_state(text: str) -> StateAddress:
    """Parse the value of ``--state``.

    Raises:
        StateAddressError: the text is not a valid address.
    """
    wanted = f"{_SCHEME}HOST:PORT/PATH (separate several servers with commas)"
    if not text.startswith(_SCHEME):
        raise StateAddressError(f"--state {text}: expected {wanted}")
    servers, slash, path = text.removeprefix(_SCHEME).partition("/")
    path = slash + path.rstrip("/")
    for server in servers.split(","):
        found = _SERVER.fullmatch(server)
        if not found or not 1 <= int(found[1]) <= _PORT_MAX:
            raise StateAddressError(
                f"--state {text}: server {server!r} is not HOST:PORT; expected {wanted}"
            )
    parts = path.split("/")
    if not _PATH.fullmatch(path) or "." in parts or ".." in parts or parts[1] == "zookeeper":
        raise StateAddressError(
            f"--state {text}: the cluster needs a ZooKeeper path for itself, such as /partage; "
            f"expected {wanted}"
        )
    return StateAddress(servers=servers, path=path)
