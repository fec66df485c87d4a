"""A Spark application that copies a topic to another one, for kill tests: ``... JSON``.

A query that fails starts again, as a supervisor would start the application again.

While the file ``gate`` exists, each task waits before its last row. A waiting task has a file in
``tasks``, named after its process id.
"""

import json
import os
import sys
import time
from pathlib import Path

from partage.spark import prepare_java

prepare_java()

from pyspark.errors import StreamingQueryException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master(given["master"]).appName("copy")
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    **given["conf"],
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def wait_before_last_row(batches):
    last = None
    for batch in batches:
        if last is not None:
            yield last
        last = batch
    if last is not None:
        wait_at_gate()
        yield last


def wait_at_gate():
    gate, waiting = Path(given["gate"]), Path(given["tasks"]) / str(os.getpid())
    waiting.touch()
    while gate.exists():
        time.sleep(0.02)
    waiting.unlink()


stream = spark.readStream.format("partage").options(**given["source"]).load()
rows = stream.select("key", "value")
rows = rows.mapInArrow(wait_before_last_row, rows.schema) if "gate" in given else rows
writer = rows.writeStream.format("partage").options(**given["sink"])
writer = writer.trigger(availableNow=True) if given["ends"] else writer
while True:
    try:
        writer.start().awaitTermination()
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr, flush=True)
    else:
        break
