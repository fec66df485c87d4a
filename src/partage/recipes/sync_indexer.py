"""The blocking `RedundantIndexer`; `partage.recipes.RedundantIndexer` runs it in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack
from weakref import WeakMethod

import msgspec

from partage.assignors import Redundant
from partage.client.addresses import BootstrapServers
from partage.client.consumer import (
    Batch,
    MaxPollExceededError,
    NotAssignedError,
    OffsetAndMetadata,
    RebalanceListener,
    Record,
    Records,
)
from partage.client.consumer.arguments import PartitionLike
from partage.client.consumer.sync_consumer import Consumer
from partage.client.errors import ClientError
from partage.model.arguments import (
    InvalidArgumentError,
    check_function,
    check_int,
    check_text,
    check_texts,
    invalid_argument,
)
from partage.model.topic_partition import TopicPartition
from partage.recipes.config import IndexerConfig
from partage.recipes.replicas import decode_metadata, encode_commit, merge_position
from partage.recipes.search_index import (
    Document,
    IndexStore,
    SearchIndex,
    record_text,
    replace_surrogates,
)
from partage.recipes.topic_lookup import partitions_of_sync, topic_ids_sync, unknown_topic_wait_s

log = logging.getLogger(__name__)

_POLL_MS: Final = 200
_RECORDS_MAX: Final = 10_000
#: Number of commit intervals after a rebalance in which the other replicas must have committed.
#: Later, replicas of earlier generations are ignored.
_COMMITS_TO_WAIT_FOR: Final = 3

_RESERVED: Final = {
    "key_deserializer": "the function `text` gets the bytes",
    "value_deserializer": "the function `text` gets the bytes",
    "enable_auto_commit": "positions are stored in the indexes",
    "auto_commit_interval_ms": "use commit_interval_ms",
    "auto_offset_reset": "records missing in an index are read from the earliest offset",
    "partition_assignment_strategy": "the assignor is built in",
    "group_protocol": "its replicas own the same partitions, and the consumer protocol gives a "
    "partition to one member",
    "group_remote_assignor": "the assignor is built in, and no broker runs it",
}


class IndexerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of an indexer since its start.

    Attributes:
        positions: The offsets of the next records to index, by partition.
        behind: Offsets left to the end of a run with ``to_end``; None otherwise.
        rebuilt: Number of indexes that were rebuilt because their log was replaced.
    """

    records: int = 0
    documents: int = 0
    bytes: int = 0
    rebalances: int = 0
    rebuilt: int = 0
    behind: int | None = None
    positions: Mapping[TopicPartition, int] = {}


