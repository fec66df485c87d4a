"""Snapshots of a cluster for ``partage web``, from the requests of ``partage groups describe``."""

from __future__ import annotations

import time

from partage.console.common.client_requests import prepare_next_poll
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.errors import CommandError
from partage.console.groups.describe import describe_groups
from partage.console.web.group_events import GroupEventsReader
from partage.console.web.held_partitions import HeldPartitionsReader
from partage.web.cluster_history import ClusterSnapshot
from partage.web.poller import ClusterUnreachableError


class ClusterSnapshotSource:
    """Source of snapshots: all groups, the events since the last snapshot, and held partitions.

    Implements `partage.web.poller.SnapshotSource`.
    """

    def __init__(self, cluster: ClusterClient, held: HeldPartitionsReader | None = None) -> None:
        self._cluster = cluster
        self._events = GroupEventsReader(cluster)
        self._held = held or HeldPartitionsReader(cluster)

    def poll(self) -> ClusterSnapshot:
        """Return all groups with members, offsets and end offsets, and the new events.

        Raises:
            ClusterUnreachableError: The cluster does not respond, or refuses a request.
        """
        began_s = time.monotonic()
        try:
            prepare_next_poll(self._cluster)
            # Events are read first, so that the state of the groups is not older than the events.
            events = self._events.read()
            groups = describe_groups(self._cluster, None)
            held = self._held.read()
        except CommandError as failure:
            raise ClusterUnreachableError(failure.message) from failure
        return ClusterSnapshot(
            at_ms=int(time.time() * 1000),
            took_ms=round((time.monotonic() - began_s) * 1000),
            groups=groups,
            events=events,
            held=held,
            remarks=[each for each in (self._events.remark, self._held.remark) if each],
        )
