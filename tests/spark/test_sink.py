"""Writes in Spark: ``df.write.format("partage")`` and ``df.writeStream.format("partage")``."""

import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka import Consumer
from pyspark.errors import PySparkException

from partage.spark.sink import MARK, drop_duplicates
from partage.testing import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def consumed(servers, topic, count):
    """Read ``count`` records of a topic with another client."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "truth",
            "log_level": 2,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {count} came"
        assert message.error() is None, message.error()
        found.append(message)
    assert consumer.poll(0.2) is None
    consumer.close()
    return found


@pytest.fixture
def write(kafka):
    def save(frame, servers=kafka.servers, mode="append", **options):
        named = {name.replace("__", "."): value for name, value in options.items()}
        writer = frame.write.format("partage").option("kafka.bootstrap.servers", servers)
        writer.options(**named).mode(mode).save()

    return save


@pytest.fixture
def read(spark, kafka):
    def load(topic, servers=kafka.servers):
        reader = spark.read.format("partage").option("kafka.bootstrap.servers", servers)
        return reader.options(subscribe=topic, includeHeaders="true").load()

    return load


class TestBatch:
    def test_rows_are_written_unchanged(self, spark, kafka, write):
        topic = kafka.topic(3)
        rows = [
            ("k", b"v", [("a", b"1"), ("a", None)], topic, 2),
            (None, None, None, topic, 0),
            ("", b"", [("größe", b"")], topic, 0),
        ]
        frame = spark.createDataFrame(
            rows,
            "key string, value binary, headers array<struct<key: string, value: binary>>, "
            "topic string, partition int",
        )
        write(frame.coalesce(1))
        found = {
            (m.partition(), m.offset()): (m.key(), m.value(), m.headers())
            for m in consumed(kafka.servers, topic, 3)
        }
        assert found == {
            (2, 0): (b"k", b"v", [("a", b"1"), ("a", None)]),
            (0, 0): (None, None, None),
            (0, 1): (b"", b"", [("größe", b"")]),
        }

    def test_keys_map_to_the_partitions_of_the_java_client(self, spark, kafka, write):
        topic = kafka.topic(5)
        frame = spark.range(2000).selectExpr("cast(id as string) as key", "'x' as value", "id")
        write(frame, topic=topic, kafka__compression__type="lz4")
        for message in consumed(kafka.servers, topic, 2000):
            assert message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % 5

    def test_topic_option_overrides_topic_column(self, spark, kafka, write):
        topic = kafka.topic()
        write(spark.sql("SELECT 'x' AS value, 'elsewhere' AS topic"), topic=topic)
        assert len(consumed(kafka.servers, topic, 1)) == 1

    def test_empty_frame_writes_nothing(self, spark, kafka, write, read):
        topic = kafka.topic()
        write(spark.range(0).selectExpr("cast(id as string) as value"), topic=topic)
        assert read(topic).count() == 0

    def test_read_rows_can_be_written(self, spark, kafka, write, read):
        first, second = kafka.topic(2), kafka.topic(2)
        rows = [{"key": b"%d" % n, "value": b"v"} for n in range(50)]
        kafka.produce(first, rows, partitioner="murmur2_random")
        write(read(first).drop("partition"), topic=second)
        copied = read(second).select("key", "value", "partition").collect()
        assert sorted(copied) == sorted(read(first).select("key", "value", "partition").collect())


class TestRefusals:
    """Spark's error contains our message; no failed record is dropped silently."""

    @pytest.mark.parametrize(
        ("rows", "options", "story"),
        [
            ("1 AS value", {"topic": "t"}, "the column value must be binary or string, not int"),
            ("'x' AS values", {"topic": "t"}, "needs a column named value"),
            ("'x' AS value", {}, "the topic is missing: set the option topic"),
            ("'x' AS value, CAST(NULL AS string) AS topic", {}, "a row's topic is null"),
            ("'x' AS value", {"topic": "t", "mode": "overwrite"}, "a topic cannot be overwritten"),
            ("'x' AS value", {"topic": "t", "kafka__acks": "0"}, "kafka.acks=0 may lose records"),
            ("'x' AS value", {"topic": "no topic"}, "cannot write to 'no topic': "),
        ],
    )
    def test_invalid_write_fails_before_any_record(self, spark, write, rows, options, story):
        with pytest.raises(PySparkException, match=story):
            write(spark.sql(f"SELECT {rows}"), **options)

    def test_unknown_topic_fails(self, spark, write):
        with BrokerProcess(overrides={"auto.create.topics.enable": "false"}) as broker:
            write_to = {"servers": broker.bootstrap_servers, "kafka__max__block__ms": "5000"}
            with pytest.raises(PySparkException, match="there is no topic 'nowhere' at 127"):
                write(spark.sql("SELECT 'x' AS value"), topic="nowhere", **write_to)

    def test_unknown_partition_fails_until_it_is_created(self, spark, kafka, write):
        topic = kafka.topic(2)
        with pytest.raises(PySparkException, match=f"partition 2 of '{topic}', which has 2"):
            write(spark.sql("SELECT 'x' AS value, 2 AS partition"), topic=topic)
        kafka.widen(topic, 3)
        write(spark.sql("SELECT 'x' AS value, 2 AS partition"), topic=topic)

    def test_unreachable_broker_fails_after_max_block(self, spark, write):
        story = r"no broker of 127.0.0.1:1 answered within 500 ms .*Connection refused"
        with pytest.raises(PySparkException, match=story):
            write(
                spark.sql("SELECT 'x' AS value"),
                servers="127.0.0.1:1",
                topic="t",
                kafka__max__block__ms="500",
            )

    def test_too_large_record_fails(self, spark, kafka, write):
        large = spark.sql("SELECT repeat('x', 2000) AS value")
        with pytest.raises(PySparkException, match=r"2,000 bytes .* kafka.max.request.size \(1500"):
            write(large, topic=kafka.topic(), kafka__max__request__size="1500")
        # Here the broker rejects the record.
        strict = kafka.topic(**{"max.message.bytes": "1000"})
        with pytest.raises(
            PySparkException, match=r"records were not acknowledged; .* larger than kafka"
        ):
            write(large, topic=strict)


