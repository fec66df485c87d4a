"""The source of one streaming query: sends the requests that its planner needs.

Spark calls the source sequentially. It calls `StreamSource.latest_offset` only after the batch that
ended in ``start`` is written, when no batch is in progress. Actions that must not happen within a
batch happen at this boundary. They are the commit of offsets, the release of revoked partitions,
and the start of newly assigned ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from partage.client.cluster import Cluster
from partage.client.errors import ClientError, RecordsUnavailableError
from partage.client.offsets import EARLIEST, LATEST
from partage.model.topic_partition import TopicPartition
from partage.spark.bounds import SparkOptionError
from partage.spark.offset_resolver import OffsetRange, lookup_timeout_ms, split_ranges
from partage.spark.options import ReadOptions
from partage.spark.stream.offset import (
    CheckpointError,
    QueryIdentity,
    StreamOffset,
    check_identity,
    decode_offset,
    encode_offset,
    nest_by_topic,
    offsets_behind_latest,
)
from partage.spark.stream.partition_source import (
    AllPartitions,
    AssignmentDeadline,
    GroupPartitions,
    OwnedPartitions,
    PartitionSource,
)
from partage.spark.stream.planner import Planner
from partage.spark.stream.query_topics import QueryTopics
from partage.spark.stream.trigger_limits import TriggerLimits

log = logging.getLogger(__name__)

#: Maximum wait of a starting query for its first assignment. An AvailableNow query also waits
#: `_HANDOVER_TIMEOUT_S` for partitions.
_JOIN_TIMEOUT_S: Final = 30.0
_HANDOVER_TIMEOUT_S: Final = 10.0
#: Bounds of the poll interval for new records. It grows while the query is idle, and is longer if a
#: poll takes long.
_POLL_MIN_S: Final = 0.05
_POLL_MAX_S: Final = 0.25
_POLL_GROWTH: Final = 1.2
_POLL_DURATION_FACTOR: Final = 20
_REVOKE_AFTER_FAILED_COMMITS: Final = 3
_IDLE_CHECK_INTERVAL_S: Final = 1.0
_WAIT_STEP_S: Final = 0.2

Ends = dict[TopicPartition, int]


class StreamSource:
    """The source of one query, from the first call to `stop`. Use it on its event loop only."""

    def __init__(
        self, cluster: Cluster, options: ReadOptions, *, is_available_now: bool = False
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._group = options.kafka.group
        self._planner = Planner()
        self._topics = QueryTopics(cluster, options)
        self._partition_source: PartitionSource | None = None
        self._open_lock = asyncio.Lock()
        self._is_available_now = is_available_now
        #: The ends of an AvailableNow query, fixed at its start.
        self._targets: Ends | None = None
        self._has_waited = False
        self._ends: Ends = {}
        self._failed_commits = 0
        self._poll_interval_s = _POLL_MIN_S
        self._boundary_lock = asyncio.Lock()
        #: The end of the last batch while no batch is in progress.
        self._idle_at: StreamOffset | None = None
        self._under_way: StreamOffset | None = None
        self._idle_task: asyncio.Task[None] | None = None

    # Called by the reader.

    async def latest_offset(self, stored: dict[str, Any], limits: TriggerLimits) -> dict[str, Any]:
        """Return the end of the next batch, or ``stored`` itself if there is nothing to read yet.

        Raises:
            CheckpointError: if the stored offset belongs to another cluster, group or topic.
            RecordsUnavailableError, TopicDeletedError: if unread records were deleted and
                failOnDataLoss is true.
            MemberFailedError: if the coordinator rejects or removes the member for good.
            ClientError: if the brokers do not answer for `lookup_timeout_ms`.
        """
        stored_offset = decode_offset(stored)
        source = await self._open(stored_offset)
        async with self._boundary_lock:
            start = await self._topics.check_start(stored_offset)
            if not self._has_waited:
                await self._wait_for_assignment(source)
                self._has_waited = True
            end = await self._next_batch(source, start, limits)
            self._idle_at, self._under_way = (start, None) if end is None else (None, end)
        return stored if end is None else encode_offset(end)

    async def _wait_for_assignment(self, source: PartitionSource) -> None:
        """Wait for the first assignment: Spark runs a first batch in any case, even without
        records.
        """
        if self._targets is None:
            await self._wait_until(source, lambda _: source.has_joined, _JOIN_TIMEOUT_S)
        elif not await self._wait_until(source, bool, _HANDOVER_TIMEOUT_S):
            log.warning("the query has no partitions to read: other members own all of them")

    async def _wait_until(
        self,
        source: PartitionSource,
        condition: Callable[[OwnedPartitions], bool],
        timeout_s: float,
    ) -> bool:
        """Wait until ``condition`` is true of the readable partitions. Return False after the
        timeout.
        """
        deadline = self._deadline(source, timeout_s)
        while not condition(await source.readable()):
            left_s = deadline.remaining_s()
            if left_s <= 0:
                return False
            await source.wait_for_change(min(left_s, _WAIT_STEP_S))
        return True

    def _deadline(self, source: PartitionSource, timeout_s: float) -> AssignmentDeadline:
        """Return a deadline. Only an AvailableNow query waits longer for a coordinator: other
        queries are called again.
        """
        outage_max_s = lookup_timeout_ms(self._options) / 1000 if self._is_available_now else None
        return AssignmentDeadline(source, timeout_s, outage_max_s)

    async def _next_batch(
        self, source: PartitionSource, start: StreamOffset, limits: TriggerLimits
    ) -> StreamOffset | None:
        """Return the next batch, or None if there is none before the timeout."""
        loop = asyncio.get_running_loop()
        deadline = self._deadline(source, self._timeout_s)
        while True:
            began_s = loop.time()
            readable = await self._at_boundary(source, start)
            await self._refresh_ends(readable)
            ends = self._ends_to_read(readable)
            now_ms = int(loop.time() * 1000)
            if self._is_due(ends, limits, now_ms):
                await self._skip_unavailable(readable)
                ends = self._ends_to_read(await self._refresh_owned(source))
                if self._is_due(ends, limits, now_ms):
                    self._poll_interval_s = _POLL_MIN_S
                    identity = self._identity(source)
                    marks = self._topics.snapshots
                    return self._planner.plan(ends, limits, now_ms, identity, marks)
            left_s = deadline.remaining_s()
            if self._targets is None:
                if left_s <= 0:
                    return None
            # A partition that became readable during the requests above may have records.
            elif (left_s <= 0 or source.is_stable) and await source.readable() == readable:
                return None
            wait_s = max(self._poll_interval_s, _POLL_DURATION_FACTOR * (loop.time() - began_s))
            self._poll_interval_s = min(self._poll_interval_s * _POLL_GROWTH, _POLL_MAX_S)
            await source.wait_for_change(max(0.0, min(wait_s, left_s)))

    @property
    def _timeout_s(self) -> float:
        """Timeout of one call: for records, or for partitions if the query ends by itself."""
        if self._targets is not None:
            return _HANDOVER_TIMEOUT_S
        return self._options.kafka.fetch.max_wait_ms / 1000

    async def partitions(self, stored: Mapping[str, Any]) -> list[OffsetRange]:
        """Return the ranges of ``stored``: the same ranges at every call."""
        end = decode_offset(stored)
        await self._open(end)
        self._idle_at, self._under_way = None, end
        return split_ranges(
            end.ranges_to_read,
            self._options.partitions_min,
            self._options.records_per_partition_max,
        )

    def report(self) -> dict[str, Any] | None:
        """Return the last known end offsets and the lag for progress reports, without a request.

        The lag is that after the batch in progress. ``metrics`` has the metrics of Spark's Kafka
        connector. A Python source cannot return them as metrics (as of Spark 4.3).
        """
        if self._partition_source is None or not self._ends:
            return None
        member, generation = self._partition_source.identity
        batch = self._under_way
        lags = self._planner.available(self._ends) if batch is None else batch.lag
        return {
            "ends": nest_by_topic(self._ends),
            "generation": generation,
            "lag": sum(lags.values()),
            "member": member,
            "metrics": offsets_behind_latest(lags),
        }

    async def stop(self, *, leaves: bool = True) -> None:
        """Stop the source; if ``leaves``, leave the group. Do not commit the batch in progress."""
        if self._idle_task is not None:
            self._idle_task.cancel()
        if self._partition_source is not None:
            await self._partition_source.stop(leaves=leaves)

    # Start.

    async def _open(self, stored: StreamOffset) -> PartitionSource:
        """Start the source at the first call, which passes an offset of the checkpoint."""
        async with self._open_lock:
            if self._partition_source is None:
                await self._topics.load(stored)
                check_identity(stored, self._cluster.cluster_id, self._group.group_id)
                if self._is_available_now:
                    partitions = await self._topics.list_partitions()
                    self._targets = await self._topics.list_offsets(partitions, LATEST)
                if self._group.group_id is None:
                    source: PartitionSource = AllPartitions(self._topics.list_partitions)
                else:
                    source = GroupPartitions(self._cluster, self._options.strategy, self._group)
                await source.start()
                self._partition_source = source
                self._idle_task = asyncio.get_running_loop().create_task(self._serve_idle(source))
            else:
                check_identity(stored, self._cluster.cluster_id, self._group.group_id)
            return self._partition_source

    def _identity(self, source: PartitionSource) -> QueryIdentity:
        member, generation = source.identity
        return QueryIdentity(
            cluster=self._cluster.cluster_id,
            servers=self._options.kafka.servers,
            group=self._group.group_id,
            member=member,
            generation=generation,
            instance=self._group.instance_id,
        )

    # Between two batches.

    async def _at_boundary(self, source: PartitionSource, start: StreamOffset) -> OwnedPartitions:
        """Commit processed offsets, release revoked partitions, and start newly assigned ones.

        Return the readable partitions.
        """
        self._planner.complete_batch(start)
        giving = source.pending_revocation
        is_committed = await self._commit(source)
        if giving and (is_committed or self._failed_commits >= _REVOKE_AFTER_FAILED_COMMITS):
            source.complete_revocation()
        readable = await self._refresh_owned(source)
        if await self._set_first_positions(source, readable):
            await self._commit(source)
        return readable

    async def _refresh_owned(self, source: PartitionSource) -> OwnedPartitions:
        """Pass the owned partitions to the planner. Return those that may be read.

        A partition to be revoked cannot be read, but it keeps its position until its release:
        after a failed commit, the next boundary commits it again.
        """
        readable = await source.readable()
        self._planner.update_owned(source.owned)
        return readable

    async def _serve_idle(self, source: PartitionSource) -> None:
        """Release revoked partitions while no trigger fires, so that the group does not wait for
        one.
        """
        while True:
            await source.wait_for_change(_IDLE_CHECK_INTERVAL_S)
            if not source.pending_revocation:
                continue
            try:
                await self._detect_committed_batch(source)
                async with self._boundary_lock:
                    if self._idle_at is not None:
                        # After a restart of the query, this can run before Spark's first call.
                        start = await self._topics.check_start(self._idle_at)
                        await self._at_boundary(source, start)
            except (ClientError, CheckpointError, SparkOptionError) as error:
                # A permanent error is raised at the next trigger.
                log.info("could not serve the group while idle, will retry error=%s", error)

    async def _detect_committed_batch(self, source: PartitionSource) -> None:
        """Mark the batch in progress as done if the driver's listener has committed it."""
        end = self._under_way
        if end is None or not end.ranges_to_read:
            return
        has = await source.committed_offsets([partition for partition, _, _ in end.ranges_to_read])
        if end is self._under_way and all(
            has.get(p, -1) >= last for p, _, last in end.ranges_to_read
        ):
            self._idle_at, self._under_way = end, None

    async def _commit(self, source: PartitionSource) -> bool:
        """Commit all processed offsets of the partitions that the query owns now.

        Return True if the group has them.
        """
        # Without a wait before the commit: another owner may have committed a later offset of a
        # partition that was lost and returned.
        self._planner.update_owned(source.owned)
        due = self._planner.offsets_to_commit()
        if due and not await source.commit(due):
            # Without a coordinator, no member waits for a revocation.
            self._failed_commits += source.has_coordinator
            return False
        self._planner.record_commit(due)
        self._failed_commits = 0
        return True

    async def _set_first_positions(
        self, source: PartitionSource, readable: OwnedPartitions
    ) -> bool:
        """Set the first position of new readable partitions. Return True if there are any.

        A first position that neither the group nor the checkpoint has is committed at once.
        Otherwise the next owner would look it up again and skip the records that arrived in
        between.
        """
        new = [p for p in self._planner.without_position if p in readable]
        if not new:
            return False
        committed = await source.committed_offsets(new)
        unknown = [p for p in new if p not in committed and not self._planner.is_in_checkpoint(p)]
        otherwise = await self._topics.first_positions(unknown)
        for partition in new:
            at = committed.get(partition)
            if (
                at is not None
                or partition in otherwise
                or self._planner.is_in_checkpoint(partition)
            ):
                self._planner.set_first_position(partition, at, otherwise.get(partition, 0))
        return True

    # Available records.

    async def _refresh_ends(self, readable: OwnedPartitions) -> None:
        """Request the ends of readable partitions: during an outage of a member that has none, no
        request takes the time in which the member returns.
        """
        partitions = sorted(p for p in self._planner.positions if p in readable)
        self._ends = await self._topics.list_offsets(partitions, LATEST)

    def _ends_to_read(self, readable: OwnedPartitions) -> Ends:
        """Return the ends of the readable partitions.

        With AvailableNow, limit them to the fixed ends of the query.
        """
        ends = {p: end for p, end in self._ends.items() if p in readable}
        if self._targets is None:
            return ends
        targets = self._targets
        return {p: min(end, targets[p]) for p, end in ends.items() if p in targets}

    def _is_due(self, ends: Ends, limits: TriggerLimits, now_ms: int) -> bool:
        return bool(self._past_end()) or self._planner.is_batch_due(ends, limits, now_ms)

    def _past_end(self) -> list[TopicPartition]:
        """Return partitions with a position past their end: truncated or recreated ones."""
        return [p for p, at in self._planner.positions.items() if at > self._ends.get(p, at)]

    async def _skip_unavailable(self, readable: OwnedPartitions) -> None:
        """Skip records that were deleted before they were read; raise if failOnDataLoss is true."""
        recreated = await self._topics.refresh()
        positions = self._planner.positions
        earliest = await self._topics.list_offsets(sorted(positions), EARLIEST)
        if self._past_end():  # a new leader may not know the end yet
            await asyncio.sleep(self._options.offset_retry_interval_ms / 1000)
            await self._refresh_ends(readable)
        for partition, at in positions.items():
            first, last = earliest.get(partition), self._ends.get(partition)
            if first is None or last is None:
                continue
            if partition.topic in recreated:
                self._planner.reset_position(partition, first)
            elif at < first:
                self._topics.on_data_loss(RecordsUnavailableError(partition, at, first, last))
                self._planner.reset_position(partition, first)
            elif at > last:
                self._topics.on_data_loss(RecordsUnavailableError(partition, at, first, last))
                self._planner.reset_position(partition, last)
