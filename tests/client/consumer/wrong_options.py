"""Calls that a type checker must accept or reject; ``error:`` names the expected error code."""

from __future__ import annotations

import partage
import partage.sync
from partage.recipes import LeaderElection, Processor, RedundantIndexer, Task, TaskId, WorkerPool
from partage.recipes.sync import Processor as BlockingProcessor

SERVERS = "localhost:9092"
config: partage.ConsumerConfig = {"group_id": "tower", "session_timeout_ms": 10_000}

partage.Consumer(SERVERS, **config)
partage.Consumer(SERVERS, sesion_timeout_ms=10_000)  # error: call-arg
partage.Consumer(SERVERS, session_timeout_ms="10 s")  # error: arg-type
partage.Consumer(SERVERS, isolation_level="all")  # error: arg-type
partage.Consumer(SERVERS, ssl_check_hostname="false")  # error: arg-type
partage.Consumer(SERVERS, partition_assignment_strategy=["range"])
partage.Consumer(SERVERS, partition_assignment_strategy=[1])  # error: list-item

partage.sync.Consumer(SERVERS, **config)
partage.sync.Consumer(SERVERS, max_poll_recrods=1)  # error: call-arg
partage.sync.Consumer(SERVERS, max_poll_records=1.5)  # error: arg-type

partage.Membership(SERVERS, "crew", "crew", {}, group_instance_id="a")
partage.Membership(SERVERS, "crew", "crew", {}, auto_offset_reset="latest")  # error: call-arg
partage.sync.Membership(SERVERS, "crew", "crew", {}, rebalance_timeout_ms=1)
partage.sync.Membership(SERVERS, "crew", "crew", {}, check_crcs=True)  # error: call-arg

LeaderElection(SERVERS, "scheduler", session_timeout_ms=6_000)
LeaderElection(SERVERS, "scheduler", group_instance_id="a")  # error: call-arg


async def crawl(site: str) -> None: ...


WorkerPool(SERVERS, "crawlers", ["a"], crawl, name="a", client_id="crawler")
WorkerPool(SERVERS, "crawlers", ["a"], crawl, name="a", client_rack="r")  # error: call-arg


class Join(Task):
    def __init__(self, task_id: TaskId) -> None: ...


Processor(SERVERS, "joiner", Join, joined=["a", "b"], auto_offset_reset="latest")
Processor(SERVERS, "joiner", Join, joined=["a"], enable_auto_commit=True)  # error: call-arg
BlockingProcessor(SERVERS, "joiner", Join, joined=["a"], max_poll_records="1")  # error: arg-type

RedundantIndexer(SERVERS, "search", ["a"], "indexes", client_rack="r")
RedundantIndexer(SERVERS, "search", ["a"], "i", auto_offset_reset="none")  # error: call-arg

consumer = partage.sync.Consumer(SERVERS, group_id="g")
positions: dict[partage.TopicPartition, int] = {}
pairs: dict[tuple[str, int], int] = {}
consumer.commit(positions)
consumer.commit(pairs)
consumer.commit({"flights": 5})  # error: arg-type
consumer.offsets_for_times(positions)
