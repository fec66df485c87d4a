"""The fetchers of a consumer: they read the records of its partitions from Kafka's brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from partage.client.consumer import Record
from partage.client.consumer.errors import (
    NothingAssignedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from partage.client.errors import ClientError
from partage.model.topic_partition import TopicPartition
from partage.proposals.sockets.topic_reader import TopicReader


class Fetchers(TopicReader):
    """Reads partitions, and reports offsets that are out of range.

    Args:
        bootstrap_servers: The brokers.
        deliver: As for `TopicReader`.
        reset_to: "smallest" or "largest": where partitions without a committed offset begin.
        on_out_of_range: Called with partitions whose offset is out of range.
        on_change: As for `TopicReader`.
        before_delivery: As for `TopicReader`.
        options: Further options of the consumer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        deliver: Callable[[list[Record]], None],
        *,
        reset_to: str,
        on_out_of_range: Callable[[frozenset[TopicPartition]], None],
        on_change: Callable[[frozenset[TopicPartition]], None],
        before_delivery: Callable[[], None],
        **options: Any,
    ) -> None:
        super().__init__(
            bootstrap_servers,
            deliver,
            on_change=on_change,
            before_delivery=before_delivery,
            **{**options, "auto_offset_reset": "none"},
        )
        self._reset_to = reset_to
        self._on_out_of_range = on_out_of_range

    def on_error(self, error: ClientError) -> bool:
        if isinstance(error, NothingAssignedError):  # the fetchers were stopped during the poll
            return True
        if not isinstance(error, OffsetOutOfRangeError | TopicRecreatedError):
            return False
        if error.partition in self._active:
            self._on_out_of_range(frozenset({error.partition}))
        return True

    def start(self, offsets: dict[TopicPartition, int]) -> None:
        super().start(offsets)
        self._seek([each for each, offset in offsets.items() if offset < 0], self._reset_to)

    def reset(self, partitions: frozenset[TopicPartition], to: str) -> None:
        """Read these partitions too, from the "smallest" or "largest" offset."""
        super().start(dict.fromkeys(partitions, -1))
        self._seek(partitions, to)

    def positions(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the next records.

        A partition of which nothing was read has its start offset. Without it, a consumer that
        begins at the largest offset would skip the records until the next rebalance.
        """
        looked_up = self._consumer.positions()
        known = {each: looked_up[each] for each in partitions if each in looked_up}
        return known | super().positions(partitions)

    def stop(self, partitions: frozenset[TopicPartition] | None) -> None:
        stopped = self._active if partitions is None else self._active & partitions
        self._positions |= self.positions(frozenset(stopped))
        super().stop(partitions)

    def _seek(self, partitions: Collection[TopicPartition], to: str) -> None:
        if not partitions:  # without an argument, the consumer would seek in all partitions
            return
        if to == "smallest":
            self._consumer.seek_to_beginning(*partitions)
        else:
            self._consumer.seek_to_end(*partitions)
