"""Reading a range of offsets from one partition, with retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from partage.client.cluster import Cluster
from partage.client.errors import (
    CORRUPT_ON_BROKER,
    BatchTooLargeError,
    BrokerResponseError,
    ClientError,
    CorruptRecordsError,
    NoProgressError,
    RecordsUnavailableError,
)
from partage.client.metadata import LeaderAndEpoch, TopicMetadata
from partage.client.offsets import EARLIEST, LATEST, list_offsets
from partage.client.read_replica import ReadReplica
from partage.client.retries import Retries
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
)
from partage.wire.primitives import MalformedError
from partage.wire.records.batch import HEADER_SIZE, parse_header
from partage.wire.records.columns import RecordColumns
from partage.wire.records.decoder import decode_columns, scan
from partage.wire.types import ZERO_UUID, Buffer

log = logging.getLogger(__name__)

_LAST_BY_NAME: Final = 12  # The last version that uses topic names; later ones use topic ids
_FRAME_ROOM: Final = 64 * 1024  # Bytes of a response besides the records
_COLUMNS_SIZE: Final = 64 * 1024 * 1024
_FOLLOWER_STALLS_MAX: Final = 2  # Fetches without progress; then the leader serves the range


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for reading a range.

    Attributes:
        partition_bytes_max: The maximum size of one response; a larger batch is still returned
            whole
            (KIP-74).
        max_wait_ms: The time for which a broker waits for records.
        read_committed: True to skip records of aborted and open transactions.
        verify_crc: True to verify checksums.
        progress_timeout_ms: The longest time without a record before the read fails.
        may_skip_unavailable: True to skip offsets that no longer exist, with a warning.
        rack: The rack of this reader. Leaders may name a follower in it to read from (KIP-392).
    """

    partition_bytes_max: int = 8 * 1024 * 1024
    max_wait_ms: int = 500
    read_committed: bool = False
    verify_crc: bool = True
    progress_timeout_ms: int = 120_000
    may_skip_unavailable: bool = False
    rack: str | None = None


class FetchedRange(msgspec.Struct, frozen=True):
    """The batches of one response, as stored.

    The wanted offsets are ``from_offset`` (inclusive) to ``to_offset`` (exclusive). The first batch
    may begin earlier and the last one end later. ``aborted`` is None unless only committed records
    are read.
    """

    partition: TopicPartition
    from_offset: int
    to_offset: int
    records: Buffer
    aborted: list[tuple[int, int]] | None = None


async def fetch_range(
    cluster: Cluster,
    partition: TopicPartition,
    from_offset: int,
    to_offset: int,
    options: FetchOptions | None = None,
) -> AsyncIterator[FetchedRange]:
    """Yield the records from ``from_offset`` (inclusive) to ``to_offset`` (exclusive), in order.

    The read survives leader changes, broker restarts and broken connections, as long as records
    arrive within ``progress_timeout_ms``. Gaps from compaction are normal.

    Args:
        cluster: The cluster to read from.
        partition: The partition.
        from_offset: The first offset.
        to_offset: The offset after the last one.
        options: The defaults if None.

    Yields:
        The batches of one response at a time.

    Raises:
        RecordsUnavailableError: An offset of the range does not exist any longer, or not yet.
        UnknownTopicError, UnknownPartitionError: The partition does not exist.
        NoProgressError, BatchTooLargeError, CorruptRecordsError, BrokerResponseError,
            BrokersUnreachableError: See there.
    """
    reading = _RangeFetcher(cluster, partition, to_offset, options or FetchOptions())
    position = from_offset
    while position < to_offset:
        try:
            fetched, position = await reading.next(position)
        except RecordsUnavailableError as gone:
            if not reading.options.may_skip_unavailable:
                raise
            resumed = gone.earliest if position < gone.earliest else to_offset
            log.warning("%s; continued at offset %d", gone, min(resumed, to_offset))
            position = resumed
        else:
            yield fetched