class RedundantIndexer:
    """A process that indexes topics as a member of a group; a context manager, blocking.

    See `partage.recipes.RedundantIndexer` for arguments and exceptions::

        with RedundantIndexer(servers, "search", ["flights"], "indexes/a") as indexer:
            indexer.run()
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        topics: Iterable[str],
        indexes: IndexStore | Path | str,
        *,
        replicas: int = 2,
        text: Callable[[Record], str | None] = record_text,
        commit_interval_ms: int = 5_000,
        state_cleanup_delay_ms: int = 600_000,
        **options: Unpack[IndexerConfig],
    ) -> None:
        for name, why in _RESERVED.items():
            if name in options:
                raise InvalidArgumentError(f"RedundantIndexer does not accept {name}: {why}")
        check_text("group_id", group_id)
        check_function("text", text, "a Record")
        check_int("replicas", replicas, least=1)
        check_int("commit_interval_ms", commit_interval_ms, least=1, unit="ms")
        check_int("state_cleanup_delay_ms", state_cleanup_delay_ms, unit="ms")
        self._topics = list(dict.fromkeys(check_texts("topics", topics, "flights")))
        self._text = text
        self._wait_s = unknown_topic_wait_s(options)
        self._commit_interval_s = commit_interval_ms / 1000
        self._cleanup_delay_ms = state_cleanup_delay_ms
        self._generation = -1
        self._rebalanced_at_s = self._commit_at_s = time.monotonic()
        self._open_indexes: dict[TopicPartition, SearchIndex] = {}
        # assigned partitions whose index is not open yet
        self._unopened: set[TopicPartition] = set()
        self._progress = IndexerProgress()
        self._is_assigned = self._is_stopping = self._is_closing = False
        self._indexes = _open_index_store(indexes)
        try:
            # A weak reference: otherwise an unclosed indexer would never be collected.
            on_generation = WeakMethod(self._on_generation)
            assignor = _ReplicaAssignor(replicas, self._indexes.stored_partitions, on_generation)
            options.setdefault("max_poll_records", _RECORDS_MAX)
            self._consumer = Consumer(
                bootstrap_servers,
                **options,
                group_id=group_id,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                partition_assignment_strategy=[assignor],
            )
            self._consumer._name_in_warning = "RedundantIndexer"
        except BaseException:
            self._indexes.close()
            raise

    # State.

    @property
    def consumer(self) -> Consumer:
        """The underlying consumer."""
        return self._consumer

    @property
    def progress(self) -> IndexerProgress:
        """Statistics of this indexer; any thread may read them."""
        return self._progress

    def stop(self) -> None:
        """Make `run` return after it has indexed the records it holds; any thread may call it.

        If `run` is not active, the next `run` returns at once.
        """
        self._is_stopping = True

    # Run.

    def start(self) -> None:
        """Subscribe; `run` joins the group. Raise `UnknownTopicError` if a topic does not exist."""
        for topic in self._topics:
            partitions_of_sync(self._consumer, topic, self._wait_s)
        self._consumer.subscribe(self._topics, _Listener(self))

    def run(
        self, *, to_end: bool = False, on_progress: Callable[[IndexerProgress], None] | None = None
    ) -> None:
        """Index until `stop`.

        A run after an interrupted or failed one continues at the positions of the indexes.

        Args:
            to_end: True to stop at the current end offsets of the partitions that are assigned.
            on_progress: A function that gets the progress after each poll.

        Raises:
            SearchIndexError: An index could not be opened or written.
            ClientError: As `partage.Consumer.poll`.
        """
        try:
            self._run(self._ends() if to_end else None, on_progress)
        finally:
            self._is_stopping = False

    def _run(
        self,
        ends: Mapping[TopicPartition, int] | None,
        on_progress: Callable[[IndexerProgress], None] | None,
    ) -> None:
        self._update_progress(behind=None)
        self._resume_after_run()
        while not self._is_stopping:
            records = self._poll()
            for batch in records.batches:
                self._add(batch)
            if not records:
                self._skip_offsets_without_records()
            self._run_periodic_work()
            if ends is not None:
                self._update_progress(behind=self._behind(ends))
            if on_progress is not None:
                on_progress(self._progress)
            if self._progress.behind == 0 and self._is_assigned and not records:
                break
        self._commit_positions()

    def close(self) -> None:
        """Leave the group and close the indexes; they remain searchable."""
        self._is_closing = True
        try:
            self._consumer.close()
        finally:
            self._indexes.close()
            self._open_indexes.clear()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Records.

    def _poll(self) -> Records:
        try:
            return self._consumer.poll(_POLL_MS)
        except MaxPollExceededError as error:
            log.warning("indexer rejoins its group: error=%s", error)
            return Records()

    def _add(self, batch: Batch) -> None:
        partition = batch.topic_partition
        index = self._open_indexes[partition]
        if index.position is not None and batch.from_offset < index.position:
            index = self._rebuild(partition)
        records = batch.records()
        documents = list(self._documents(records))
        index.add(documents, batch.next_offset)
        done = self._progress
        self._progress = msgspec.structs.replace(
            done,
            records=done.records + len(records),
            documents=done.documents + len(documents),
            bytes=done.bytes + sum(len(record.value or b"") for record in records),
            positions={**done.positions, partition: batch.next_offset},
        )

    def _documents(self, records: Iterable[Record]) -> Iterator[Document]:
        for record in records:
            try:
                text = self._text(record)
            except Exception as error:
                error.add_note(
                    f"for record {record.topic}-{record.partition} at offset {record.offset}"
                )
                raise
            if text is not None:
                yield Document(
                    record.offset, record.timestamp, record.key, replace_surrogates(text)
                )

    def _rebuild(self, partition: TopicPartition) -> SearchIndex:
        """Start a new index: the log was replaced by another one, which is read from its start."""
        log.warning(
            "log was truncated or created again, rebuilding its index: partition=%s", partition
        )
        del self._open_indexes[partition]
        self._unopened.add(partition)
        self._indexes.remove(partition)
        index = self._open(partition, topic_ids_sync(self._consumer, self._topics))
        self._update_progress(rebuilt=self._progress.rebuilt + 1)
        return index

    def _skip_offsets_without_records(self) -> None:
        """Advance past offsets without records: compacted away, or control batches."""
        positions = self._consumer.positions()
        for partition, index in self._open_indexes.items():
            position = positions.get(partition, 0)
            if position > (index.position or 0):
                index.add((), position)
                self._update_progress(positions={**self._progress.positions, partition: position})

    def _ends(self) -> dict[TopicPartition, int]:
        partitions = [p for topic in self._topics for p in self._consumer.partitions_of(topic)]
        return self._consumer.end_offsets(partitions)

    def _behind(self, ends: Mapping[TopicPartition, int]) -> int:
        positions = self._positions()
        return sum(max(0, ends.get(p, 0) - position) for p, position in positions.items())

    # Open indexes.

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Open the indexes of new partitions and seek to their positions."""
        self._unopened.update(partitions)
        self._update_progress(rebalances=self._progress.rebalances + 1)
        self._open_all()
        self._retire_others()
        self._is_assigned = True

    def _resume_after_run(self) -> None:
        """Open indexes that an earlier run did not open; seek back to records it did not index."""
        if self._unopened:
            self._open_all()
            self._is_assigned = True
        at = self._consumer.positions()
        for partition, index in self._open_indexes.items():
            if index.position is None or index.position != at.get(partition):
                self._seek(partition)

    def _open_all(self) -> None:
        ids = topic_ids_sync(self._consumer, self._topics) if self._unopened else {}
        for partition in sorted(self._unopened):
            self._open(partition, ids)
            self._seek(partition)
        self._update_progress(positions=self._positions())

    def _open(self, partition: TopicPartition, topic_ids: Mapping[str, str]) -> SearchIndex:
        index = self._open_indexes[partition] = self._indexes.open(
            partition, topic_ids[partition.topic]
        )
        self._unopened.discard(partition)
        return index

    def _seek(self, partition: TopicPartition) -> None:
        position = self._open_indexes[partition].position
        with suppress(NotAssignedError):  # lost in the meantime; the listener will be called
            if position is None:
                self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, position)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Retire the indexes of revoked partitions; they are kept for a while."""
        self._unopened.difference_update(partitions)
        for partition in partitions:
            if self._open_indexes.pop(partition, None) is not None and not self._is_closing:
                self._indexes.retire(partition)
        self._update_progress(positions=self._positions())

    def _retire_others(self) -> None:
        """Retire indexes of an earlier process whose partitions are not assigned now."""
        for topic, numbers in self._indexes.stored_partitions().items():
            for number in numbers if topic in self._topics else ():
                if (partition := TopicPartition(topic, number)) not in self._open_indexes:
                    self._indexes.retire(partition)

    def _positions(self) -> dict[TopicPartition, int]:
        return {partition: index.position or 0 for partition, index in self._open_indexes.items()}

    def _update_progress(self, **changes: Any) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)

    # Periodic work.

    def _on_generation(self, generation: int) -> None:
        """Note a new generation; called in the consumer's thread."""
        self._generation = generation
        self._rebalanced_at_s = time.monotonic()

    def _run_periodic_work(self) -> None:
        if time.monotonic() < self._commit_at_s:
            return
        self._commit_at_s = time.monotonic() + self._commit_interval_s
        self._commit_positions()
        for partition in self._indexes.remove_retired(self._cleanup_delay_ms):
            log.info("removed the index of a partition that moved away: partition=%s", partition)

    def _commit_positions(self) -> None:
        """Commit the lowest position of each partition's replicas; it is for monitoring only."""
        if not self._open_indexes:
            return
        since_s = time.monotonic() - self._rebalanced_at_s
        try:
            before = self._consumer.committed(self._open_indexes)
            offsets: dict[PartitionLike, OffsetAndMetadata] = {}
            for partition, index in self._open_indexes.items():
                last = before[partition]
                said = merge_position(
                    {} if last is None else decode_metadata(last.metadata),
                    self._indexes.name,
                    self._generation,
                    index.position or 0,
                    hears_others=since_s < _COMMITS_TO_WAIT_FOR * self._commit_interval_s,
                )
                offsets[partition] = OffsetAndMetadata(*encode_commit(said))
            self._consumer.commit(offsets)
        except ClientError as error:  # usually a rebalance
            log.info("commit of index positions failed: error=%s", error)


