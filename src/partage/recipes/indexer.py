"""A search index with replicas, kept by a group: `RedundantIndexer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from partage.client.consumer import Record
from partage.recipes.search_index import IndexStore, record_text
from partage.recipes.sync_indexer import IndexerProgress
from partage.recipes.sync_indexer import RedundantIndexer as Blocking


class RedundantIndexer:
    """One of the processes that index topics; on asyncio, a context manager.

    Each partition is indexed by ``replicas`` members of the group, or by all if they are fewer;
    when one is lost, others take over what it had. ``indexes`` is a directory of this member's
    own, for indexes in SQLite with FTS5, or other `Indexes`. ``text`` gives what is searched of a
    record, None for nothing::

        async with RedundantIndexer(servers, "search", ["flights"], "indexes/a") as indexer:
            await indexer.run()

    Each index knows how far it is: a position is stored with its documents, in one transaction.
    What an index lacks is read on from there, of a new one from the earliest offset on. The
    group's offsets show the least position of a partition's replicas, every
    ``commit_interval_ms``. An index whose partition has moved away is kept for
    ``state_cleanup_delay_ms`` (Kafka Streams' ``state.cleanup.delay.ms``), in case it comes back.
    Options as `partage.Consumer`; with a ``group_instance_id`` a member that restarts within its
    session has its partitions back at once.

    Raises:
        ValueError, TypeError: topics or options that cannot be; options an indexer decides itself.
        FullTextSearchUnavailableError, DirectoryInUseError, IndexFileError: the directory cannot be used.
        ClientError: as `partage.Consumer`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group_id: str,
        topics: Iterable[str],
        indexes: IndexStore | Path | str,
        *,
        replicas: int = 2,
        text: Callable[[Record], str | None] = record_text,
        commit_interval_ms: int = 5_000,
        state_cleanup_delay_ms: int = 600_000,
        **options: Any,
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
        """What was done so far."""
        return self._indexer.progress

    def stop(self) -> None:
        """Have `run` return when what it has in hand is indexed; the next one if nothing runs."""
        self._indexer.stop()

    async def run(self, *, to_end: bool = False) -> None:
        """Index until `stop`, or until it is cancelled, in a thread.

        With ``to_end`` only up to what there is now, of what becomes this member's share.

        Raises:
            SearchIndexError: an index could not be written.
            ClientError: as `partage.Consumer.poll`.
        """
        running = asyncio.ensure_future(asyncio.to_thread(self._indexer.run, to_end=to_end))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                self._indexer.stop()
                await asyncio.wait({running})
            raise

    async def close(self) -> None:
        """Leave, and let go of the indexes; they stay to be searched."""
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
