"""Jobs on a Spark cluster whose master, workers and executors are separate processes.

All tests share one cluster. One application runs the jobs of all tests except the archive.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from partage.pipelines.rebalances.job import RebalancesOptions, rebalances
from partage.pipelines.rebalances.tables import SCHEMAS, TABLES
from spark.standalone import Standalone
from spark.test_sink import consumed

from . import cluster_application
from .test_archive import rows as archived_rows
from .test_join import matches
from .test_rebalances import fill
from .test_rebalances import rows as table_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.xdist_group("processes"),
]

BEGIN_MS = 1_700_000_000_000
#: Limit for an application, which can take ten minutes on a machine with many other tests.
TIMEOUT_S = 900
CONF = {
    **Standalone.conf,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": Standalone.conf["spark.executor.extraJavaOptions"],
    "spark.sql.shuffle.partitions": "4",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Standalone(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running


def run(*command):
    """Run a Python program, and return the JSON document on its stdout."""
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    return json.loads(ran.stdout)


def copied_records():
    return [{"key": b"k%d" % n, "value": b"%d" % n, "partition": n % 2} for n in range(2000)]


def side(name):
    """Return the records of one topic of the join, in two partitions."""
    return [
        {
            "key": b"%d" % n,
            "value": b"%s-%d" % (name, n),
            "partition": n % 2,
            "timestamp": BEGIN_MS + n,
        }
        for n in range(200)
    ]


@pytest.fixture(scope="module")
def jobs(kafka, cluster, tmp_path_factory):
    """The topics, the output directory and the reports of the application."""
    topics = {name: kafka.topic(2) for name in ("source", "target", "left", "right", "events")}
    kafka.produce(topics["source"], copied_records())
    for name in ("left", "right"):
        kafka.produce(topics[name], side(name.encode()))
    # A left record waits until no match of it can arrive.
    later = {"key": b"later", "value": b"later", "timestamp": BEGIN_MS + 60_000}
    kafka.produce(topics["right"], [{**later, "partition": partition} for partition in range(2)])
    fill(kafka.servers, topics["events"])
    output = str(tmp_path_factory.mktemp("jobs"))
    given = {"master": cluster.url, "conf": CONF, "servers": kafka.servers, "output": output}
    reports = run(cluster_application.__file__, json.dumps({**given, **topics}))
    return {"topics": topics, "output": Path(output), "reports": reports}


def test_cluster_batch_read_and_sink_copy_each_record(kafka, jobs):
    expected = Counter((each["key"], each["value"], each["partition"]) for each in copied_records())
    copied = consumed(kafka.servers, jobs["topics"]["target"], 2000)
    assert Counter((m.key(), m.value(), m.partition()) for m in copied) == expected


def test_cluster_joins_each_record_with_its_match(jobs):
    assert jobs["reports"]["join"]["rows"] == 200
    expected = {(b"left-%d" % n, (b"right-%d" % n,)): 1 for n in range(200)}
    assert matches(jobs["output"] / "joined") == expected


def test_cluster_rebalances_tables_equal_local_tables(kafka, jobs, tmp_path):
    topic = jobs["topics"]["events"]
    options = RebalancesOptions(servers=kafka.servers, topic=topic, output=tmp_path, pictures_max=0)
    local, report = rebalances(options), jobs["reports"]["rebalances"]
    assert (report["events"], report["tables"]) == (local.events, local.tables)
    assert report["events"] == 20
    for name in TABLES:
        table = parquet.read_table(jobs["output"] / "rebalances" / "tables" / name)
        expected = parquet.read_table(tmp_path / "tables" / name)
        assert table_rows(table.cast(SCHEMAS[name])) == table_rows(expected)


def test_cluster_archives_each_record_once(kafka, cluster, tmp_path):
    """The command is used as users do."""
    topic = kafka.topic(2)
    kafka.produce(topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(2000)])
    command = ["-m", "partage", "pipeline", "archive", "-b", kafka.servers, "--topic", topic]
    command += ["--output", str(tmp_path / "archive"), "--once", "--json", "--master", cluster.url]
    for name, value in CONF.items():
        command += ["--conf", f"{name}={value}"]
    report = run(*command, "--option", "maxOffsetsPerTrigger=500")
    assert (report["rows"], report["refused"]) == (2000, 0)
    assert report["batches"] >= 4
    found = archived_rows(tmp_path / "archive", ["partition", "offset"])
    assert found == Counter((p, o) for p in range(2) for o in range(1000))
