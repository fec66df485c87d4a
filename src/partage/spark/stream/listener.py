"""Committing at the end of each batch, from the driver: what `partage.spark.install` adds.

A query's source commits a batch when Spark calls it next, which is at the next trigger. Spark tells
listeners of a batch as soon as it is written. What is committed then is what the batch's end says,
in the name of the member and generation that planned it, and nothing that is behind what the group
has: a coordinator that knows better refuses, and the source makes up for it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from partage.client.cluster import Cluster
from partage.client.errors import ClientError
from partage.client.group.coordinator_client import CoordinatorClient
from partage.client.group.offsets import OffsetAndMetadata, commit, fetch_committed
from partage.client.loop_thread import LoopThread
from partage.member.member import CommitIdentity
from partage.spark.bounds import BadOption
from partage.spark.kafka_options import PREFIX, SERVERS, parse_kafka_options
from partage.spark.stream.offset import BadCheckpoint, StreamOffset, read

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)


class CommitListener(StreamingQueryListener):
    """Commits what queries of groups have finished; of others it takes no notice."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower().removeprefix(PREFIX): text for name, text in options.items()}
        parse_kafka_options({SERVERS: "localhost:9092", **self._given})
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._groups: dict[tuple[str, str], _Group] = {}
        #: By query: what is being committed, and what is to be after it.
        self._busy: dict[str, Future[None]] = {}
        self._next: dict[str, StreamOffset] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is to be done."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing is to be done."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing is to be done."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is written; does not wait for its commit."""
        for number, source in enumerate(event.progress.sources):
            end = _ours(source.endOffset)
            if end is not None:
                self._begin(f"{event.progress.runId}-{number}", end)

    # One commit of a query at a time, and of several that wait the last one.

    def _begin(self, query: str, end: StreamOffset) -> None:
        with self._lock:
            self._next[query] = end
            if query in self._busy:
                return
            if self._loop is None:
                self._loop = LoopThread("partage-commits")
            future = self._loop.submit(self._commit_all(query))
            self._busy[query] = future
        future.add_done_callback(_tell)

    async def _commit_all(self, query: str) -> None:
        try:
            while (end := self._after(query)) is not None:
                try:
                    await self._commit(end)
                except (ClientError, BadOption) as error:  # the source makes up for it
                    log.info("could not commit a batch; the source will retry error=%r", error)
        except BaseException:
            with self._lock:
                del self._busy[query]
            raise

    def _after(self, query: str) -> StreamOffset | None:
        """What is to be committed next; None, and the query is busy no more, if nothing is."""
        with self._lock:
            end = self._next.pop(query, None)
            if end is None:
                del self._busy[query]
            return end

    async def _commit(self, end: StreamOffset) -> None:
        whose = end.whose
        assert whose.group is not None, "only offsets of groups are committed"
        key = (whose.servers, whose.group)
        if key not in self._groups:
            self._groups[key] = _Group(
                parse_kafka_options({SERVERS: whose.servers, **self._given}).client,
                *key,
            )
        await self._groups[key].commit(end)


class _Group:
    """A group whose offsets are committed, and the connection to its coordinator."""

    def __init__(self, client: Any, servers: str, group_id: str) -> None:
        self._group_id = group_id
        self._cluster = Cluster(servers, msgspec.structs.replace(client, is_patient=True))
        self._coordinator = CoordinatorClient(self._cluster, group_id)

    async def commit(self, end: StreamOffset) -> None:
        """What is ahead of what the group has; one attempt, and another after a lost connection."""
        for is_last in (False, True):
            try:
                await self._attempt(end)
            except ClientError as error:
                if is_last or not error.is_retriable:
                    raise
            else:
                return

    async def _attempt(self, end: StreamOffset) -> None:
        has = await fetch_committed(self._coordinator, self._group_id, sorted(end.ranges))
        ahead = {
            partition: OffsetAndMetadata(last)
            for partition, (_, last) in end.ranges.items()
            if partition not in has or has[partition].offset < last
        }
        whose = end.whose
        identity = CommitIdentity(
            generation=whose.generation, member_id=whose.member, instance_id=whose.instance
        )
        if ahead:
            await commit(self._coordinator, self._group_id, identity, ahead)


def _tell(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("failed to commit a batch", exc_info=error)


def _ours(text: str | None) -> StreamOffset | None:
    """A source's offset, if it is one of this source in a group."""
    try:
        end = read(json.loads(text or ""))
    except (ValueError, AttributeError, BadCheckpoint):
        return None
    return None if end.is_initial or end.whose.group is None else end
