"""What ``partage web`` shows, asked for as ``partage groups describe --all-groups`` asks."""

from __future__ import annotations

import time

from partage.console.cluster import Cluster
from partage.console.failure import Failure
from partage.console.group_states import described
from partage.console.web_events import EventsTail
from partage.web.watched import Round
from partage.web.watcher import Unreachable


class ClusterSource:
    """A `partage.web.watcher.Source`: a look at all groups, and the events since the last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._events = EventsTail(cluster)

    def look(self) -> Round:
        """Ask for all groups, their members, offsets and ends, and read what was told of them.

        Raises:
            Unreachable: the cluster does not answer, or refuses.
        """
        began_s = time.monotonic()
        try:
            # librdkafka goes on asking a coordinator that it has found, whatever that says once it
            # is none any more: each look finds them anew.
            self._cluster.begin_anew()
            # What was told comes first, so that what is seen is not older.
            events = self._events.read()
            groups = described(self._cluster, None)
        except Failure as failure:
            raise Unreachable(failure.message) from failure
        return Round(
            at_ms=int(time.time() * 1000),
            took_ms=round((time.monotonic() - began_s) * 1000),
            groups=groups,
            events=events,
            remark=self._events.remark,
        )
