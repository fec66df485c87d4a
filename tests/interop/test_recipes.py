"""Recipes against Apache Kafka: the examples of docs/recipes.md, processors, indexers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from client.confluent_admin import create_topic
from interop.peers.kafka import ApacheKafka
from partage.recipes.search import search, searchable_partitions
from partage.recipes.sync import RedundantIndexer
from polled_conditions import PATIENCE_S, eventually

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.interop
def test_examples_run_on_apache_kafka(peers: None, tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 6
    with ApacheKafka() as kafka:
        for number, text in enumerate(EXAMPLES):
            script = tmp_path / f"example_{number}.py"
            script.write_text(text.replace("127.0.0.1:9092", kafka.bootstrap))
            ran = subprocess.run(
                [sys.executable, script], capture_output=True, text=True, timeout=600, cwd=tmp_path
            )
            assert ran.returncode == 0, f"{text}\n{ran.stdout}{ran.stderr}"


#: As our broker is configured for tests: a dead member is detected soon.
SETTINGS = {"auto.create.topics.enable": "false", "group.min.session.timeout.ms": "100"}
TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(1800)
@pytest.mark.interop
def test_processors_and_indexers_pass_on_apache_kafka(peers: None) -> None:
    files = ["recipes/test_processor.py", "recipes/test_indexer.py"]
    files += ["recipes/test_indexer_runs.py", "pipelines/test_index.py"]
    with ApacheKafka(overrides=SETTINGS) as kafka:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
            cwd=TESTS,
            env={**os.environ, "PARTAGE_TEST_BOOTSTRAP_SERVER": kafka.bootstrap},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout[-8000:]


def last_stable_offset(servers: str, topic: str) -> int:
    """Return the last stable offset of partition 0."""
    settings = {"group.id": "end", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1]
    consumer.close()
    return int(end)


@pytest.mark.interop
def test_index_reaches_end_after_transaction_markers(peers: None, tmp_path: Path) -> None:
    """Transaction markers and aborted records have offsets but no documents."""
    with ApacheKafka(overrides=SETTINGS) as kafka:
        create_topic(kafka.bootstrap, "t", 1)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "x"})
        producer.init_transactions(60)
        for text, is_kept in (("kept one", True), ("gone", False), ("kept two", True)):
            producer.begin_transaction()
            producer.produce("t", text)
            assert producer.flush(60) == 0
            if is_kept:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
        # The coordinator may complete the last transaction after its response to the producer.
        eventually(lambda: last_stable_offset(kafka.bootstrap, "t") == 6)
        options = {"isolation_level": "read_committed"}
        with RedundantIndexer(kafka.bootstrap, "g", ["t"], tmp_path / "a", **options) as indexer:
            indexer.run(to_end=True)
        assert [hit.offset for hit in search(tmp_path, "kept")] == [0, 4]
        assert [(each.documents, each.position) for each in searchable_partitions(tmp_path)] == [
            (2, 6)
        ]
