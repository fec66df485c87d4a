"""A streaming query whose batches go into a directory, and what is staged for them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from partage.pipelines.archive.batches import BatchArchiver
from partage.pipelines.archive.directory import ArchiveDirectory, StagingDirectory
from partage.pipelines.queries import read_batch_offset, run_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ArchivingQuery:
    """One run of a query; a context manager.

    Its group's offsets and the manifest say where to go on, whoever goes on: a checkpoint that
    outlives the query is not needed. ``by`` is a name for whoever looks at the entries later.
    """

    def __init__(self, directory: ArchiveDirectory, by: str | None = None) -> None:
        self._directory = directory
        directory.remove_stale_staging()
        self._staging = StagingDirectory(directory.path)
        by = by or f"{socket.gethostname()}:{os.getpid()}"
        self.batches = BatchArchiver(
            directory, self._staging, by, lambda: time.time_ns() // 1_000_000
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._staging.close(self._directory)

    def run(
        self,
        stream: DataFrame,
        take: Callable[[DataFrame, str, Mapping[str, Any]], None],
        name: str,
        *,
        every_s: float,
        is_once: bool = False,
        is_over: Callable[[], bool],
        progress: Callable[[int, int], None] = lambda rows, refused: None,
    ) -> None:
        """Run until all that is there is taken, with ``is_once``, or until ``is_over``.

        ``take`` is given each batch, its name, and what Spark keeps of its offsets; ``progress``
        the rows that this run has archived, and those that were there already.

        Raises:
            QueryFailedError: it failed; what was taken until then is archived.
        """
        checkpoint = self._staging.path / "checkpoint"

        def taken(frame: DataFrame, number: int) -> None:
            take(frame, str(number), read_batch_offset(checkpoint, number))

        writer = stream.writeStream.foreachBatch(taken).queryName(name)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if is_once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        batches = self.batches
        run_until(writer.start(), is_over, lambda: progress(batches.rows, batches.refused))
