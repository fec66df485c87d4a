"""A Spark application that copies a topic to another one, for kill tests: ``... JSON``.

A query that fails starts again, as a supervisor would start the application again.
"""

import json
import sys

from partage.spark import prepare_java

prepare_java()

from pyspark.errors import StreamingQueryException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2,4]").appName("copy")
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

stream = spark.readStream.format("partage").options(**given["source"]).load()
writer = stream.select("key", "value").writeStream.format("partage").options(**given["sink"])
writer = writer.trigger(availableNow=True) if given["ends"] else writer
while True:
    try:
        writer.start().awaitTermination()
    except StreamingQueryException as error:
        print(f"the query failed: {error}", file=sys.stderr, flush=True)
    else:
        break
