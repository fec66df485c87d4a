"""Cache of clients: one for each cluster and settings in each Python process of Spark.

Spark reuses its Python workers, so a connection can serve several tasks.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from partage.client.cluster import Cluster
from partage.client.loop_thread import LoopThread
from partage.client.options import ClientOptions
from partage.spark.kafka_options import KafkaOptions


class CachedClient(msgspec.Struct, frozen=True):
    """A cluster client and the event loop thread that runs its connections."""

    loop: LoopThread
    cluster: Cluster


# The key contains the process id: threads and connections do not survive a fork, and Spark forks
# its workers.
_CLIENTS: Final[dict[tuple[int, str, ClientOptions], CachedClient]] = {}


def get_client(kafka: KafkaOptions, *, is_known_to_answer: bool) -> CachedClient:
    """Return the cached client for this cluster and these settings, or create one.

    It sends nothing before its first use.

    Args:
        kafka: addresses and client settings.
        is_known_to_answer: True if the query was already planned with this cluster. The client
            then retries its first connection instead of failing at once.
    """
    client = msgspec.structs.replace(kafka.client, may_retry_initial_connect=is_known_to_answer)
    key = (os.getpid(), kafka.servers, client)
    found = _CLIENTS.get(key)
    if found is None:
        loop = next((c.loop for (pid, _, _), c in _CLIENTS.items() if pid == key[0]), None)
        found = CachedClient(loop or LoopThread(), Cluster(kafka.servers, client))
        _CLIENTS[key] = found
    return found
