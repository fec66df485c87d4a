"""``spark.readStream.format("partage")``, in Spark: a query as a member of a group."""

import time

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PATIENCE_S = 60


def until(true, what=""):
    """Wait until something is so; what it was in the end."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)
    return found


class Query:
    """A streaming query that collects its rows, batch by batch."""

    def __init__(self, frame, checkpoint, **trigger):
        self.rows = []
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self.query = (writer.trigger(**trigger) if trigger else writer).start()

    def _take(self, frame, batch_id):
        self.rows += [tuple(row) for row in frame.collect()]

    def has(self, count):
        """Wait for so many rows; all of them, in order."""

        def come():
            if self.query.exception() is not None:
                raise self.query.exception()
            return len(self.rows) >= count

        until(come, f"{len(self.rows)} rows of {count}")
        return sorted(self.rows)


@pytest.fixture
def stream(spark, kafka, tmp_path):
    queries = []

    def start(name="q", trigger=None, **options):
        options = {"columns": "partition,offset", **options}
        options = {n.replace("__", "."): v for n, v in options.items()}
        frame = spark.readStream.format("partage").options(
            **{"kafka.bootstrap.servers": kafka.servers, **options}
        )
        queries.append(query := Query(frame.load(), tmp_path / name, **(trigger or {})))
        return query

    yield start
    for one in queries:
        one.query.stop()


def filled(kafka, partitions=4, count=100):
    """A topic with records spread evenly, and what a query should get of it."""
    topic = kafka.topic(partitions)
    kafka.produce(topic, [{"value": b"%d" % n, "partition": n % partitions} for n in range(count)])
    return topic, sorted((n % partitions, n // partitions) for n in range(count))


def committed(kafka, group, topic, partitions):
    """What a group has committed, as another client sees it; None where nothing is."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.servers})
    wanted = [TopicPartition(topic, n) for n in range(partitions)]
    asked = [ConsumerGroupTopicPartitions(group, wanted)]
    found = admin.list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    return [None if at.offset < 0 else at.offset for at in sorted(found, key=lambda p: p.partition)]


def test_a_query_reads_as_a_member_and_commits_what_is_done(stream, kafka):
    topic, truth = filled(kafka)
    group = {"kafka__group__id": topic, "startingOffsets": "earliest"}
    query = stream(subscribe=topic, **group)
    assert query.has(100) == truth
    until(lambda: committed(kafka, topic, topic, 4) == [25] * 4)
    kafka.produce(topic, [{"value": b"x", "partition": 2}] * 3)
    assert query.has(103) == sorted([*truth, (2, 25), (2, 26), (2, 27)])
    until(lambda: committed(kafka, topic, topic, 4) == [25, 25, 28, 25])
