"""A replicated search index, maintained by a consumer group: `RedundantIndexer`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from partage.client.addresses import BootstrapServers
from partage.client.consumer import Record
from partage.recipes.config import IndexerConfig
from partage.recipes.search_index import IndexStore, record_text
from partage.recipes.sync_indexer import IndexerProgress
from partage.recipes.sync_indexer import RedundantIndexer as Blocking

log = logging.getLogger(__name__)


class RedundantIndexer:
    """A process that indexes topics as a member of a group; on asyncio, a context manager.

    Each partition is indexed by ``replicas`` members of the group, or by all if there are fewer.
    When a member is lost, other members take over its partitions::

        async with RedundantIndexer(servers, "search", ["flights"], "indexes/a") as indexer:
            await indexer.run()

    Each index stores its position and its documents in one transaction. An index continues at its
    position; a new index starts at the earliest offset. The group's committed offset of a partition
    is the lowest position of its replicas; it is for monitoring only.

    Args:
        indexes: A directory that only this member uses, for SQLite indexes with FTS5, or another
            `IndexStore`.
        replicas: Number of members that index each partition.
        text: Returns the text of a record to index, or None to skip the record.
        commit_interval_ms: Interval at which the positions are committed.
        state_cleanup_delay_ms: Time for which the index of a partition that moved away is kept, as
            Kafka Streams' ``state.cleanup.delay.ms``.
        options: Options of the consumer; see `IndexerConfig`. With a ``group_instance_id``, a
            member that restarts within its session gets its partitions back at once.

    Raises:
        InvalidArgumentError: An argument or an option is invalid, or an option is reserved.
        FullTextSearchUnavailableError, DirectoryInUseError, IndexFileError: The directory is not
        usable.
        ClientError: As `partage.Consumer`.
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
        self._indexer = Blocking(
            bootstrap_servers,
            group_id,
            topics,
            indexes,
            replicas=replicas,
            text=text,
            commit_interval_ms=commit_interval_ms,
            state_cleanup_delay_ms=state_cleanup_delay_ms,
            **options,
        )

    @property
    def progress(self) -> IndexerProgress:
        """Statistics of this indexer; any thread may read them."""
        return self._indexer.progress

    def stop(self) -> None:
        """Make `run` return after it has indexed the records it holds; any thread may call it.

        If `run` is not active, the next `run` returns at once.
        """
        self._indexer.stop()

    async def run(self, *, to_end: bool = False) -> None:
        """Index in a thread until `stop` or cancellation.

        With ``to_end`` only up to the current end offsets of the partitions that are assigned.

        Raises:
            SearchIndexError: An index could not be written.
            ClientError: As `partage.Consumer.poll`.
        """
        running = asyncio.ensure_future(asyncio.to_thread(self._indexer.run, to_end=to_end))
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            # Not `asyncio.shield`: on Python 3.14, it logs errors after a cancellation.
            await asyncio.wait({running})
        except asyncio.CancelledError:
            if not running.done():
                self._indexer.stop()
                await asyncio.wait({running})
            if not running.cancelled() and (error := running.exception()) is not None:
                log.error("indexing failed when it was cancelled: error=%s", error)
            raise
        running.result()

    async def close(self) -> None:
        """Leave the group and close the indexes; they remain searchable."""
        await asyncio.to_thread(self._indexer.close)

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._indexer.start)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
