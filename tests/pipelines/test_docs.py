"""Run the examples of docs/pipelines.md unchanged, in the tests' session."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from console.cli import PartageCli
from partage.testing import ThreadedBroker
from spark.conftest import Kafka

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: Examples that other tests run: those of their pipelines, and `fill` for the topics.
ELSEWHERE = re.compile(r"partage (pipeline (index|rebalances)|search|topics create)")


def test_examples_run(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ThreadedBroker() as broker:
        fill(Kafka(broker.bootstrap_servers))
        partage = PartageCli(broker.bootstrap_servers)
        ran = sum(run(text, language, partage, spark) for language, text in BLOCK.findall(PAGE))
    assert ran >= 3


def run(text, language, partage, spark):
    """Run the examples of a block and return their number."""
    if ELSEWHERE.search(text):
        return 0
    if language == "python":
        # Java does not follow a chdir of this process.
        text = re.sub(r"parquet\(\"", f'parquet("{Path.cwd()}/', text)
        exec(compile(text, "docs/pipelines.md", "exec"), {"spark": spark})
        return 1
    lines = re.findall(r"^\$ (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    for line in lines:
        command, *words = shlex.split(line)
        assert command == "partage"
        assert partage(*words).out
    return len(lines)


def fill(kafka):
    """Produce flights and gates, with equal keys and times."""
    for topic in ("flights", "gates"):
        kafka.create(topic, 2)
    hours = [f"EWR|2013-01-01T{hour:02}:00:00Z" for hour in range(10, 16)]
    for topic, value in (("flights", b'{"dep_delay": 2}'), ("gates", b"A12")):
        kafka.produce(
            topic,
            [
                {"key": hour.encode(), "value": value, "timestamp": 1357034400000 + n * 3_600_000}
                for n, hour in enumerate(hours)
            ],
            partitioner="murmur2_random",
        )