class _ReplicaAssignor(Redundant):
    """The `Redundant` assignor with the stored partitions; it reports each generation."""

    def __init__(
        self,
        replicas: int,
        copies: Callable[[], Mapping[str, Collection[int]]],
        on_generation: Callable[[], Callable[[int], None] | None],
    ) -> None:
        super().__init__(replicas, copies)
        self._on_generation = on_generation

    def on_assignment(self, assignment: Mapping[str, Sequence[int]], generation: int) -> None:
        if (notify := self._on_generation()) is not None:
            notify(generation)


class _Listener(RebalanceListener):
    """Passes rebalance events to an indexer."""

    def __init__(self, indexer: RedundantIndexer) -> None:
        self._indexer = indexer

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._indexer.on_revoked(partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._indexer.on_assigned(partitions)


def _open_index_store(indexes: IndexStore | Path | str) -> IndexStore:
    """Return the store, or open a SQLite store in a directory; raise `SearchIndexError`."""
    if isinstance(indexes, IndexStore):
        return indexes
    if not isinstance(indexes, str | PathLike):
        raise invalid_argument("indexes", indexes, "a directory or an IndexStore")
    from partage.recipes.sqlite_index import SqliteIndexStore  # sqlite3 is optional in Python

    return SqliteIndexStore(indexes)
