"""Replicated search indexes: complete, searchable, and recovered after losses."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from client.confluent_admin import create_topic, delete_records, delete_topic, produce
from partage import ConsumerConfig, TopicPartition
from partage.errors import (
    DirectoryInUseError,
    IndexFileError,
    UnknownOptionError,
    UnknownTopicError,
)
from partage.recipes import IndexerConfig, RedundantIndexer
from partage.recipes.replicas import decode_metadata
from partage.recipes.search import search
from partage.recipes.sync import RedundantIndexer as BlockingIndexer
from partage.sync import Consumer
from polled_conditions import eventually

from .external_broker import empty_broker, fresh_topic
from .settings import QUICK_READER, run

pytestmark = pytest.mark.timeout(600)
PARTITIONS = 6
EVERYTHING = [TopicPartition("t", n) for n in range(PARTITIONS)]


@pytest.fixture
def servers(request):
    with empty_broker(request) as servers:
        fresh_topic(servers, "t", PARTITIONS)
        yield servers


def fill(servers, begin, end, topic="t", partitions=PARTITIONS):
    for partition in range(partitions):
        rows = [{"value": b"word%d" % n, "partition": partition} for n in range(begin, end)]
        produce(servers, topic, rows)


def texts(directory, partition, topic="t"):
    """Return the documents by offset and the position of an index file."""
    path = directory / f"{topic}-{partition}.index"
    with sqlite3.connect(path) as connection:
        rows = dict(connection.execute('SELECT "offset", text FROM documents').fetchall())
        (position,) = connection.execute("SELECT position FROM state").fetchone()
        (words,) = connection.execute("SELECT count(*) FROM words WHERE words MATCH 'word*'")
    connection.close()
    assert words == (len(rows),)
    return rows, position


def is_whole(directory, partition, count):
    """True if an index is complete; its documents must always match its position."""
    rows, position = texts(directory, partition)
    assert rows == {n: f"word{n}" for n in range(position or 0)}
    return position == count


class Keeper:
    """An indexer that runs in a thread until it is stopped."""

    def __init__(self, servers, directory, **options):
        self.directory = directory
        settled = {
            **QUICK_READER,
            # no session ends on a busy machine; members that leave send LeaveGroup
            "session_timeout_ms": 30_000,
            "commit_interval_ms": 100,
            "max_poll_records": 50,
            **options,
        }
        self.indexer = BlockingIndexer(servers, "search", ["t"], directory, **settled)
        self.error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            with self.indexer:
                self.indexer.run()
        except BaseException as error:
            self.error = error

    @property
    def positions(self):
        return {p.partition: at for p, at in self.indexer.progress.positions.items()}

    def is_done(self, count):
        return all(at == count for at in self.positions.values())

    def stop(self):
        self.indexer.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.error

    def ended(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def keeper_of(servers, tmp_path):
    keepers = []

    def make(name, **options):
        keepers.append(Keeper(servers, tmp_path / name, **options))
        return keepers[-1]

    yield make
    for keeper in keepers:
        keeper.stop()


def until(holds, *keepers, within_s=45.0):
    """Wait until a condition holds; fail if an indexer has failed."""

    def check():
        for keeper in keepers:
            assert keeper.error is None, keeper.error

    eventually(holds, lambda: [keeper.positions for keeper in keepers], within_s, check)


def replicated(times, count, *keepers):
    """True if each partition has N complete replicas."""
    having = [number for keeper in keepers for number in keeper.positions]
    return sorted(having) == sorted([*range(PARTITIONS)] * times) and all(
        keeper.is_done(count) for keeper in keepers
    )


def commits(servers):
    with Consumer(servers, group_id="search") as consumer:
        return [each for each in consumer.committed(EVERYTHING).values() if each is not None]


def committed(servers):
    return [each.offset for each in commits(servers)]


def have_said(servers, offset, positions):
    """True if the committed metadata shows these positions, in one generation, for every partition.

    A member that commits concurrently may overwrite another member's entry for a moment.
    """
    said = [(each.offset, decode_metadata(each.metadata).values()) for each in commits(servers)]
    alike = [
        (at, sorted(position for _, position in its))
        for at, its in said
        if len({generation for generation, _ in its}) == 1
    ]
    return alike == [(offset, positions)] * PARTITIONS


def test_run_to_end_then_search(servers, tmp_path):
    fill(servers, 0, 40)
    seen = []
    with BlockingIndexer(servers, "search", ["t"], tmp_path / "a", **QUICK_READER) as indexer:
        indexer.run(to_end=True, on_progress=seen.append)
        assert indexer.progress.documents == 40 * PARTITIONS
        assert seen[-1] == indexer.progress
    hits = search(tmp_path, "word7")
    assert sorted((hit.partition, hit.offset) for hit in hits) == [(n, 7) for n in range(6)]
    assert all(is_whole(tmp_path / "a", n, 40) for n in range(PARTITIONS))
    assert committed(servers) == [40] * PARTITIONS


def test_index_position_overrides_committed_offset(servers, tmp_path):
    fill(servers, 0, 20)
    with BlockingIndexer(servers, "search", ["t"], tmp_path / "a", **QUICK_READER) as indexer:
        indexer.run(to_end=True)
    fill(servers, 20, 30)
    with BlockingIndexer(servers, "search", ["t"], tmp_path / "a", **QUICK_READER) as indexer:
        indexer.run(to_end=True)
        assert indexer.progress.records == 10 * PARTITIONS
    with BlockingIndexer(servers, "search", ["t"], tmp_path / "b", **QUICK_READER) as indexer:
        indexer.run(to_end=True)  # a replica without local state is built from the start
        assert indexer.progress.records == 30 * PARTITIONS
    for name in "ab":
        assert all(is_whole(tmp_path / name, n, 30) for n in range(PARTITIONS))


def test_replicas_survive_loss_and_return(keeper_of, servers):
    fill(servers, 0, 50)
    one, two, three = (keeper_of(name) for name in ("one", "two", "three"))
    all_of_them = one, two, three
    until(lambda: all(len(each.positions) == 4 for each in all_of_them), *all_of_them)
    until(lambda: replicated(2, 50, *all_of_them), *all_of_them)
    its = set(three.positions)
    assert three.stop() is None
    fill(servers, 50, 60)
    until(lambda: replicated(2, 60, one, two), one, two)
    again = keeper_of("three")
    until(lambda: len(again.positions) == 4, one, two, again)
    until(lambda: replicated(2, 60, one, two, again), one, two, again)
    assert set(again.positions) == its  # the partitions it has copies of
    assert again.indexer.progress.records == 10 * len(its)
    for keeper in (one, two, again):
        assert keeper.stop() is None
        assert all(is_whole(keeper.directory, number, 60) for number in keeper.positions)


def test_expired_member_gets_indexes_back(keeper_of, servers, partage_broker):
    fill(servers, 0, 30)
    one, two = keeper_of("one", client_id="one"), keeper_of("two")
    until(lambda: replicated(2, 30, one, two), one, two)
    before = one.indexer.progress.rebalances
    partage_broker.faults.expire("search", client_id="one")
    until(lambda: one.indexer.progress.rebalances > before, one, two)
    fill(servers, 30, 40)
    until(lambda: replicated(2, 40, one, two), one, two)
    assert one.indexer.progress.records == 40 * PARTITIONS


class Slow:
    """Limits a replica to N documents."""

    def __init__(self):
        self.gate = threading.Event()

    def __call__(self, record):
        if record.offset >= 20:
            self.gate.wait(60)
        return record.value.decode()


def test_committed_offset_is_lowest_replica(keeper_of, servers):
    fill(servers, 0, 20)
    slow = Slow()
    one, two = keeper_of("one"), keeper_of("two", text=slow)
    until(lambda: replicated(2, 20, one, two), one, two)
    until(lambda: have_said(servers, 20, [20, 20]), one, two)
    fill(servers, 20, 40)
    until(lambda: have_said(servers, 20, [20, 40]), one, two)
    slow.gate.set()
    until(lambda: committed(servers) == [40] * PARTITIONS, one, two)
    assert two.stop() is None
    fill(servers, 40, 50)
    until(lambda: committed(servers) == [50] * PARTITIONS, one)  # a lost replica does not count


def test_recreated_topic_is_reindexed(keeper_of, servers, tmp_path):
    fill(servers, 0, 30)
    one = keeper_of("one", metadata_max_age_ms=200, unknown_topic_wait_ms=30_000)
    until(lambda: len(one.positions) == PARTITIONS and one.is_done(30), one)
    delete_topic(servers, "t")
    create_topic(servers, "t", PARTITIONS)
    fill(servers, 0, 10)
    until(lambda: one.positions == dict.fromkeys(range(PARTITIONS), 10), one)
    assert one.stop() is None
    assert all(is_whole(tmp_path / "one", n, 10) for n in range(PARTITIONS))
    delete_topic(servers, "t")
    create_topic(servers, "t", PARTITIONS)  # this time without a search
    fill(servers, 0, 50)
    again = keeper_of("one")
    until(lambda: again.positions == dict.fromkeys(range(PARTITIONS), 50), again)
    assert again.stop() is None
    assert all(is_whole(tmp_path / "one", n, 50) for n in range(PARTITIONS))


def test_deleted_records_leave_gap(servers, tmp_path):
    fill(servers, 0, 10)
    with BlockingIndexer(servers, "search", ["t"], tmp_path, **QUICK_READER) as indexer:
        indexer.run(to_end=True)
    fill(servers, 10, 30)
    delete_records(servers, "t", 20)
    with BlockingIndexer(servers, "search", ["t"], tmp_path, **QUICK_READER) as indexer:
        indexer.run(to_end=True)
        assert indexer.progress.rebuilt == 0
    rows, position = texts(tmp_path, 0)
    assert sorted(rows) == [*range(10), *range(20, 30)]
    assert position == 30
    assert is_whole(tmp_path, 1, 30)


def test_text_function_may_skip_or_raise(servers, tmp_path):
    produce(servers, "t", [{"value": v, "partition": 0} for v in (b"word0", None, b"\xffword2")])
    with BlockingIndexer(servers, "search", ["t"], tmp_path / "a", **QUICK_READER) as indexer:
        indexer.run(to_end=True)
        assert (indexer.progress.records, indexer.progress.documents) == (3, 2)
    assert texts(tmp_path / "a", 0) == ({0: "word0", 2: "�word2"}, 3)

    def halved(record):
        return (record.value or b"word1").decode(errors="surrogateescape") + "\ud83d"

    with BlockingIndexer(
        servers, "h", ["t"], tmp_path / "h", text=halved, **QUICK_READER
    ) as indexer:
        indexer.run(to_end=True)
    assert texts(tmp_path / "h", 0)[0] == {0: "word0?", 1: "word1?", 2: "?word2?"}

    def text(record):
        return record.value.decode()

    with BlockingIndexer(servers, "x", ["t"], tmp_path / "b", text=text, **QUICK_READER) as indexer:
        with pytest.raises(AttributeError) as raised:
            indexer.run(to_end=True)
        assert raised.value.__notes__ == ["for record t-0 at offset 1"]
    assert texts(tmp_path / "b", 0) == ({}, None)  # no partial transaction


def test_unwritable_index_ends_run(servers, tmp_path):
    fill(servers, 0, 5)
    with BlockingIndexer(servers, "search", ["t"], tmp_path, **QUICK_READER) as indexer:
        indexer.run(to_end=True)
        with sqlite3.connect(tmp_path / "t-3.index") as connection:
            connection.execute("DROP TABLE documents")
        connection.close()
        fill(servers, 5, 6)
        with pytest.raises(IndexFileError, match=r"t-3.index: no such table"):
            indexer.run(to_end=True)


def test_asyncio_run_ends_on_stop_or_cancel(servers, tmp_path):
    async def main():
        fill(servers, 0, 10)
        async with RedundantIndexer(servers, "search", ["t"], tmp_path, **QUICK_READER) as indexer:
            await indexer.run(to_end=True)
            assert indexer.progress.documents == 10 * PARTITIONS
            running = asyncio.create_task(indexer.run())
            await asyncio.to_thread(fill, servers, 10, 20)
            documents = 20 * PARTITIONS
            await asyncio.to_thread(until, lambda: indexer.progress.documents == documents)
            indexer.stop()
            await running
            running = asyncio.create_task(indexer.run())
            await asyncio.sleep(0)  # it starts its thread
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    run(main())
    assert all(is_whole(tmp_path, n, 20) for n in range(PARTITIONS))


@pytest.mark.parametrize("face", [RedundantIndexer, BlockingIndexer])
def test_invalid_arguments_raise(partage_broker, tmp_path, face):
    servers = partage_broker.bootstrap_servers
    create_topic(servers, "t", PARTITIONS)
    reserved = ConsumerConfig.__annotations__.keys() - IndexerConfig.__annotations__.keys()
    for option in reserved - {"group_id"}:
        with pytest.raises(TypeError, match=f"does not accept {option}: "):
            face(servers, "g", ["t"], tmp_path, **{option: "latest"})
    with pytest.raises(UnknownOptionError, match="session_timeout_ms"):
        face(servers, "g", ["t"], tmp_path, session_timeout=1)
    with pytest.raises(ValueError, match="replicas=0: expected an integer of 1 or more"):
        face(servers, "g", ["t"], tmp_path, replicas=0)
    with pytest.raises(ValueError, match=r"a list: \['t'\]"):
        face(servers, "g", "t", tmp_path)
    with pytest.raises(ValueError, match="at least one string"):
        face(servers, "g", [], tmp_path)
    with pytest.raises(ValueError, match="commit_interval_ms"):
        face(servers, "g", ["t"], tmp_path, commit_interval_ms=0)
    with BlockingIndexer(servers, "g", ["t"], tmp_path), pytest.raises(DirectoryInUseError):
        face(servers, "g", ["t"], tmp_path)
    unknown = {"topics": ["tt"], "unknown_topic_wait_ms": 300}
    with (
        pytest.raises(UnknownTopicError),
        BlockingIndexer(servers, "g", indexes=tmp_path, **unknown),
    ):
        pass
    BlockingIndexer(servers, "g", ["t"], tmp_path).close()
