"""A client of Spark Connect: a batch read, and a stream in a group. It prints JSON.

python connect_application.py SERVERS TOPIC GROUP DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys

# A free port for the server; PySpark asks the server for it.
os.environ["SPARK_TESTING"] = "1"


def main(servers: str, topic: str, group: str, directory: str) -> None:
    from partage.spark import prepare_java

    prepare_java()
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    builder = SparkSession.builder.remote("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert isinstance(spark, ConnectSession)

    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    batch = spark.read.format("partage").options(**options).load()
    stream = (
        spark.readStream.format("partage")
        .options(**options)
        .option("kafka.group.id", group)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING)", "partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .option("path", f"{directory}/table")
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(60)
    tables = {"batch": batch, "stream": spark.read.parquet(f"{directory}/table")}
    columns = ("CAST(value AS STRING)", "partition", "offset")
    found = {
        name: sorted([*map(list, table.selectExpr(*columns).collect())])
        for name, table in tables.items()
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
