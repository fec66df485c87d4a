"""A Spark application whose first task waits in each of its attempts: ``... JSON``.

It copies a topic to another one, exactly once. The keys are the numbers of the attempts. Each
attempt of task 0 creates a named pipe in ``pipes`` before row ``row``, and goes on when another
process has opened and closed the pipe.
"""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa

from partage.spark import prepare_java

prepare_java()

from pyspark import TaskContext  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master(given["master"]).appName("speculation")
for name, value in given["conf"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def wait_in_first_task(batches):
    context = TaskContext.get()
    attempt = context.attemptNumber()
    for number, batch in enumerate(batches):
        if number == given["row"] and context.partitionId() == 0:
            pipe = Path(given["pipes"]) / str(attempt)
            os.mkfifo(pipe)
            pipe.read_bytes()
        keys = pa.array([b"%d" % attempt] * batch.num_rows, pa.binary())
        yield batch.set_column(0, "key", keys)


stream = spark.readStream.format("partage").options(**given["source"]).load()
rows = stream.select("key", "value")
copied = rows.mapInArrow(wait_in_first_task, rows.schema)
writer = copied.writeStream.format("partage").options(**given["sink"])
writer.trigger(availableNow=True).start().awaitTermination()
