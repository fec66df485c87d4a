"""Kafka Streams with ``exactly_once_v2`` counts words, through kills of it and of the broker.

The same test runs on our broker and on Apache Kafka.
"""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop.partage_broker import PartageBroker
from interop.peers import jars, paths
from interop.peers.kafka import ApacheKafka
from interop.peers.tools import JVM
from polled_conditions import eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]

PARTITIONS = 2
WORDS = ("tower", "runway", "gate", "taxi", "hold", "climb")
LINES = 400
WORDS_IN_LINE = 5
#: Streams waits for sessions and transactions of its killed process, on a busy machine.
PATIENCE_S = 300.0
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


class WordCounter:
    """The word count as a process; ``log`` is its output."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._log = directory / "streams.log"
        state = directory / "state"
        self._command = [
            paths.java(),
            *JVM,
            "-cp",
            jars.class_path("streams", first=paths.JAVA_PEER),
        ]
        self._command += ["WordCount", bootstrap, "counts", "lines", "words", str(state)]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def log_end(self) -> str:
        return self._log.read_text()[-3_000:]


class CountReader:
    """Reads the committed counts of each word, in order."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = defaultdict(list)
        settings = {"group.id": "reader", "enable.auto.commit": False, **QUIET}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **settings}
        )
        self._consumer.assign([TopicPartition("words", n, 0) for n in range(PARTITIONS)])

    def has(self, count: int) -> bool:
        """Read what is there now; return True if that makes ``count`` counts."""
        for message in self._consumer.consume(10_000, 0.2):
            if message.error() is None:
                self.counts[message.key().decode()].append(int(message.value()))
        return sum(map(len, self.counts.values())) >= count

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("broker_type", [PartageBroker, ApacheKafka])
def test_streams_counts_each_word_once_through_kills(
    peers: None, tmp_path: Path, broker_type: type[PartageBroker | ApacheKafka]
) -> None:
    """Every update is written, so the counts of a word are 1, 2, 3 and so on, without a gap.

    Apache Kafka itself is not killed: after such a kill, it once reported offsets of an open
    transaction for more than five minutes, and Streams waited for their end.
    """
    rng = random.Random(890)
    lines = [" ".join(rng.choices(WORDS, k=WORDS_IN_LINE)) for _ in range(LINES)]
    with broker_type(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
        for created in admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in ("lines", "words")]
        ).values():
            created.result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
        reader = CountReader(broker.bootstrap)
        counter = WordCounter(broker.bootstrap, tmp_path)
        other = "broker" if broker_type is PartageBroker else "streams"
        kills = ("streams", other, "streams", other, "streams")
        chunk = LINES // (len(kills) + 1)
        try:
            for number, killed in enumerate(kills, 1):
                write(producer, lines[(number - 1) * chunk : number * chunk])
                # Half of the chunk is counted, so the kill meets open transactions.
                seen = (2 * number - 1) * chunk * WORDS_IN_LINE // 2
                eventually(partial(reader.has, seen), counter.log_end, patience_s=PATIENCE_S)
                if killed == "broker":
                    broker.kill()
                    broker.start()
                else:
                    counter.kill()
                    counter.start()
            write(producer, lines[len(kills) * chunk :])
            everything = partial(reader.has, LINES * WORDS_IN_LINE)
            eventually(everything, counter.log_end, patience_s=PATIENCE_S)
            reader.has(LINES * WORDS_IN_LINE)  # reads counts that would be too many
        finally:
            counter.kill()
            reader.close()
    expected = {
        word: list(range(1, sum(line.split().count(word) for line in lines) + 1)) for word in WORDS
    }
    assert reader.counts == expected


def write(producer: Producer, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        producer.produce("lines", line, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