class _RangeFetcher:
    """The state of one `fetch_range`."""

    def __init__(
        self, cluster: Cluster, partition: TopicPartition, to_offset: int, options: FetchOptions
    ) -> None:
        self.options = options
        self._cluster = cluster
        self._partition = partition
        self._to_offset = to_offset
        self._bytes_max = options.partition_bytes_max
        policy = msgspec.structs.replace(
            cluster.options.retries, timeout_ms=options.progress_timeout_ms, attempts_max=None
        )
        self._retries = Retries(policy)
        self._read_replica = ReadReplica(cluster.options.metadata_max_age_ms)
        self._rack = options.rack or ""
        self._follower_stalls = 0  # fetches from followers since the last progress

    async def next(self, position: int) -> tuple[FetchedRange, int]:
        """Return the next response with records, and the position after it."""
        self._retries.reset()
        self._follower_stalls = 0
        while True:
            try:
                return await self._attempt(position)
            except ClientError as error:
                if not isinstance(error, NoProgressError):
                    self._read_replica.clear()
                    self._cluster.invalidate_topic(self._partition.topic)
                await self._retries.wait_or_raise(error)

    async def _attempt(self, position: int) -> tuple[FetchedRange, int]:
        leadership, broker_id = await self._select_broker()
        result = await self._ask(position, leadership, broker_id)
        if not result.error_code and result.preferred_read_replica >= 0:
            # Such a response has no records. A second one in a row waits for the next attempt.
            self._read_replica.prefer(result.preferred_read_replica, leadership, self._now_ms())
            leadership, broker_id = await self._select_broker()
            result = await self._ask(position, leadership, broker_id)
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if broker_id != leadership.leader_id:
                # A follower may be behind its leader: the next attempt asks the leader.
                raise BrokerResponseError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"fetching {self._partition} from follower {broker_id}",
                )
            await self._raise_gone(position)
        if result.error_code == ErrorCode.CORRUPT_MESSAGE:
            raise CorruptRecordsError(self._partition, position, CORRUPT_ON_BROKER)
        if result.error_code:
            raise BrokerResponseError(result.error_code, f"fetching {self._partition}")
        records: Buffer = result.records[0] if result.records else b""
        after = _position_after(self._partition, records, position)
        if after == position:
            self._make_room(records, position)
            if broker_id != leadership.leader_id:
                self._on_follower_stall()
            raise NoProgressError(
                self._partition, position, self._to_offset, self.options.progress_timeout_ms
            )
        aborted = None
        if self.options.read_committed:
            aborted = [(t.producer_id, t.first_offset) for t in result.aborted_transactions or ()]
        to_offset = min(after, self._to_offset)
        return FetchedRange(self._partition, position, to_offset, records, aborted), after

    def _on_follower_stall(self) -> None:
        """Read from the leader if a follower seems to have stopped replicating.

        Without a rack in the requests, the leader names no follower again.
        """
        self._follower_stalls += 1
        if self._follower_stalls >= _FOLLOWER_STALLS_MAX:
            self._read_replica.clear()
            self._rack = ""

    async def _select_broker(self) -> tuple[LeaderAndEpoch, int]:
        """Return the leader, and the broker to read from."""
        leadership = await self._cluster.leadership(self._partition)
        broker_id = self._read_replica.select(leadership, self._now_ms())
        if broker_id == leadership.leader_id:
            return leadership, broker_id
        topic = (await self._cluster.topics([self._partition.topic]))[self._partition.topic]
        if broker_id in topic.online_replicas.get(self._partition.partition, ()):
            return leadership, broker_id
        self._read_replica.clear()
        self._cluster.invalidate_topic(self._partition.topic)
        leadership = await self._cluster.leadership(self._partition)
        return leadership, leadership.leader_id

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _ask(
        self, position: int, leadership: LeaderAndEpoch, broker_id: int
    ) -> FetchPartitionResult:
        connection = await self._cluster.replica(self._partition, broker_id)
        topic = (await self._cluster.topics([self._partition.topic]))[self._partition.topic]
        request = self._request(position, topic, leadership)
        answer = await connection.send(
            FETCH, request, version_max=_LAST_BY_NAME if topic.topic_id == ZERO_UUID else None
        )
        if answer.error_code:
            raise BrokerResponseError(answer.error_code, f"fetching {self._partition}")
        for one in answer.responses:
            for result in one.partitions:
                return result  # One partition was requested
        raise BrokerResponseError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._partition} is missing in the response"
        )

    def _request(
        self, position: int, topic: TopicMetadata, leadership: LeaderAndEpoch
    ) -> FetchRequest:
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=leadership.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=self._bytes_max,
        )
        return FetchRequest(
            max_wait_ms=self.options.max_wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=int(self.options.read_committed),
            topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[wanted])],
            rack_id=self._rack,
        )

    async def _raise_gone(self, position: int) -> None:
        """Raise `RecordsUnavailableError` with the existing range, or a retriable error if it is
        unknown.
        """
        committed = self.options.read_committed
        ends = [
            await list_offsets(self._cluster, {self._partition: end}, read_committed=committed)
            for end in (EARLIEST, LATEST)
        ]
        earliest, latest = (found[self._partition] for found in ends)
        if earliest is None or latest is None or earliest.offset <= position <= latest.offset:
            raise BrokerResponseError(ErrorCode.OFFSET_NOT_AVAILABLE, f"fetching {self._partition}")
        raise RecordsUnavailableError(self._partition, position, earliest.offset, latest.offset)

    def _make_room(self, records: Buffer, position: int) -> None:
        """Request more bytes if not even one batch fitted (brokers without KIP-74)."""
        if len(records) < HEADER_SIZE:
            return
        size = parse_header(records).size
        largest = self._cluster.options.response_bytes_max - _FRAME_ROOM
        if size > largest:
            raise BatchTooLargeError(self._partition, position, size, largest)
        self._bytes_max = max(self._bytes_max, size)


def _position_after(partition: TopicPartition, records: Buffer, position: int) -> int:
    """Return the position after the last complete batch, not after the last record.

    Compaction removes records, and transaction markers are not returned as records.
    """
    found = scan(records, verify_crc=False)
    if found.reason not in ("end", "incomplete") and not found.count:
        raise CorruptRecordsError(partition, position, f"a batch with an invalid {found.reason}")
    return max(position, found.last_offset[-1] + 1) if found.count else position


def decode_fetched(
    fetched: FetchedRange,
    *,
    with_headers: bool = False,
    verify_crc: bool = True,
    size_max: int = _COLUMNS_SIZE,
) -> Iterator[RecordColumns]:
    """Decode the batches into columns; yield only columns that have rows.

    One native call decodes all records, unless they exceed ``size_max`` bytes uncompressed.

    Raises:
        CorruptRecordsError: After all records before the corrupt ones were yielded.
    """
    position = fetched.from_offset
    while position < fetched.to_offset:
        try:
            columns = decode_columns(
                fetched.records,
                from_offset=position,
                to_offset=fetched.to_offset,
                with_headers=with_headers,
                verify_crc=verify_crc,
                read_committed_aborted=fetched.aborted,
                size_max=size_max,
            )
        except MalformedError as error:
            raise CorruptRecordsError(fetched.partition, position, str(error)) from error
        if columns.count:
            yield columns
        if columns.next_offset <= position:
            why = "they end before the requested range ends"
            raise CorruptRecordsError(fetched.partition, position, why)
        position = columns.next_offset
