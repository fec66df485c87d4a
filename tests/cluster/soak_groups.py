"""Groups that must survive failures unchanged, and the time they had to wait."""

from __future__ import annotations

import os
import statistics

from partage.wire.apis.join_group import JoinGroupResponse

from .brokers import SESSION_MS, ClusterBroker
from .group_client import GroupClient

FAILOVERS = int(os.environ.get("SOAK_FAILOVERS", "50"))
GROUPS = 20
#: A takeover that takes longer does more than wait for the session to expire.
TAKEOVER_MAX_S = SESSION_MS / 1000 + 1

Cluster = dict[int, ClusterBroker]


class WatchedGroup:
    """A group of one member; ``sent`` is the last offset tried, ``acked`` the last acknowledged
    one.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.client = GroupClient(list(cluster.values()), name)
        self.joined: JoinGroupResponse = self.client.join_and_sync(session_timeout_ms=300_000)
        self.sent = self.acked = 0

    def commit(self, through: GroupClient | None = None) -> None:
        self.sent += 1
        client = through or self.client
        assert client.commit("t", self.sent, self.joined) == 0
        self.acked = self.sent

    def check(self) -> None:
        assert self.client.heartbeat(self.joined) == 0, "the generation is another"
        assert self.client.committed("t") == self.acked


def summary(what: str, times_s: list[float]) -> str:
    return (
        f"{len(times_s)} {what}: {statistics.median(times_s):.2f} s in the median, "
        f"{min(times_s):.2f} to {max(times_s):.2f} s, until a commit was acknowledged, with a "
        f"session of {SESSION_MS / 1000:g} s"
    )
