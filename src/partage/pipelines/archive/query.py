"""A streaming query whose batches are added to an archive, with its staging directory."""

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

    The group's offsets and the manifest are enough to continue after a restart, on any machine. So
    the checkpoint is deleted with the run.

    Args:
        directory: the archive.
        by: name of this run for the entries; the default is host name and process id.
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
        """Run until ``is_over``, or with ``is_once`` until the existing records are archived.

        Args:
            stream: the stream to read.
            take: called with each batch, its name, and the stored offset of its end.
            name: query name.
            every_s: trigger interval in seconds; ignored with ``is_once``.
            is_once: True for the trigger AvailableNow.
            is_over: polled; True stops the query.
            progress: called with the rows that this run has archived, and those it refused.

        Raises:
            QueryFailedError: if the query failed. Batches before the failure are archived.
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
