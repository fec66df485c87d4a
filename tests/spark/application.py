"""A Spark application with one streaming query, for kill tests: ``application.py JSON``.

It writes each batch to a file named after the batch number, so a repeated batch overwrites its
earlier output. ``batch_s`` and ``task_s`` slow down batches and tasks. A running slow task has a
file in ``tasks``, named after its process id.
"""

import json
import os
import sys
import time
from pathlib import Path

from partage.spark import prepare_java

prepare_java()

from pyspark.sql import SparkSession  # noqa: E402

given = json.loads(sys.argv[1])
out = Path(given["out"])
builder = SparkSession.builder.master(given["master"]).appName("application")
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    **given.get("conf", {}),
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def slowly(rows):
    rows = list(rows)
    under_way = Path(given["tasks"]) / str(os.getpid())
    under_way.touch()
    time.sleep(given["task_s"])
    under_way.unlink()
    return rows


def write(frame, number):
    found = frame.select("partition", "offset")
    found = found.rdd.mapPartitions(slowly) if given["task_s"] else found
    rows = [[row.partition, row.offset] for row in found.collect()]
    time.sleep(given["batch_s"])
    (out / "next").write_text(json.dumps(rows))
    (out / "next").rename(out / f"{number}.json")


stream = spark.readStream.format("partage").options(**given["options"]).load()
writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", given["checkpoint"])
writer = writer.trigger(availableNow=True) if given["ends"] else writer
while True:
    try:
        writer.start().awaitTermination()
    except Exception as error:
        # Spark allows a Python process ten seconds to start, which is too short on a busy machine.
        if "failed to connect back" not in str(error):
            raise
    else:
        break
