"""How fast Spark reads a topic through ``format("partage")``.

    python -m bench.spark_batch [--millions 5] [--partitions 4] [--codec none]

Records of 100 bytes; the read counts them and sums their lengths, on local[2], the best of three.
CPU is that of Spark's processes (the JVM and its Python workers), without the broker's. Spark's
own Kafka connector belongs beside it; its place is marked below.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from partage.spark import prepare_java
from partage.testing import BrokerProcess
from partage.wire.records.decode import DECODER

VALUE = b"0123456789" * 10
TOPIC = "bench"


def fill(servers: str, millions: float, partitions: int, codec: str) -> int:
    """Produce the records, spread evenly; how many."""
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


def session() -> SparkSession:
    """One session on two cores."""
    prepare_java()
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cpu_seconds() -> float:
    """CPU time of all processes under this one, but for brokers, ended ones of theirs included."""
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "broker" in process.cmdline():
                continue
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return spent


def read(spark: SparkSession, source: str, servers: str, **options: str) -> dict[str, Any]:
    """Count and sum through one source; the fastest of three after one to warm up."""
    best: dict[str, Any] = {}
    for turn in range(4):
        frame = spark.read.format(source).option("kafka.bootstrap.servers", servers)
        rows = frame.option("subscribe", TOPIC).options(**options).load()
        cpu, began = cpu_seconds(), time.perf_counter()
        row = rows.agg(f.count("*").alias("n"), f.sum(f.length("value")).alias("size")).first()
        took, cpu = time.perf_counter() - began, cpu_seconds() - cpu
        assert row is not None
        if turn and (not best or took < best["s"]):
            best = {"n": row["n"], "size": row["size"], "s": took, "cpu": cpu}
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=float, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", default="none")
    chosen = parser.parse_args()
    settings = {"num.partitions": str(chosen.partitions)}
    with BrokerProcess(overrides=settings, sync="os") as broker:
        total = fill(broker.bootstrap_servers, chosen.millions, chosen.partitions, chosen.codec)
        spark = session()
        table = Table("source", "million rows/s", "MB/s", "million rows a CPU second")
        # Spark's own connector comes here: ("kafka", {}) once its jars are on the class path.
        for source, options in (("partage", {}), ("partage", {"columns": "value"})):
            best = read(spark, source, broker.bootstrap_servers, **options)
            assert (best["n"], best["size"]) == (total, total * len(VALUE))
            table.add_row(
                f"{source} {options or ''}",
                f"{total / best['s'] / 1e6:.2f}",
                f"{best['size'] / best['s'] / 1e6:.0f}",
                f"{total / best['cpu'] / 1e6:.2f}",
            )
        spark.stop()
    Console().print(f"{total:,} records of {len(VALUE)} bytes, {chosen.codec}, decoder {DECODER}")
    Console().print(table)


if __name__ == "__main__":
    main()