class TestStream:
    @pytest.fixture
    def numbers(self, spark, tmp_path):
        """A stream of numbers from text files that the test adds."""
        source = tmp_path / "numbers"
        source.mkdir()

        def add(first, last):
            lines = "\n".join(map(str, range(first, last)))
            (source / f"{first}.txt").write_text(lines)

        frame = spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        return frame.load(str(source)), add

    def run(self, frame, kafka, topic, checkpoint, **options):
        writer = frame.writeStream.format("partage")
        writer = writer.option("kafka.bootstrap.servers", kafka.servers).option("topic", topic)
        writer = writer.option("deliveryGuarantee", "at-least-once")
        writer = writer.option("checkpointLocation", str(checkpoint)).options(**options)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return query

    def test_stream_rows_have_marks(self, kafka, numbers, read, tmp_path):
        topic = kafka.topic()
        frame, add = numbers
        add(0, 10)
        self.run(frame, kafka, topic, tmp_path / "checkpoint")
        add(10, 15)
        query = self.run(frame, kafka, topic, tmp_path / "checkpoint")
        marks = {
            int(m.value()): dict(m.headers())[MARK].decode()
            for m in consumed(kafka.servers, topic, 15)
        }
        assert marks == {n: f"{query.id}/{n // 10}/0/{n % 10}" for n in range(15)}

    def test_repeated_batch_is_deduplicated_by_marks(self, kafka, numbers, read, tmp_path):
        topic = kafka.topic()
        frame, add = numbers
        checkpoint = tmp_path / "checkpoint"
        for first in (0, 10):
            add(first, first + 10)
            self.run(frame, kafka, topic, checkpoint)
        # As if Spark was killed after the write, before it recorded the batch as done.
        for name in ("1", ".1.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        self.run(frame, kafka, topic, checkpoint)
        kafka.produce(topic, [{"value": b"x"}] * 2)
        found = read(topic)
        assert found.count() == 32
        once = [row.value.decode() for row in drop_duplicates(found).collect()]
        assert sorted(once) == sorted([*map(str, range(20)), "x", "x"])

    def test_repeated_batch_writes_nothing_twice(self, kafka, numbers, read, tmp_path):
        topic = kafka.topic()
        frame, add = numbers
        checkpoint = tmp_path / "checkpoint"
        exactly_once = {"deliveryGuarantee": "exactly-once"}
        for first in (0, 10):
            add(first, first + 10)
            self.run(frame, kafka, topic, checkpoint, **exactly_once)
        # As if Spark was killed after the commit, before it recorded the batch as done.
        for name in ("1", ".1.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        self.run(frame, kafka, topic, checkpoint, **exactly_once)
        assert sorted(int(row.value) for row in read(topic).collect()) == list(range(20))

    def test_failed_batch_leaves_no_row(self, spark, kafka, numbers, tmp_path):
        topic = kafka.topic()
        frame, add = numbers
        add(0, 10)
        failing = frame.selectExpr("if(value = '9', raise_error('nine'), value) as value")
        with pytest.raises(PySparkException, match="nine"):
            self.run(failing, kafka, topic, tmp_path / "c", deliveryGuarantee="exactly-once")
        options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic}
        reader = spark.read.format("partage").options(**options)
        committed = reader.option("kafka.isolation.level", "read_committed").load()
        assert committed.count() == 0

    def test_mark_rows_false_writes_no_headers(self, kafka, numbers, tmp_path):
        topic = kafka.topic()
        frame, add = numbers
        add(0, 3)
        self.run(frame, kafka, topic, tmp_path / "checkpoint", markRows="false")
        assert [m.headers() for m in consumed(kafka.servers, topic, 3)] == [None] * 3
