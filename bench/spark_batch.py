"""Speed of reading a topic in Spark, with ``format("partage")`` and with Spark's connector.

    python -m bench.spark_batch [--millions 5] [--partitions 4] [--codec none] [--rounds 3]

Records of 100 bytes; one job counts them and sums their lengths, another writes all columns to
Parquet, on local[2]. The sources take turns, so that both run under the same conditions. The
best round of each counts, after one warm-up round. CPU is that of Spark's processes (the JVM and
its Python workers), without the broker's.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from partage.spark import prepare_java
from partage.testing import BrokerProcess
from partage.wire.records.decoder import DECODER

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from interop.peers import install, jars

VALUE = b"0123456789" * 10
TOPIC = "bench"
OURS, THEIRS = "partage", "kafka"
#: Arguments by which the command line of a broker is recognized, ours and Apache Kafka's.
_BROKERS = {"broker", "kafka.Kafka"}


class Connector(NamedTuple):
    """Spark's own Kafka connector: its name and its class path."""

    name: str
    class_path: str


def connector() -> Connector | None:
    """Download the connector if necessary; return None, with a message, if that fails."""
    if install.main([install.CONNECTOR]):
        return None
    class_path = jars.class_path(jars.CONNECTOR)
    found = re.search(r"spark-sql-kafka[^/]*-([\d.]+)\.jar", class_path)
    assert found is not None
    return Connector(f"Spark's connector {found[1]}", class_path)


def fill(servers: str, millions: float, partitions: int, codec: str) -> int:
    """Produce the records, spread evenly; return their number."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 50,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    total = int(millions * 1_000_000)
    for n in range(total):
        while True:
            try:
                producer.produce(TOPIC, VALUE, partition=n // 1000 % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if n % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records")
    return total


def session(class_path: str = "") -> SparkSession:
    """Create a session on two cores; ``class_path`` is added to its JVM."""
    prepare_java()
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": class_path,
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cpu_seconds() -> float:
    """Return the CPU time of all child processes except brokers, with their ended children."""
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if _BROKERS.intersection(process.cmdline()):
                continue
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return spent


class Source(NamedTuple):
    """A format, with options in addition to the topic."""

    format: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.format, *map("=".join, self.options)])


class Took(NamedTuple):
    """One round of a job."""

    wall_s: float
    cpu_s: float


#: Processes a source's rows and returns their number, which is checked.
Job = Callable[[DataFrame], int]


def count_and_sum(rows: DataFrame) -> int:
    """Count the records and sum their lengths, without output."""
    row = rows.agg(f.count("*").alias("n"), f.sum(f.length("value")).alias("size")).first()
    assert row is not None
    assert row["size"] == row["n"] * len(VALUE)
    return int(row["n"])


def to_parquet(rows: DataFrame) -> int:
    """Write all columns to files by topic and day, as ``partage pipeline archive`` does."""
    with tempfile.TemporaryDirectory(prefix="partage-bench-") as scratch:
        place = f"{scratch}/archive"
        rows = rows.withColumn("date", f.to_date("timestamp"))
        rows.write.partitionBy("topic", "date").parquet(place)
        return rows.sparkSession.read.parquet(place).count()


def race(
    spark: SparkSession, servers: str, sources: Sequence[Source], job: Job, total: int, rounds: int
) -> Mapping[Source, Took]:
    """Run a job with the sources in turn; return the best round of each, after one warm-up."""
    best: dict[Source, Took] = {}
    for turn in range(rounds + 1):
        for source in sources:
            reader = spark.read.format(source.format).option("kafka.bootstrap.servers", servers)
            rows = reader.option("subscribe", TOPIC).options(**dict(source.options)).load()
            cpu_s, began_s = cpu_seconds(), time.perf_counter()
            found = job(rows)
            took = Took(time.perf_counter() - began_s, cpu_seconds() - cpu_s)
            assert found == total
            if turn:
                best[source] = min(took, best.get(source, took))
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=float, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    settings = {"num.partitions": str(chosen.partitions)}
    peer = connector()
    sources = [Source(OURS), Source(OURS, (("columns", "value"),))]
    sources += [Source(THEIRS)] if peer else []
    with BrokerProcess(overrides=settings, sync="os") as broker:
        servers = broker.bootstrap_servers
        total = fill(servers, chosen.millions, chosen.partitions, chosen.codec)
        spark = session(peer.class_path if peer else "")
        table = Table("job", "source", "million rows/s", "MB/s", "million rows a CPU second")
        for job, whose in (
            (count_and_sum, sources),
            (to_parquet, [s for s in sources if not s[1]]),
        ):
            for source, took in race(spark, servers, whose, job, total, chosen.rounds).items():
                table.add_row(
                    job.__name__,
                    str(source),
                    f"{total / took.wall_s / 1e6:.2f}",
                    f"{total * len(VALUE) / took.wall_s / 1e6:.0f}",
                    f"{total / took.cpu_s / 1e6:.2f}",
                )
        spark.stop()
    Console().print(f"{total:,} records of {len(VALUE)} bytes, {chosen.codec}, decoder {DECODER}")
    Console().print(table)


if __name__ == "__main__":
    main()
