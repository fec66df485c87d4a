"""A Spark application of the demo: a process that joins its share of the flights.

    python -m examples.flights.application SERVERS GROUP NAME OUTPUT TABLE

Its query joins each flight with the weather of its hour, and writes the rows to OUTPUT, an archive
(`partage.pipelines.archive`). The archive keeps each row once, even if applications are killed. The
application reports events as lines of JSON on stdout. The word ``finish`` on stdin ends the query,
and writes the mean delays of all joined flights to TABLE. The end of stdin ends the application.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from examples.flights.csv_records import FLIGHTS
from examples.flights.delays import joined, mean_delays, read_weather, write
from partage.pipelines.archive.directory import ArchiveDirectory
from partage.pipelines.archive.query import ArchivingQuery
from partage.pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SESSION_TIMEOUT_MS: Final = 6_000
_BATCH_RECORDS: Final = 20_000
#: Small settings, because three applications share two cores.
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "600m",
    "spark.python.worker.reuse": "true",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss1m",
}


class Words:
    """Reader of stdin."""

    def __init__(self) -> None:
        self.finish = threading.Event()
        self.end = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "finish":
                self.finish.set()
        self.end.set()
        self.finish.set()


def _java_version(spark: SparkSession) -> str:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a session has a JVM until it is stopped"
    return str(jvm.System.getProperty("java.version"))


def main() -> None:
    """Run until stdin says ``finish``, then until its end."""
    servers, group, name, output, table = sys.argv[1:]
    out = _own_output()

    def tell(event: str, **details: object) -> None:
        print(json.dumps({"event": event, **details}), file=out, flush=True)

    words = Words()
    try:
        with spark_session(f"demo: {name}", "local[1]", SETTINGS) as spark:
            tell("started", java=_java_version(spark))
            weather = read_weather(spark, servers).cache()
            archive = ArchiveDirectory(Path(output))
            reader = spark.readStream.format("partage").options(
                **{
                    "kafka.bootstrap.servers": servers,
                    "kafka.group.id": group,
                    "kafka.client.id": name,
                    "kafka.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                    "kafka.heartbeat.interval.ms": str(SESSION_TIMEOUT_MS // 6),
                    "subscribe": FLIGHTS,
                    "startingOffsets": "earliest",
                    "columns": "value,topic,partition,offset",
                    "maxOffsetsPerTrigger": str(_BATCH_RECORDS),
                }
            )
            with ArchivingQuery(archive, by=name) as query:
                batches = query.batches

                def take(frame: DataFrame, number: str, offset: Mapping[str, Any]) -> None:
                    batches.archive_batch(
                        number, lambda place: _stage(joined(frame, weather), place)
                    )

                query.run(reader.load(), take, name, every_s=1, is_over=words.finish.is_set)
            if not words.end.is_set():
                write(mean_delays(spark, archive.path), Path(table))
            tell("finished", rows=batches.rows, refused=batches.refused)
            words.end.wait()
    except Exception as error:
        tell("failed", why=str(error).splitlines()[0] if str(error) else repr(error))
        raise


def _stage(frame: DataFrame, place: Path) -> None:
    frame.write.partitionBy("topic").parquet(str(place))


def _own_output() -> TextIO:
    """Return stdout, and redirect Java's prints to stderr."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


if __name__ == "__main__":
    main()
