"""Index job: runs the redundant search indexer and returns a report.

Each run is one member of the group. Start it on several machines, or several times with different
directories: each partition is then indexed by ``replicas`` members, if there are as many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

import msgspec

from partage.client.errors import ClientError
from partage.model.topic_partition import TopicPartition
from partage.recipes.config import IndexerConfig
from partage.recipes.errors import NoSearchIndexError
from partage.recipes.search import searchable_partitions
from partage.recipes.sync import RedundantIndexer
from partage.recipes.sync_indexer import IndexerProgress


class IndexedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One index of this member.

    ``position`` is the offset of the next record. ``lag`` is the number of offsets up to the
    partition's end, or null if no broker answered.
    """

    topic: str
    partition: int
    documents: int
    position: int
    lag: int | None


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of an index run.

    ``records``, ``documents`` and ``bytes`` count this run only. ``rebuilt`` counts indexes that
    were rebuilt because their topic was recreated or truncated.
    """

    directory: str
    group: str
    replicas: int
    records: int
    documents: int
    bytes: int
    seconds: float
    rebalances: int
    rebuilt: int
    partitions: list[IndexedPartition]


def index(
    bootstrap_servers: str,
    topics: Sequence[str],
    group: str,
    directory: Path,
    *,
    replicas: int = 2,
    available_now: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    on_progress: Callable[[IndexerProgress], None] = lambda _: None,
    commit_interval_ms: int = 5_000,
    state_cleanup_delay_ms: int = 600_000,
    **options: Unpack[IndexerConfig],
) -> IndexReport:
    """Index topics until ``is_stopped``, or with ``available_now`` up to the current end offsets.

    Args:
        bootstrap_servers: addresses of the brokers.
        topics: topics to index.
        group: the group's id.
        directory: directory of the indexes.
        replicas: number of members that index each partition.
        available_now: True to stop at the end offsets of the start.
        is_stopped: polled; True stops the run.
        on_progress: called with the progress so far.
        commit_interval_ms: interval at which the positions are committed.
        state_cleanup_delay_ms: how long to keep the index of a partition that moved away.
        options: options of the consumer.

    Raises:
        SearchIndexError: if the directory is unusable.
        ClientError, TypeError, ValueError: as `partage.recipes.RedundantIndexer`.
    """
    began_s = time.monotonic()
    indexer = RedundantIndexer(
        bootstrap_servers,
        group,
        topics,
        directory,
        replicas=replicas,
        commit_interval_ms=commit_interval_ms,
        state_cleanup_delay_ms=state_cleanup_delay_ms,
        **options,
    )

    def on_batch(progress: IndexerProgress) -> None:
        on_progress(progress)
        if is_stopped():
            indexer.stop()

    with indexer:
        indexer.run(to_end=available_now, on_progress=on_batch)
        done = indexer.progress
        ends = _ends(indexer, list(done.positions))
    return IndexReport(
        directory=str(directory),
        group=group,
        replicas=replicas,
        records=done.records,
        documents=done.documents,
        bytes=done.bytes,
        seconds=round(time.monotonic() - began_s, 3),
        rebalances=done.rebalances,
        rebuilt=done.rebuilt,
        partitions=_partitions(directory, done, ends),
    )


def _ends(indexer: RedundantIndexer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        return indexer.consumer.end_offsets(partitions)
    except ClientError:  # the run has succeeded, so report it without a lag
        return {}


def _partitions(
    directory: Path, done: IndexerProgress, ends: dict[TopicPartition, int]
) -> list[IndexedPartition]:
    try:
        found = searchable_partitions(directory)
    except NoSearchIndexError:
        return []
    return [
        IndexedPartition(
            topic=each.topic,
            partition=each.partition,
            documents=each.documents,
            position=each.position,
            lag=max(0, ends[partition] - each.position) if partition in ends else None,
        )
        for each in found
        if (partition := TopicPartition(each.topic, each.partition)) in done.positions
    ]
