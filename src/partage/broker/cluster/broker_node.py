"""Who this broker is to its clients."""

from __future__ import annotations

import msgspec


class BrokerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of a cluster of one: its id, and where clients reach it."""

    node_id: int
    host: str
    port: int
    cluster_id: str
    rack: str | None = None
