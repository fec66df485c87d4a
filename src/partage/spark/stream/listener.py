"""Query listener on the driver that commits at the end of each batch.

`partage.spark.install_commit_listener` adds it to a session.

The source of a query commits a batch at Spark's next call, which is at the next trigger. Spark
notifies listeners as soon as a batch is written. The listener commits the batch's end offsets as
the member and generation that planned the batch. It never commits an offset behind the group's
committed offset. If the coordinator rejects the commit, the source commits later.
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
from partage.spark.bounds import SparkOptionError
from partage.spark.kafka_options import PREFIX, SERVERS, parse_kafka_options
from partage.spark.stream.offset import CheckpointError, StreamOffset, decode_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)


class CommitListener(StreamingQueryListener):
    """Commits finished batches of queries that have a group; ignores other queries."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower().removeprefix(PREFIX): text for name, text in options.items()}
        parse_kafka_options({SERVERS: "localhost:9092", **self._given})
        self._lock = threading.Lock()
        self._loop: LoopThread | None = None
        self._groups: dict[tuple[str, str], _Group] = {}
        #: By query: the commit in flight, and the offset to commit after it.
        self._commits_in_flight: dict[str, Future[None]] = {}
        self._pending: dict[str, StreamOffset] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Ignore the event."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Ignore the event."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Ignore the event."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Schedule a commit of the written batch; do not wait for it."""
        for number, source in enumerate(event.progress.sources):
            end = _parse_group_offset(source.endOffset)
            if end is not None:
                self._schedule_commit(f"{event.progress.runId}-{number}", end)

    # A query has one commit in flight at most. Of several pending commits, only the last is sent.

    def _schedule_commit(self, query: str, end: StreamOffset) -> None:
        with self._lock:
            self._pending[query] = end
            if query in self._commits_in_flight:
                return
            if self._loop is None:
                self._loop = LoopThread("partage-commits")
            future = self._loop.submit(self._commit_all(query))
            self._commits_in_flight[query] = future
        future.add_done_callback(_log_failure)

    async def _commit_all(self, query: str) -> None:
        try:
            while (end := self._pop_pending(query)) is not None:
                try:
                    await self._commit(end)
                # the source commits it at the next trigger
                except (ClientError, SparkOptionError) as error:
                    log.info("could not commit a batch; the source will retry error=%r", error)
        except BaseException:
            with self._lock:
                del self._commits_in_flight[query]
            raise

    def _pop_pending(self, query: str) -> StreamOffset | None:
        """Return the next offset to commit. If there is none, clear the commit in flight."""
        with self._lock:
            end = self._pending.pop(query, None)
            if end is None:
                del self._commits_in_flight[query]
            return end

    async def _commit(self, end: StreamOffset) -> None:
        identity = end.identity
        assert identity.group is not None, "only offsets of groups are committed"
        key = (identity.servers, identity.group)
        if key not in self._groups:
            self._groups[key] = _Group(
                parse_kafka_options({SERVERS: identity.servers, **self._given}).client,
                *key,
            )
        await self._groups[key].commit(end)


class _Group:
    """A group to commit for, with the connection to its coordinator."""

    def __init__(self, client: Any, servers: str, group_id: str) -> None:
        self._group_id = group_id
        self._cluster = Cluster(
            servers, msgspec.structs.replace(client, may_retry_initial_connect=True)
        )
        self._coordinator = CoordinatorClient(self._cluster, group_id)

    async def commit(self, end: StreamOffset) -> None:
        """Commit offsets ahead of the group's; retry once if the error is retriable."""
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
        query = end.identity
        identity = CommitIdentity(
            generation=query.generation, member_id=query.member, instance_id=query.instance
        )
        if ahead:
            await commit(self._coordinator, self._group_id, identity, ahead)


def _log_failure(future: Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("failed to commit a batch", exc_info=error)


def _parse_group_offset(text: str | None) -> StreamOffset | None:
    """Parse the end offset of a source; None if it is not a partage source in a group."""
    try:
        end = decode_offset(json.loads(text or ""))
    except (ValueError, AttributeError, CheckpointError):
        return None
    return None if end.is_initial or end.identity.group is None else end
