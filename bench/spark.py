"""Spark with ``format("partage")``: batch reads, latency of a stream, cost of an idle query.

There is one broker of ours and one session on local[2]. The peer is Spark's own connector, which
`bench.spark_batch` downloads. The batch reads are those of that module: count and sum, and Parquet
files. The archive is that of `bench.spark_archive`. Latency is the time from just before a record
is produced until its batch has reached the sink, with one batch per second. The CPU of the idle
query is that of the JVM and of the source's process, with Spark's default trigger. The batch read
is also measured from Apache Kafka, so that neither broker decides the result.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from bench import spark_archive, spark_batch
from bench.brokers import KAFKA
from bench.figures import Figure
from bench.spark_batch import OURS, THEIRS, Job, Source, Took, count_and_sum, race, to_parquet
from interop.peers.kafka import JVM_FOR_BENCHMARKS, ApacheKafka
from partage.testing import BrokerProcess

TITLE = "Spark: reading, streaming, waiting"

PATIENCE_S = 180.0
#: Target: the latency may exceed that of the connector by this time.
LATER_MS = 200
#: As in the other benchmarks, a group forms without an initial delay.
SETTINGS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
LATENCY_TOPIC, IDLE_TOPIC = "bench-latency", "bench-idle"


def measure(*, is_quick: bool = False, with_kafka: bool = True) -> Iterator[Figure]:
    """Yield the figures one by one."""
    connector = spark_batch.connector()
    sources = [OURS, THEIRS] if connector else [OURS]
    peer_name = connector.name if connector else ""
    spark = spark_batch.session(connector.class_path if connector else "")
    millions, rounds, seconds = (0.2, 1, 5) if is_quick else (5, 5, 30)

    def figure(what: str, total: int, took: Mapping[str, Took], ratio_wanted: float) -> Figure:
        cpu_s = [f"{source}: {its.cpu_s:.1f} s" for source, its in took.items()]
        return Figure(
            what=what,
            unit="million rows/s",
            ours=total / took[OURS].wall_s / 1e6,
            peer_name=peer_name,
            peer=total / took[THEIRS].wall_s / 1e6 if connector else None,
            ratio_wanted=ratio_wanted,
            note=f"best of {rounds} rounds, alternating; "
            f"CPU of Spark's processes: {', '.join(cpu_s)}",
        )

    def raced(what: str, job: Job, servers: str, total: int, ratio_wanted: float) -> Figure:
        took = race(spark, servers, [Source(s) for s in sources], job, total, rounds)
        return figure(what, total, {s.format: its for s, its in took.items()}, ratio_wanted)

    with BrokerProcess(overrides=SETTINGS, sync="os") as broker:
        servers = broker.bootstrap_servers
        total = spark_batch.fill(servers, millions, 4, "none")
        what = f"count and sum of {total:,} records in a batch read"
        yield raced(what, count_and_sum, servers, total, 0.8)
        what = f"{total:,} records into Parquet by topic and day, all columns"
        yield raced(what, to_parquet, servers, total, 0.9)
        took = spark_archive.race(spark, servers, sources, total, rounds)
        yield figure(
            "the same as a stream, each record exactly once, with headers", total, took, 0.9
        )
        ms = {source: latency_ms(spark, source, servers, seconds) for source in sources}
        yield Figure(
            what="latency of a record to the sink, one batch per second, median",
            unit="ms",
            ours=ms[OURS],
            peer_name=peer_name,
            peer=ms.get(THEIRS),
            less_is_better=True,
            wanted=ms[THEIRS] + LATER_MS if connector else None,
            note="half a second of it is the wait for the next batch; target: at most "
            f"{LATER_MS} ms more than the connector",
        )
        idle = {source: idle_percent(spark, source, servers, seconds) for source in sources}
        yield Figure(
            what="an idle query, source process and JVM",
            unit="% of a core",
            ours=idle[OURS],
            peer_name=peer_name,
            peer=idle.get(THEIRS),
            less_is_better=True,
            wanted=3,
        )
    if with_kafka:
        with ApacheKafka(overrides=SETTINGS, jvm=JVM_FOR_BENCHMARKS) as kafka:
            total = spark_batch.fill(kafka.bootstrap, millions, 4, "none")
            what = f"count and sum of {total:,} records, from {KAFKA}"
            yield raced(what, count_and_sum, kafka.bootstrap, total, 0.8)
    spark.stop()


def latency_ms(spark: SparkSession, source: str, servers: str, seconds: float) -> float:
    """Return the median latency of twenty records per second."""
    arrived: list[float] = []
    topic = f"{LATENCY_TOPIC}-{source}"

    def take(frame: DataFrame, number: int) -> None:
        sent = [float(row.value) for row in frame.select("value").collect()]
        now_s = time.time()
        arrived.extend(now_s - each for each in sent)

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def send() -> None:
        producer.produce(topic, repr(time.time()).encode())
        assert producer.flush(PATIENCE_S) == 0

    send()
    with running_query(spark, source, servers, topic, take, processingTime="1 second"):
        _wait(lambda: bool(arrived))
        time.sleep(3)  # the first batches are the warm-up of Spark
        arrived.clear()
        deadline_s, sent = time.monotonic() + seconds, 0
        while time.monotonic() < deadline_s:
            send()
            sent += 1
            time.sleep(0.05)
        _wait(lambda: len(arrived) >= sent)
    return statistics.median(arrived) * 1000


def idle_percent(spark: SparkSession, source: str, servers: str, seconds: float) -> float:
    """Return the CPU of the JVM and its sources while a query waits for records.

    Our query is a member of a group meanwhile.
    """
    arrived = threading.Event()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(IDLE_TOPIC, b"x")
    assert producer.flush(PATIENCE_S) == 0

    def take(frame: DataFrame, number: int) -> None:
        if frame.count():
            arrived.set()

    options = {"kafka.group.id": "idlers"}
    with running_query(spark, source, servers, IDLE_TOPIC, take, options):
        _wait(arrived.is_set)
        time.sleep(5)  # Spark cleans up after the batch
        before_s = _cpu_s()
        time.sleep(seconds)
        return (_cpu_s() - before_s) / seconds * 100


class running_query:  # noqa: N801 - used as a function
    """A streaming query that runs for the duration of a with block."""

    def __init__(
        self,
        spark: SparkSession,
        source: str,
        servers: str,
        topic: str,
        take: Any,
        options: dict[str, str] | None = None,
        **trigger: Any,
    ) -> None:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", servers)
        given = {"subscribe": topic, "startingOffsets": "earliest"} | (options or {})
        self._checkpoint = tempfile.TemporaryDirectory()
        writer = reader.options(**given).load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", self._checkpoint.name)
        self._query = (writer.trigger(**trigger) if trigger else writer).start()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self._query.stop()
        self._checkpoint.cleanup()


def _cpu_s() -> float:
    (jvm,) = [p for p in psutil.Process().children() if "java" in p.name()]
    # A process that has just ended may still be a child, without a command line.
    children = [p for p in jvm.children() if p.status() != psutil.STATUS_ZOMBIE]
    sources = [p for p in children if any("source_runner" in w for w in p.cmdline())]
    spent = [process.cpu_times() for process in (jvm, *sources)]
    return sum(times.user + times.system for times in spent)


def _wait(is_so: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the query did not get its records")
        time.sleep(0.02)
