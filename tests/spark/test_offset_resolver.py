"""Resolution of options to offset ranges, with a broker and without Spark."""

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.client import (
    Cluster,
    RecordsUnavailableError,
    TopicPartition,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.spark.bounds import SparkOptionError
from partage.spark.offset_resolver import OffsetRange, plan_batch, split_ranges
from partage.spark.options import parse_options


@pytest.fixture(scope="module")
def topic(kafka):
    """Two partitions: offsets 3 to 9 with timestamps 1003 to 1009; 0 to 4 with 2000 to 2004."""
    name = kafka.topic(2)
    kafka.produce(name, [{"value": b"", "partition": 0, "timestamp": 1000 + n} for n in range(10)])
    kafka.produce(name, [{"value": b"", "partition": 1, "timestamp": 2000 + n} for n in range(5)])
    kafka.cut(name, 3)
    return name


def plan(kafka, **given):
    given = {name: text for name, text in given.items() if text is not None}
    options = parse_options({"kafka.bootstrap.servers": kafka.servers, **given})

    async def main():
        async with Cluster(kafka.servers) as cluster:
            return await plan_batch(cluster, options)

    return [(*part.partition, part.from_offset, part.to_offset) for part in asyncio.run(main())]


def each(topic, *values):
    return json.dumps({topic: {str(n): value for n, value in enumerate(values)}})


def test_default_range_is_earliest_to_latest(kafka, topic):
    assert plan(kafka, subscribe=topic) == [(topic, 0, 3, 10), (topic, 1, 0, 5)]


def test_assign_plans_named_partitions_only(kafka, topic):
    assert plan(kafka, assign=f'{{"{topic}": [1]}}') == [(topic, 1, 0, 5)]


def test_offsets_are_resolved(kafka, topic):
    starting, ending = each(topic, 4, -2), each(topic, -1, 2)
    assert plan(kafka, subscribe=topic, startingOffsets=starting, endingOffsets=ending) == [
        (topic, 0, 4, 10),
        (topic, 1, 0, 2),
    ]


def test_empty_ranges_are_left_out(kafka, topic):
    starting, ending = each(topic, 7, 2), each(topic, 7, 3)
    assert plan(kafka, subscribe=topic, startingOffsets=starting, endingOffsets=ending) == [
        (topic, 1, 2, 3)
    ]


def test_timestamps_are_resolved(kafka, topic):
    assert plan(kafka, subscribe=topic, startingTimestamp="1005", endingTimestamp="2002") == [
        (topic, 0, 5, 10),  # no record is that late: up to the end
        (topic, 1, 0, 2),
    ]
    starting = each(topic, 1009, 2001)
    assert plan(kafka, subscribe=topic, startingOffsetsByTimestamp=starting) == [
        (topic, 0, 9, 10),
        (topic, 1, 1, 5),
    ]


def test_start_after_last_record_fails_by_default(kafka, topic):
    with pytest.raises(SparkOptionError, match=f"no record of {topic}-0 is at or after 2001"):
        plan(kafka, subscribe=topic, startingTimestamp="2001")
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert plan(kafka, subscribe=topic, startingTimestamp="2001", **latest) == [(topic, 1, 1, 5)]


def test_end_before_start_is_rejected(kafka, topic):
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    ending = each(topic, 5, 5)
    with pytest.raises(SparkOptionError, match=f"read of {topic}-0 starts at 10, after its end 5"):
        plan(kafka, subscribe=topic, startingTimestamp="2001", endingOffsets=ending, **latest)


def test_unavailable_offsets_fail_or_are_skipped(kafka, topic):
    gone, beyond = each(topic, 1, 0), each(topic, 10, 7)
    with pytest.raises(RecordsUnavailableError, match=f"offset 1 of {topic}-0 was deleted"):
        plan(kafka, subscribe=topic, startingOffsets=gone)
    with pytest.raises(RecordsUnavailableError, match=f"offset 7 of {topic}-1 does not exist"):
        plan(kafka, subscribe=topic, endingOffsets=beyond)
    assert plan(
        kafka,
        subscribe=topic,
        startingOffsets=gone,
        endingOffsets=beyond,
        failOnDataLoss="false",
    ) == [(topic, 0, 3, 10), (topic, 1, 0, 5)]


def test_offsets_for_other_partitions_are_rejected(kafka, topic):
    story = f"starting offsets must name .*; missing: {topic}-1; not read: {topic}-2"
    odd = f'{{"{topic}": {{"0": 5, "2": 5}}}}'
    with pytest.raises(SparkOptionError, match=story):
        plan(kafka, subscribe=topic, startingOffsets=odd)


def test_unknown_topic_or_partition_fails(kafka, topic):
    with pytest.raises(UnknownTopicError, match="no topic 'topicc'"):
        plan(kafka, subscribe=f"{topic},topicc")
    with pytest.raises(UnknownPartitionError, match="has 2, numbered from 0 to 1"):
        plan(kafka, assign=f'{{"{topic}": [2]}}')


def test_pattern_matches_whole_names_of_public_topics(kafka, topic, caplog):
    assert plan(kafka, subscribePattern=re.escape(topic)) == plan(kafka, subscribe=topic)
    assert plan(kafka, subscribePattern=topic[1:]) == []
    assert "no topic matched" in caplog.text
    assert not any(name == "__consumer_offsets" for name, *_ in plan(kafka, subscribePattern=".*"))


def test_ranges_are_split_by_options(kafka, topic):
    assert plan(kafka, subscribe=topic, minPartitions="4") == [
        (topic, 0, 3, 6),
        (topic, 0, 6, 10),
        (topic, 1, 0, 2),
        (topic, 1, 2, 5),
    ]
    assert plan(
        kafka, subscribe=topic, maxRecordsPerPartition="4", endingOffsets=each(topic, -1, 0)
    ) == [
        (topic, 0, 3, 6),
        (topic, 0, 6, 10),
    ]


sizes = st.lists(st.integers(1, 50), min_size=1, max_size=6)


@given(sizes, st.integers(1, 100), st.none() | st.integers(1, 20))
def test_split_ranges_respects_limits_and_covers_all(sizes, at_least, at_most):
    whole = [
        OffsetRange(TopicPartition("t", n), 100 * n, 100 * n + size) for n, size in enumerate(sizes)
    ]
    parts = split_ranges(whole, at_least, at_most)
    covered = [(p.partition, o) for p in parts for o in range(p.from_offset, p.to_offset)]
    assert covered == [(w.partition, o) for w in whole for o in range(w.from_offset, w.to_offset)]
    assert all(part.size > 0 for part in parts)
    assert len(parts) >= min(at_least, sum(sizes))
    if at_most is not None:
        assert max(part.size for part in parts) <= at_most
    else:
        assert len(parts) == max(len(whole), min(at_least, sum(sizes)))
        largest, smallest = max(p.size for p in parts), min(p.size for p in parts)
        if len(parts) > len(whole):  # the parts of a range have nearly equal sizes
            cut = [p.size for p in parts if sum(q.partition == p.partition for q in parts) > 1]
            assert max(cut) - min(cut) <= max(1, largest - smallest)
