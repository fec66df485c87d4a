"""``partage pipeline archive`` on a Spark cluster with executors in separate processes."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from spark.standalone import Standalone

from .test_archive import PATIENCE_S, rows

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def cluster(tmp_path):
    with Standalone(tmp_path / "cluster") as running:
        yield running


def test_cluster_archives_each_record_once(kafka, cluster, tmp_path):
    topic = kafka.topic(2)
    kafka.produce(topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(2000)])
    command = [sys.executable, "-m", "partage", "pipeline", "archive", "-b", kafka.servers]
    command += ["--topic", topic, "--output", str(tmp_path / "archive"), "--once", "--json"]
    local = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    for name, value in {**cluster.conf, **local}.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--master", cluster.url, "--option", "maxOffsetsPerTrigger=500"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert (report["rows"], report["refused"]) == (2000, 0)
    assert report["batches"] >= 4
    found = rows(tmp_path / "archive", ["partition", "offset"])
    assert found == Counter((p, o) for p in range(2) for o in range(1000))
