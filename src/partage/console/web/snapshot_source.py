"""What ``partage web`` shows, asked for as ``partage groups describe --all-groups`` asks."""

from __future__ import annotations

import time

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.describe import describe_groups
from partage.console.web.group_events import GroupEventsReader
from partage.web.cluster_history import ClusterSnapshot
from partage.web.poller import ClusterUnreachableError


class ClusterSnapshotSource:
    """A `partage.web.poller.SnapshotSource`: a look at all groups, and the events since the last."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._events = GroupEventsReader(cluster)

    def poll(self) -> ClusterSnapshot:
        """Ask for all groups, their members, offsets and ends, and read what was told of them.

        Raises:
            Unreachable: the cluster does not answer, or refuses.
        """
        began_s = time.monotonic()
        try:
            # librdkafka goes on asking a coordinator that it has found, whatever that says once it
            # is none any more: each look finds them anew.
            self._cluster.reset_connections()
            # What was told comes first, so that what is seen is not older.
            events = self._events.read()
            groups = describe_groups(self._cluster, None)
        except CommandError as failure:
            raise ClusterUnreachableError(failure.message) from failure
        return ClusterSnapshot(
            at_ms=int(time.time() * 1000),
            took_ms=round((time.monotonic() - began_s) * 1000),
            groups=groups,
            events=events,
            remark=self._events.remark,
        )
