"""The driver's commit listener, without Spark."""

import pytest

from partage.client.errors import NoProgressError
from partage.model.topic_partition import TopicPartition
from partage.spark.bounds import SparkOptionError
from partage.spark.stream.listener import CommitListener
from partage.spark.stream.offset import INITIAL_OFFSET

from .group_state import wait_until


@pytest.mark.parametrize(
    ("error", "levels"),
    [
        (NoProgressError(TopicPartition("t", 0), 1, 2, 7), []),
        (SparkOptionError("kafka.x"), []),
        (RuntimeError("a bug"), ["ERROR"]),
    ],
)
def test_listener_continues_after_failed_commit(monkeypatch, caplog, error, levels):
    listener, seen = CommitListener({}), []

    async def commit(end):
        seen.append(end)
        if len(seen) == 1:
            raise error

    monkeypatch.setattr(listener, "_commit", commit)
    for count in (1, 2):
        listener._schedule_commit("query", INITIAL_OFFSET)
        wait_until(lambda count=count: len(seen) == count and not listener._commits_in_flight)
    listener._loop.stop()
    assert [record.levelname for record in caplog.records] == levels
