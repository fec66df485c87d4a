"""The redundant search indexer as a job: topics into a directory, with a report at its end.

One call is one member of the group. Run it on several machines, or several times with a directory
each: every partition is then indexed by as many of them as there are to be replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from partage.client.errors import ClientError
from partage.client.metadata import TopicPartition
from partage.recipes.search import NoSearchIndexError, searchable_partitions
from partage.recipes.sync import RedundantIndexer
from partage.recipes.sync_indexer import IndexerProgress


class IndexedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One index of this member: ``position`` is the next record's offset.

    ``lag`` is how many offsets it is behind the partition's end; null if nobody could be asked.
    """

    topic: str
    partition: int
    documents: int
    position: int
    lag: int | None


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of the indexer did, and what there is now.

    ``records``, ``documents`` and ``bytes`` are those of this run; ``rebuilt`` counts the indexes
    of topics that were made anew or cut off.
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
    **options: Any,
) -> IndexReport:
    """Index until ``is_stopped``, or with ``available_now`` up to what there is at the beginning.

    Options as `partage.recipes.RedundantIndexer`.

    Raises:
        SearchIndexError: the directory cannot be used.
        ClientError, TypeError, ValueError: as `partage.recipes.RedundantIndexer`.
    """
    began_s = time.monotonic()
    indexer = RedundantIndexer(
        bootstrap_servers, group, topics, directory, replicas=replicas, **options
    )

    def look(progress: IndexerProgress) -> None:
        on_progress(progress)
        if is_stopped():
            indexer.stop()

    with indexer:
        indexer.run(to_end=available_now, on_progress=look)
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
    except ClientError:  # the run is over; that is not to be lost for this
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
