"""Batch reads in Spark: ``spark.read.format("partage")``."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOW_MS = 1_700_000_000_000


@pytest.fixture
def read(spark, kafka):
    def load(**options):
        reader = spark.read.format("partage").option("kafka.bootstrap.servers", kafka.servers)
        return reader.options(**options).load()

    return load


@pytest.fixture(scope="module")
def mixed(kafka):
    """A topic of two partitions whose records use all fields."""
    topic = kafka.topic(2)
    records = [
        {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("a", None)], "timestamp": NOW_MS},
        {"key": None, "value": None, "timestamp": NOW_MS + 1},
        {"key": b"", "value": b"", "headers": [("größe", b"")], "timestamp": NOW_MS + 2},
    ]
    kafka.produce(topic, [{**record, "partition": 0} for record in records])
    stamped = [{"value": b"%d" % n, "partition": 1, "timestamp": NOW_MS} for n in range(100)]
    kafka.produce(topic, stamped)
    return topic


@pytest.mark.slow
def test_rows_equal_those_of_the_connector(read, mixed):
    frame = read(subscribe=mixed, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema)
    millis = f.unix_millis("timestamp").alias("timestamp")
    rows = frame.where("partition = 0").withColumn("timestamp", millis).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (b"k", b"v", mixed, 0, 0, NOW_MS, 0, [("a", b"1"), ("a", None)]),
        (None, None, mixed, 0, 1, NOW_MS + 1, 0, None),
        (b"", b"", mixed, 0, 2, NOW_MS + 2, 0, [("größe", b"")]),
    ]


def test_split_read_returns_each_record_once(read, mixed):
    for options in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "10"}):
        frame = read(subscribe=mixed, columns="partition,offset", **options)
        assert frame.schema.names == ["partition", "offset"]
        found = sorted(tuple(row) for row in frame.collect())
        assert found == [(0, n) for n in range(3)] + [(1, n) for n in range(100)]
    assert frame.rdd.getNumPartitions() == 11


def test_offset_range_is_read(read, mixed):
    ending = f'{{"{mixed}": {{"0": 2, "1": 50}}}}'
    starting = f'{{"{mixed}": {{"0": -2, "1": 40}}}}'
    frame = read(subscribe=mixed, startingOffsets=starting, endingOffsets=ending)
    rows = frame.groupBy("partition").agg(f.min("offset"), f.max("offset"), f.count("*")).collect()
    assert sorted(tuple(row) for row in rows) == [(0, 0, 1, 2), (1, 40, 49, 10)]


def test_end_offsets_are_fixed_at_first_action(read, kafka):
    """Spark caches the plan of a Python source with the DataFrame."""
    topic = kafka.topic()
    frame = read(subscribe=topic)
    kafka.produce(topic, [{"value": b"x"}] * 3)
    assert frame.count() == 3
    kafka.widen(topic, 2)
    kafka.produce(topic, [{"value": b"x", "partition": 1}] * 2)
    assert frame.count() == 3
    assert read(subscribe=topic).count() == 5


def test_empty_topic_returns_no_rows(read, kafka):
    assert read(subscribe=kafka.topic()).count() == 0


def test_every_codec_returns_all_records(read, kafka):
    topics = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topics.append(topic := kafka.topic())
        records = [{"key": b"%d" % n, "value": b"x" * (n % 90)} for n in range(8_000)]
        kafka.produce(topic, records, **{"compression.type": codec})
    rows = (
        read(subscribe=",".join(topics))
        .groupBy("topic")
        .agg(
            f.count("*"),
            f.sum(f.length("value")),
            f.sum(f.col("key").cast("string").cast("long") - f.col("offset")),
        )
        .collect()
    )
    size = sum(n % 90 for n in range(8_000))
    assert sorted(tuple(row) for row in rows) == [
        (topic, 8_000, size, 0) for topic in sorted(topics)
    ]


def test_log_append_time_sets_timestamp_type(read, kafka):
    topic = kafka.topic(**{"message.timestamp.type": "LogAppendTime"})
    kafka.produce(topic, [{"value": b"x", "timestamp": 1}])
    (row,) = read(subscribe=topic).select("timestampType", f.unix_millis("timestamp")).collect()
    assert row[0] == 1
    assert row[1] > NOW_MS


class TestRefusals:
    """Spark's error contains our message and the name of our exception."""

    def story(self, act):
        with pytest.raises(PySparkException) as raised:
            act()
        return str(raised.value)

    def test_unknown_option_fails_at_load(self, read):
        story = self.story(lambda: read(subscribe="t", startingOffset="earliest"))
        assert (
            "SparkOptionError: there is no option 'startingoffset'; did you mean startingOffsets"
            in story
        )

    def test_starting_at_latest_fails(self, read):
        story = self.story(read(subscribe="t", startingOffsets="latest").count)
        assert "startingOffsets=latest leaves a batch read nothing to read" in story

    def test_unknown_topic_fails_with_suggestion(self, read, mixed):
        story = self.story(read(subscribe=mixed + "x").count)
        assert f"UnknownTopicError: there is no topic '{mixed}x'; did you mean" in story

    def test_unreachable_broker_fails(self, spark):
        reader = spark.read.format("partage").option("kafka.bootstrap.servers", "127.0.0.1:1")
        story = self.story(reader.option("subscribe", "t").load().count)
        assert "no broker can be reached (127.0.0.1:1: Connection refused)" in story

    def test_deleted_records_fail_unless_data_loss_is_allowed(self, read, kafka):
        topic = kafka.topic()
        kafka.produce(topic, [{"value": b"x"}] * 10)
        kafka.cut(topic, 4)
        options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1}}}}'}
        assert f"offset 1 of {topic}-0 was deleted" in self.story(read(**options).count)
        assert read(**options, failOnDataLoss="false").count() == 6

    def test_user_schema_is_rejected(self, spark, kafka):
        reader = spark.read.format("partage").option("kafka.bootstrap.servers", kafka.servers)
        frame = reader.option("subscribe", "t").schema("a int").load()
        assert "remove .schema(...)" in self.story(frame.count)
