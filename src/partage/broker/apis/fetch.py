"""Fetch: stored record batches of partitions, once enough bytes are available."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from partage.broker.net.inbound_request import InboundRequest
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.log_reader import LogReader
from partage.broker.topics.partition import Partition
from partage.log.errors import DamagedLogError
from partage.log.results import Refusal, Slice
from partage.log.segments.aborted_index import AbortedTransaction
from partage.model.errors import ErrorCode
from partage.wire.apis.fetch import (
    FetchAbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
)
from partage.wire.types import Buffer

log = logging.getLogger(__name__)

_NO_SESSION = 0
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
READ_COMMITTED: Final = 1  # an isolation level
#: The most lookups of one request whose slices cannot be read: with a failing disk, each could find
#: other partitions.
_LOOKUPS_MAX: Final = 10


class _RequestedPartition(NamedTuple):
    """A partition of the request, or the reason why it cannot be read."""

    requested: FetchPartition
    partition: Partition | Refusal


class _LocatedPartition(NamedTuple):
    """The slices to send for one partition, and the aborted transactions that they overlap."""

    requested: _RequestedPartition
    slices: list[Slice]
    error: ErrorCode
    aborted: list[AbortedTransaction] | None = None  # None for isolation level read_uncommitted
    compaction_count: int = 0

    @property
    def is_stale(self) -> bool:
        """True if a compaction may have removed a marker on which ``aborted`` relies.

        Without that marker a reader would skip later records of its producer, too.
        """
        partition = self.requested.partition
        return (
            self.aborted is not None
            and isinstance(partition, Partition)
            and partition.log.compaction_count != self.compaction_count
        )


class FetchHandler:
    """One Fetch request, until enough bytes are available or its wait time has passed.

    Fetch sessions (KIP-227) are not kept. Every request names all its partitions; session id 0 in
    the response says so. With isolation level read_committed, only data below the last stable
    offset counts (KIP-98).
    """

    def __init__(self, inbound: InboundRequest, log_manager: LogManager, reads: LogReader) -> None:
        self._inbound = inbound
        self._request: FetchRequest = inbound.message
        self._log_reader = reads
        self._only_stable = self._request.isolation_level == READ_COMMITTED
        self._bytes_max = min(
            self._request.max_bytes,
            log_manager.settings.fetch_bytes_max,
            inbound.connection.response_bytes_max,
        )
        self._loop = asyncio.get_running_loop()
        self._topics = [
            (topic, list(self._resolve(topic, log_manager)))
            for topic in _deduplicated(self._request)
        ]
        self._missing_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        # by number in the request: partitions whose first slice could not be read
        self._failed_once: set[int] = set()
        self._failures: dict[int, ErrorCode] = {}
        self._failed_lookup_count = 0

    def run(self) -> None:
        """Send the available records, or wait for more."""
        refused = self._session_error()
        if refused:
            self._inbound.respond(FetchResponse(error_code=refused, responses=[]))
            return
        found = self._locate_all()
        self._missing_bytes = min(self._request.min_bytes, self._bytes_max) - _located_bytes(found)
        if (
            self._missing_bytes <= 0
            or self._request.max_wait_ms <= 0
            or any(f.error for f in found)
        ):
            self._send(found)
            return
        for partition in self._partitions():
            partition.add_listener(self, only_stable=self._only_stable)
        self._timer = self._loop.call_later(self._request.max_wait_ms / 1000, self.end_wait)
        self._inbound.connection.on_lost = self._stop_waiting

    def _session_error(self) -> ErrorCode:
        request = self._request
        if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
            # Only followers fetch beyond the high watermark, and there are no followers:
            # https://nvd.nist.gov/vuln/detail/CVE-2018-1288
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        begins_one = request.session_id == _NO_SESSION and request.session_epoch == _INITIAL_EPOCH
        if request.session_epoch != _FINAL_EPOCH and not begins_one:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return ErrorCode.NONE

    def _resolve(self, topic: FetchTopic, log_manager: LogManager) -> Iterator[_RequestedPartition]:
        name = topic.topic
        if self._inbound.version >= 13:
            known = log_manager.topic_by_id(topic.topic_id)
            if known is None:
                unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has the requested id")
                yield from (
                    _RequestedPartition(requested, unknown) for requested in topic.partitions
                )
                return
            name = known.name
        for requested in topic.partitions:
            partition = log_manager.partition(name, requested.partition)
            if partition is not None:
                yield _RequestedPartition(requested, partition)
                continue
            code = log_manager.missing_partition_error(name, requested.partition)
            yield _RequestedPartition(
                requested, Refusal(code, f"this broker does not hold {name}-{requested.partition}")
            )

    def _partitions(self) -> Iterator[Partition]:
        for _, wanted in self._topics:
            for one in wanted:
                if isinstance(one.partition, Partition):
                    yield one.partition

    def on_partition_changed(self, byte_count: int) -> None:
        """End the wait if all partitions together have enough bytes, or if a partition failed."""
        self._missing_bytes -= byte_count
        if self._missing_bytes <= 0 or not byte_count:
            self.end_wait()

    def end_wait(self) -> None:
        """Send what is available now, which may be nothing."""
        self._inbound.connection.on_lost = None
        self._stop_waiting()
        self._send(self._locate_all())

    def _stop_waiting(self) -> None:
        for partition in self._partitions():
            partition.remove_listener(self)
        if self._timer is not None:
            self._timer.cancel()

    def _locate_all(self) -> list[_LocatedPartition]:
        """Return the slices to read of each partition, within the request's limits (KIP-74)."""
        left, nothing_yet = self._bytes_max, True
        found: list[_LocatedPartition] = []
        for _, wanted in self._topics:
            for one in wanted:
                failure = self._failures.get(len(found))
                if failure is not None:
                    found.append(_LocatedPartition(one, [], failure))
                    continue
                located = self._locate(one, left, whole_first=nothing_yet)
                if located.slices:
                    nothing_yet = False
                    left -= sum(part.length for part in located.slices)
                found.append(located)
        return found

    def _locate(
        self, wanted: _RequestedPartition, left: int, *, whole_first: bool
    ) -> _LocatedPartition:
        requested, partition = wanted
        if isinstance(partition, Refusal):
            return _LocatedPartition(wanted, [], partition.code)
        error = partition.error or leader_epoch_error(requested.current_leader_epoch)
        if error:
            is_by_id = self._inbound.version >= 13
            is_gone = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            error = ErrorCode.UNKNOWN_TOPIC_ID if is_by_id and is_gone else error
            return _LocatedPartition(wanted, [], error)
        limit = max(0, min(left, requested.partition_max_bytes))
        offset, aborted = requested.fetch_offset, None
        try:
            located = partition.log.locate(
                offset, limit, whole_first=whole_first, only_stable=self._only_stable
            )
            if isinstance(located, Refusal):
                return _LocatedPartition(wanted, [], located.code)
            if self._only_stable:
                aborted = partition.log.aborted_transactions(offset, located)
        except DamagedLogError as fault:
            self._log_reader.log_damage(fault.path, fault.position, fault.fault)
            return _LocatedPartition(wanted, [], ErrorCode.CORRUPT_MESSAGE)
        except OSError as fault:
            log.error("%s: %s", partition.name, fault)
            return _LocatedPartition(wanted, [], ErrorCode.KAFKA_STORAGE_ERROR)
        count = partition.log.compaction_count
        return _LocatedPartition(wanted, located, ErrorCode.NONE, aborted, count)

    def _send(self, found: list[_LocatedPartition]) -> None:
        slices = [part for one in found for part in one.slices]

        def then(contents: list[Buffer | ErrorCode]) -> None:
            read = iter(contents)
            by_partition = [[next(read) for _ in one.slices] for one in found]
            is_stale = any(one.is_stale for one in found)
            if self._note_failures(by_partition) or is_stale:
                # A compaction may have changed the segments; a failed partition needs no room.
                self._send(self._locate_all())
            else:
                self._respond(found, by_partition)

        contents = self._log_reader.read_cached(slices)
        if contents is not None:
            then(contents)
        else:
            self._log_reader.read_in_thread(slices, then)

    def _note_failures(self, contents: list[list[Buffer | ErrorCode]]) -> bool:
        """Note the partitions whose first slice could not be read.

        A segment may have been removed or compacted since the lookup. So only the second failure of
        a partition is its result, except in the last lookup.

        Returns:
            True if the slices must be looked up again.
        """
        failed = {
            number: read[0]
            for number, read in enumerate(contents)
            if read and isinstance(read[0], ErrorCode)
        }
        self._failures |= {
            number: code for number, code in failed.items() if number in self._failed_once
        }
        self._failed_once |= failed.keys()
        self._failed_lookup_count += bool(failed)
        return bool(failed) and self._failed_lookup_count < _LOOKUPS_MAX

    def _respond(
        self, found: list[_LocatedPartition], contents: list[list[Buffer | ErrorCode]]
    ) -> None:
        """Respond with the bytes that were read of each partition."""
        results = iter(map(self._result, found, contents))
        self._inbound.respond(
            FetchResponse(
                responses=[
                    FetchTopicResult(
                        topic=topic.topic,
                        topic_id=topic.topic_id,
                        partitions=[next(results) for _ in wanted],
                    )
                    for topic, wanted in self._topics
                ]
            )
        )

    @staticmethod
    def _result(
        found: _LocatedPartition, contents: list[Buffer | ErrorCode]
    ) -> FetchPartitionResult:
        requested, partition = found.requested
        error, aborted = found.error, found.aborted
        records: list[Buffer] = []
        for content in contents:
            if isinstance(content, ErrorCode):
                # A later slice that cannot be read is the first one of a later Fetch.
                error = error if records else content
                break
            records.append(content)
        if isinstance(partition, Refusal):
            high_watermark = last_stable_offset = log_start_offset = -1
        else:
            high_watermark = partition.log.high_watermark
            last_stable_offset = partition.log.last_stable_offset
            log_start_offset = partition.log.log_start_offset
        return FetchPartitionResult(
            partition_index=requested.partition,
            error_code=error,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=None
            if aborted is None
            else [
                FetchAbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in aborted
            ],
            records=records,
        )


def _deduplicated(request: FetchRequest) -> list[FetchTopic]:
    """Return each requested partition once. As in Kafka, the last occurrence counts."""
    topics: dict[tuple[str, bytes], dict[int, FetchPartition]] = {}
    for topic in request.topics:
        by_index = {p.partition: p for p in topic.partitions}
        topics.setdefault((topic.topic, topic.topic_id), {}).update(by_index)
    return [
        FetchTopic(topic=name, topic_id=topic_id, partitions=list(by_index.values()))
        for (name, topic_id), by_index in topics.items()
    ]


def _located_bytes(found: list[_LocatedPartition]) -> int:
    return sum(part.length for one in found for part in one.slices)


def leader_epoch_error(claimed: int) -> ErrorCode:
    """Return the error for the leader epoch that a client claims (KIP-320); the epoch is always 0
    here.
    """
    if claimed > 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE
