"""What Spark keeps of a streaming query: an offset, as JSON in the checkpoint.

The end of a batch says all that the batch reads: a half-open range for each partition that the
query held. So a batch that is run again after a crash reads the same, whoever owns its partitions
by then. Beside the ranges stand whose they are (cluster, topics, group) and, for whoever looks at
a query's progress, its member, generation and lag as they were when the batch was planned.

Spark compares offsets as text: keys are sorted, and a new offset is made only for a new batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from partage.client.metadata import TopicPartition
from partage.spark.planning import OffsetRange

_VERSION: Final = 1


class BadCheckpoint(ValueError):
    """A checkpoint whose offsets are not of this query's cluster, group or topics."""


class TopicMark(msgspec.Struct, frozen=True):
    """A topic as a query knows it: its id in hex ("" if it has none), and its partitions."""

    topic_id: str
    partitions: int


class Whose(msgspec.Struct, frozen=True, kw_only=True):
    """Which query an offset is of; ``member`` and ``generation`` are of who planned it."""

    cluster: str | None = None
    servers: str = ""
    group: str | None = None
    member: str = ""
    generation: int = -1
    instance: str | None = None


class StreamOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a batch, and the whole of what it reads; ``seq`` 0 is before the first one."""

    seq: int = 0
    whose: Whose = Whose()
    topics: Mapping[str, TopicMark] = {}
    ranges: Mapping[TopicPartition, tuple[int, int]] = {}
    lag: Mapping[TopicPartition, int] = {}

    @property
    def is_initial(self) -> bool:
        """Whether this is before the first batch."""
        return self.seq == 0

    @property
    def to_read(self) -> list[OffsetRange]:
        """What there is to read, in order."""
        return [OffsetRange(p, *self.ranges[p]) for p in sorted(self.ranges) if self.size(p) > 0]

    def size(self, partition: TopicPartition) -> int:
        """How many offsets of a partition are read."""
        first, last = self.ranges[partition]
        return last - first


def written(offset: StreamOffset) -> dict[str, Any]:
    """An offset as Spark keeps it."""
    found: dict[str, Any] = {"ranges": nested(offset.ranges), "seq": offset.seq, "v": _VERSION}
    if not offset.is_initial:
        found["lag"] = nested(offset.lag)
        found["topics"] = {
            name: [mark.topic_id, mark.partitions] for name, mark in sorted(offset.topics.items())
        }
        found |= {
            name: value
            for name, value in msgspec.structs.asdict(offset.whose).items()
            if value is not None
        }
    return dict(sorted(found.items()))


#: The same whenever it is asked for, by any process: it is not in the checkpoint.
INITIAL: Final = StreamOffset()


def read(text: Mapping[str, Any]) -> StreamOffset:
    """An offset that Spark has kept.

    Raises:
        BadCheckpoint: it was not written by this source, or by a later version of it.
    """
    if text.get("v") != _VERSION:
        raise BadCheckpoint(
            "the checkpoint's offsets were not written by this version of the partage source"
            f" (they are {str(text)[:80]}); give the query a new checkpointLocation"
        )
    try:
        return StreamOffset(
            seq=text["seq"],
            whose=Whose(**{n: text[n] for n in Whose.__struct_fields__ if n in text}),
            topics={name: TopicMark(*mark) for name, mark in text.get("topics", {}).items()},
            ranges={p: (first, last) for p, (first, last) in _flat(text["ranges"])},
            lag=dict(_flat(text.get("lag", {}))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadCheckpoint(
            f"the checkpoint's offsets are damaged ({error!r}): {str(text)[:80]}"
        ) from None


def check_whose(offset: StreamOffset, cluster: str | None, group: str | None) -> None:
    """Make sure that a checkpoint is of this cluster and group.

    Raises:
        BadCheckpoint: it is of others; the message says which.
    """
    theirs = offset.whose
    if offset.is_initial:
        return
    if None not in (theirs.cluster, cluster) and theirs.cluster != cluster:
        raise BadCheckpoint(
            f"the checkpoint belongs to another cluster ({theirs.cluster}) than the one at "
            f"kafka.bootstrap.servers ({cluster}); give the query a new checkpointLocation"
        )
    if theirs.group != group:
        raise BadCheckpoint(
            f"the checkpoint belongs to a query {_grouped(theirs.group)}, and this one is "
            f"{_grouped(group)}; give it a new checkpointLocation, or its previous kafka.group.id"
        )


def _grouped(group: str | None) -> str:
    return "outside any group" if group is None else f"in group {group!r}"


def nested(flat: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    """By topic, then by the partition's number as JSON has it, in order."""
    found: dict[str, dict[str, Any]] = {}
    for topic, partition in sorted(flat):
        value = flat[TopicPartition(topic, partition)]
        found.setdefault(topic, {})[str(partition)] = (
            list(value) if isinstance(value, tuple) else value
        )
    return found


def _flat(nested: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[TopicPartition, Any]]:
    for topic, of_topic in nested.items():
        for partition, value in of_topic.items():
            yield TopicPartition(topic, int(partition)), value
