"""The streaming offset that Spark stores as JSON in a query's checkpoint.

The end offset of a batch describes the complete batch: a half-open offset range for each partition
that the query owned. So a batch that Spark repeats after a crash reads the same records, no matter
which member owns its partitions then.

The offset also identifies its query by cluster, topics and group. For progress reports it has the
member, generation and lag at planning time.

Spark compares offsets as text. So keys are sorted, and only a new batch creates a new offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.spark.offset_resolver import OffsetRange

_VERSION: Final = 1


class CheckpointError(ValueError):
    """The checkpoint belongs to another cluster, group or set of topics than the query."""


class TopicSnapshot(msgspec.Struct, frozen=True):
    """A topic at planning time: its id in hex ("" if it has none) and its partition count."""

    topic_id: str
    partitions: int


class QueryIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The query of an offset; ``member`` and ``generation`` are those that planned the batch."""

    cluster: str | None = None
    servers: str = ""
    group: str | None = None
    member: str = ""
    generation: int = -1
    instance: str | None = None


class StreamOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a batch and the ranges of that batch; ``seq`` 0 is before the first batch."""

    seq: int = 0
    identity: QueryIdentity = QueryIdentity()
    topics: Mapping[str, TopicSnapshot] = {}
    ranges: Mapping[TopicPartition, tuple[int, int]] = {}
    lag: Mapping[TopicPartition, int] = {}

    @property
    def is_initial(self) -> bool:
        """True if this is the offset before the first batch."""
        return self.seq == 0

    @property
    def ranges_to_read(self) -> list[OffsetRange]:
        """Nonempty ranges of the batch, sorted by partition."""
        return [OffsetRange(p, *self.ranges[p]) for p in sorted(self.ranges) if self.size(p) > 0]

    def size(self, partition: TopicPartition) -> int:
        """Return the number of offsets in a partition's range."""
        first, last = self.ranges[partition]
        return last - first


def encode_offset(offset: StreamOffset) -> dict[str, Any]:
    """Return the JSON form of an offset, as Spark stores it."""
    found: dict[str, Any] = {
        "ranges": nest_by_topic(offset.ranges),
        "seq": offset.seq,
        "v": _VERSION,
    }
    if not offset.is_initial:
        found["lag"] = nest_by_topic(offset.lag)
        found["topics"] = {
            name: [mark.topic_id, mark.partitions] for name, mark in sorted(offset.topics.items())
        }
        found |= {
            name: value
            for name, value in msgspec.structs.asdict(offset.identity).items()
            if value is not None
        }
    return dict(sorted(found.items()))


#: Equal in every process, because Spark does not store it in the checkpoint.
INITIAL_OFFSET: Final = StreamOffset()


def decode_offset(text: Mapping[str, Any]) -> StreamOffset:
    """Decode an offset that Spark has stored.

    Raises:
        CheckpointError: if it has another format version, or is damaged.
    """
    if text.get("v") != _VERSION:
        raise CheckpointError(
            "the checkpoint's offsets were not written by this version of the partage source"
            f" (they are {str(text)[:80]}); give the query a new checkpointLocation"
        )
    try:
        return StreamOffset(
            seq=text["seq"],
            identity=QueryIdentity(
                **{n: text[n] for n in QueryIdentity.__struct_fields__ if n in text}
            ),
            topics={name: TopicSnapshot(*mark) for name, mark in text.get("topics", {}).items()},
            ranges={p: (first, last) for p, (first, last) in _flatten(text["ranges"])},
            lag=dict(_flatten(text.get("lag", {}))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint's offsets are damaged ({error!r}): {str(text)[:80]}"
        ) from None


def check_identity(offset: StreamOffset, cluster: str | None, group: str | None) -> None:
    """Check that an offset belongs to this cluster and group.

    Raises:
        CheckpointError: if it belongs to another cluster or group.
    """
    theirs = offset.identity
    if offset.is_initial:
        return
    if None not in (theirs.cluster, cluster) and theirs.cluster != cluster:
        raise CheckpointError(
            f"the checkpoint belongs to another cluster ({theirs.cluster}) than the one at "
            f"kafka.bootstrap.servers ({cluster}); give the query a new checkpointLocation"
        )
    if theirs.group != group:
        raise CheckpointError(
            f"the checkpoint belongs to a query {_describe_group(theirs.group)}, and this one is "
            f"{_describe_group(group)}; give it a new checkpointLocation, or its previous "
            "kafka.group.id"
        )


def _describe_group(group: str | None) -> str:
    return "outside any group" if group is None else f"in group {group!r}"


def nest_by_topic(flat: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    """Return the values by topic and then by partition number as text, both sorted."""
    found: dict[str, dict[str, Any]] = {}
    for topic, partition in sorted(flat):
        value = flat[TopicPartition(topic, partition)]
        found.setdefault(topic, {})[str(partition)] = (
            list(value) if isinstance(value, tuple) else value
        )
    return found


def offsets_behind_latest(lags: Mapping[TopicPartition, int]) -> dict[str, str]:
    """Return the metrics of Spark's Kafka connector, from the lag of each partition.

    As in the connector, the values are texts, and there are none without partitions.
    """
    if not lags:
        return {}
    return {
        "avgOffsetsBehindLatest": str(sum(lags.values()) / len(lags)),
        "maxOffsetsBehindLatest": str(max(lags.values())),
        "minOffsetsBehindLatest": str(min(lags.values())),
    }


def _flatten(nested: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[TopicPartition, Any]]:
    for topic, of_topic in nested.items():
        for partition, value in of_topic.items():
            yield TopicPartition(topic, int(partition)), value
