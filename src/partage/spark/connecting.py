"""One client for each cluster in each of Spark's Python processes.

Spark reuses its workers, so connections outlive the task that made them.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from partage.client.cluster import Cluster
from partage.client.loop_thread import LoopThread
from partage.client.options import ClientOptions
from partage.spark.kafka_options import KafkaOptions


class Connected(msgspec.Struct, frozen=True):
    """A cluster, and the loop that its connections live on."""

    loop: LoopThread
    cluster: Cluster


# Keyed by process: threads and connections do not survive a fork, and workers are forked.
_CONNECTED: Final[dict[tuple[int, str, ClientOptions], Connected]] = {}


def connect(kafka: KafkaOptions, *, is_known_to_answer: bool) -> Connected:
    """The client for this cluster and these settings; nothing is sent before it is used.

    A cluster that is known to answer, because a query was planned with it, is waited for.
    """
    client = msgspec.structs.replace(kafka.client, is_patient=is_known_to_answer)
    key = (os.getpid(), kafka.servers, client)
    found = _CONNECTED.get(key)
    if found is None:
        loop = next((c.loop for (pid, _, _), c in _CONNECTED.items() if pid == key[0]), None)
        found = Connected(loop or LoopThread(), Cluster(kafka.servers, client))
        _CONNECTED[key] = found
    return found
