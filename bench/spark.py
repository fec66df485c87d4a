"""Spark through ``format("partage")``: batch reads, latency of a stream, a query that is idle.

One broker of ours, one session on local[2]. The batch read counts records of 100 bytes and sums
their lengths, the best of three after one to warm up. Latency is from just before a record is
produced to when its batch has reached the sink, with a batch a second. The idle query's CPU is
that of its source process and of the JVM, with Spark's default trigger.

Spark's own connector would be the peer; it has to be on the class path of PySpark, which does not
bring it along: put its archives into ``pyspark/jars`` and it is measured too.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from bench import spark_batch
from bench.figures import Figure
from partage.testing import BrokerProcess

TITLE = "Spark: reading, streaming, waiting"

CONNECTOR = "Spark's connector"
PATIENCE_S = 180.0
LATENCY_TOPIC, IDLE_TOPIC = "bench-latency", "bench-idle"


def ask(*, is_quick: bool = False, with_kafka: bool = True) -> Iterator[Figure]:
    """The figures, one by one."""
    jars = Path(pyspark.__file__).parent / "jars"
    has_peer = any(jars.glob("spark-sql-kafka-*.jar"))
    with BrokerProcess(overrides={"num.partitions": "4"}, sync="os") as broker:
        servers = broker.bootstrap_servers
        total = spark_batch.fill(servers, 0.2 if is_quick else 5, 4, "none")
        spark = spark_batch.session()
        rate = batch_rate(spark, "partage", servers, total)
        yield Figure(
            what=f"count and sum of {total:,} records in a batch read",
            unit="million rows/s",
            ours=rate,
            peer_name=CONNECTOR if has_peer else "",
            peer=batch_rate(spark, "kafka", servers, total) if has_peer else None,
            ratio_wanted=0.8,
        )
        seconds = 5 if is_quick else 30
        yield Figure(
            what="a record's way to the sink with a batch a second, median",
            unit="ms",
            ours=latency_ms(spark, "partage", servers, seconds),
            peer_name=CONNECTOR if has_peer else "",
            peer=latency_ms(spark, "kafka", servers, seconds) if has_peer else None,
            less_is_better=True,
            note="half a second of it is waiting for the next batch",
        )
        yield Figure(
            what="an idle query, source process and JVM",
            unit="% of a core",
            ours=idle_percent(spark, servers, 5 if is_quick else 30),
            less_is_better=True,
            wanted=3,
        )
        spark.stop()


def batch_rate(spark: SparkSession, source: str, servers: str, total: int) -> float:
    """Million rows a second."""
    best = spark_batch.read(spark, source, servers)
    assert best["n"] == total
    return total / float(best["s"]) / 1e6


def latency_ms(spark: SparkSession, source: str, servers: str, seconds: float) -> float:
    """The median, of twenty records a second."""
    arrived: list[float] = []

    def take(frame: DataFrame, number: int) -> None:
        sent = [float(row.value) for row in frame.select("value").collect()]
        now_s = time.time()
        arrived.extend(now_s - each for each in sent)

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def send() -> None:
        producer.produce(LATENCY_TOPIC, repr(time.time()).encode())
        assert producer.flush(PATIENCE_S) == 0

    send()
    with running(spark, source, servers, LATENCY_TOPIC, take, processingTime="1 second"):
        _wait(lambda: bool(arrived))
        time.sleep(3)  # the first batches warm Spark up
        arrived.clear()
        deadline_s, sent = time.monotonic() + seconds, 0
        while time.monotonic() < deadline_s:
            send()
            sent += 1
            time.sleep(0.05)
        _wait(lambda: len(arrived) >= sent)
    return statistics.median(arrived) * 1000


def idle_percent(spark: SparkSession, servers: str, seconds: float) -> float:
    """CPU of the JVM and of all sources under it, while a member waits for records."""
    arrived = threading.Event()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(IDLE_TOPIC, b"x")
    assert producer.flush(PATIENCE_S) == 0

    def take(frame: DataFrame, number: int) -> None:
        if frame.count():
            arrived.set()

    options = {"kafka.group.id": "idlers", "startingOffsets": "earliest"}
    with running(spark, "partage", servers, IDLE_TOPIC, take, options):
        _wait(arrived.is_set)
        time.sleep(5)  # Spark's own tidying up after the batch
        before_s = _cpu_s()
        time.sleep(seconds)
        return (_cpu_s() - before_s) / seconds * 100


class running:  # noqa: N801 - reads as what it is
    """A streaming query, for as long as the block."""

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
    sources = [p for p in jvm.children() if any("source_runner" in w for w in p.cmdline())]
    spent = [process.cpu_times() for process in (jvm, *sources)]
    return sum(times.user + times.system for times in spent)


def _wait(is_so: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the query did not get its records")
        time.sleep(0.02)
