"""The wait of ``partage consume`` for a cluster that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from partage.console.common.cluster_client import ClusterClient
from partage.console.common.output import note
from partage.console.common.signals import StopRequest

#: A wait as long as this has no limit.
NO_LIMIT_MS: Final = 2**31 - 1
_LOOK_S: Final = 0.5
#: A first connection that takes longer is reported.
_FIRST_S: Final = 2.0


def wait_for_cluster(
    cluster: ClusterClient,
    look: Callable[[float], object],
    stop: StopRequest,
    *,
    limit_ms: int,
    is_first: bool = False,
) -> None:
    """Call ``look`` with a timeout in seconds until it succeeds, or until a signal.

    Args:
        cluster: The cluster, for the causes of failures.
        look: Sends a request.
        stop: The signal.
        limit_ms: Longest wait; `NO_LIMIT_MS` waits without limit.
        is_first: True if the cluster has not answered before.

    Raises:
        CommandError: The cluster did not answer within the limit, or never will.
    """
    began = time.monotonic()
    is_told = is_examined = False
    while not stop:
        waited_s = time.monotonic() - began
        if waited_s * 1000 >= limit_ms:
            raise cluster.unreachable_error(limit_ms)
        if is_first and not is_examined and waited_s >= cluster.timeout_s:
            is_examined = True
            if (failure := cluster.lasting_error()) is not None:
                raise failure
        try:
            look(min(limit_ms / 1000 - waited_s, _LOOK_S))
        except KafkaException:
            cluster.admin.poll(0)  # collects the causes
            if (failure := cluster.rejection_error()) is not None:
                raise failure from None
            if not is_told and (not is_first or time.monotonic() - began >= _FIRST_S):
                is_told = True
                note(_report(cluster, is_first=is_first))
        else:
            cluster.recent_errors.clear()
            if is_told:
                note(f"connected to {cluster.bootstrap_servers}")
            return


def _report(cluster: ClusterClient, *, is_first: bool) -> str:
    if not is_first:
        return f"lost connection to {cluster.bootstrap_servers}; reconnecting"
    cause = cluster.last_cause()
    because = f" ({cause})" if cause else ""
    return f"no Kafka broker answers at {cluster.bootstrap_servers}{because}; waiting, Ctrl-C stops"
