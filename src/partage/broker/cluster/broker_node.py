"""Identity and address of a broker."""

from __future__ import annotations

import msgspec


class BrokerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A broker as clients see it: its id, its address and its cluster."""

    node_id: int
    host: str
    port: int
    cluster_id: str
    rack: str | None = None
