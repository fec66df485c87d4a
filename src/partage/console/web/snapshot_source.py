"""Snapshots of a cluster for ``partage web``, from the requests of ``partage groups describe``."""

from __future__ import annotations

import time

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.describe import describe_groups
from partage.console.web.group_events import GroupEventsReader
from partage.web.cluster_history import ClusterSnapshot
from partage.web.poller import ClusterUnreachableError


class ClusterSnapshotSource:
    """Source of snapshots: all groups, and the events since the last snapshot.

    Implements `partage.web.poller.SnapshotSource`.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._events = GroupEventsReader(cluster)

    def poll(self) -> ClusterSnapshot:
        """Return all groups with members, offsets and end offsets, and the new events.

        Raises:
            ClusterUnreachableError: The cluster does not respond, or refuses a request.
        """
        began_s = time.monotonic()
        try:
            # librdkafka keeps asking a coordinator after it has moved; new connections look it up
            # again.
            self._cluster.reset_connections()
            # Events are read first, so that the state of the groups is not older than the events.
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
