"""The driver's listener, without Spark."""

import pytest

from partage.client.errors import NoProgressError
from partage.client.metadata import TopicPartition
from partage.spark.bounds import BadOption
from partage.spark.stream.listener import CommitListener
from partage.spark.stream.offset import INITIAL

from .watching import until


@pytest.mark.parametrize(
    ("error", "levels"),
    [
        (NoProgressError(TopicPartition("t", 0), 1, 2, 7), []),
        (BadOption("kafka.x"), []),
        (RuntimeError("a bug"), ["ERROR"]),
    ],
)
def test_a_commit_that_fails_is_not_the_last_one(monkeypatch, caplog, error, levels):
    listener, seen = CommitListener({}), []

    async def commit(end):
        seen.append(end)
        if len(seen) == 1:
            raise error

    monkeypatch.setattr(listener, "_commit", commit)
    for count in (1, 2):
        listener._begin("query", INITIAL)
        until(lambda count=count: len(seen) == count and not listener._busy)
    listener._loop.stop()
    assert [record.levelname for record in caplog.records] == levels
