"""An application that runs several jobs in one Spark session: ``cluster_application.py JSON``.

The argument has ``master``, ``conf``, ``servers``, ``output``, and the topics of each job. Stdout
has the reports of the pipelines as JSON.
"""

import json
import sys
from pathlib import Path

import msgspec

from partage.pipelines.join.job import JoinOptions, join
from partage.pipelines.join.window import JoinWindow
from partage.pipelines.rebalances.job import RebalancesOptions, rebalances
from partage.pipelines.session import spark_session


def copy(spark, servers, source, target):
    """Read a topic in a batch, and write its records to another topic."""
    reader = spark.read.format("partage").option("kafka.bootstrap.servers", servers)
    records = reader.option("subscribe", source).load().select("key", "value", "partition")
    writer = records.write.format("partage").option("kafka.bootstrap.servers", servers)
    writer.option("topic", target).mode("append").save()


def main(given):
    servers, output = given["servers"], Path(given["output"])
    with spark_session("jobs", given["master"], given["conf"]) as spark:
        copy(spark, servers, given["source"], given["target"])
        options = JoinOptions(
            servers=servers,
            left=given["left"],
            right=given["right"],
            window=JoinWindow(within_ms=0, late_ms=0),
            group="joiners",
            output=output / "joined",
            is_once=True,
        )
        joined = join(spark, options)
        options = RebalancesOptions(
            servers=servers, topic=given["events"], output=output / "rebalances", pictures_max=0
        )
        reports = {"join": joined, "rebalances": rebalances(options, spark)}
    print(msgspec.json.encode(reports).decode())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
