"""Search indexes in SQLite: content, locking and search."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from partage.errors import (
    DirectoryInUseError,
    FullTextSearchUnavailableError,
    IndexFileError,
    InvalidQueryError,
    NoSearchIndexError,
    SearchIndexError,
)
from partage.model.topic_partition import TopicPartition
from partage.recipes import sqlite_index
from partage.recipes.search import LIMIT_MAX, fts5_query, search, searchable_partitions
from partage.recipes.search_index import Document
from partage.recipes.sqlite_index import SqliteIndexStore, check_fts5

ZERO, ONE = TopicPartition("flights", 0), TopicPartition("flights", 1)
BIRDS = TopicPartition("birds-of-prey", 12)


@pytest.fixture
def indexes(tmp_path):
    indexes = SqliteIndexStore(tmp_path / "a")
    yield indexes
    indexes.close()


def documents(*texts, begin=0):
    return [Document(begin + n, 1000 + n, b"k%d" % n, text) for n, text in enumerate(texts)]


def found(directory, query, **options):
    hits = search(directory, query, **options)
    return [(hit.topic, hit.partition, hit.offset) for hit in hits]


def test_add_stores_documents_and_position_together(indexes, tmp_path):
    index = indexes.open(ZERO, "id")
    assert index.position is None
    index.add(documents("one", "two"), 3)
    assert index.position == 3
    with pytest.raises(IndexFileError, match="UNIQUE"):
        index.add(documents("three", begin=3) + documents("again"), 5)
    assert index.position == 3
    index.add((), 7)
    indexes.close()
    again = SqliteIndexStore(tmp_path / "a")
    assert again.open(ZERO, "id").position == 7
    assert [each.documents for each in searchable_partitions(tmp_path)] == [2]
    assert again.name == indexes.name
    again.close()


def test_other_topic_id_replaces_index(indexes, tmp_path):
    indexes.open(ZERO, "id").add(documents("one"), 1)
    indexes.close()
    again = SqliteIndexStore(tmp_path / "a")
    assert again.open(ZERO, "").position == 1  # the topic id is unknown
    again.close()
    again = SqliteIndexStore(tmp_path / "a")
    assert again.open(ZERO, "other").position is None
    assert searchable_partitions(tmp_path)[0].documents == 0
    again.close()


def test_retired_index_is_kept_but_not_searched(indexes, tmp_path):
    for partition in (ZERO, ONE):
        indexes.open(partition, "").add(documents("one"), 1)
    indexes.retire(ONE)
    assert indexes.stored_partitions() == {"flights": [0, 1]}
    indexes.retire(ZERO)
    indexes.open(ONE, "")
    assert indexes.stored_partitions() == {"flights": [1, 0]}  # retired ones last
    indexes.open(ZERO, "")
    indexes.retire(ONE)
    assert found(tmp_path, "one") == [("flights", 0, 0)]
    assert indexes.remove_retired(60_000) == []
    indexes.close()
    indexes = SqliteIndexStore(tmp_path / "a")
    assert indexes.open(ONE, "").position == 1  # in use again
    assert indexes.remove_retired(0) == []
    indexes.retire(ONE)
    assert indexes.remove_retired(0) == [ONE]
    assert indexes.stored_partitions() == {"flights": [0]}
    indexes.retire(ZERO)  # although it was not opened
    indexes.retire(ZERO)
    indexes.retire(ONE)  # it has no index
    assert indexes.stored_partitions() == {"flights": [0]}
    with pytest.raises(NoSearchIndexError):
        search(tmp_path, "one")
    assert sorted(path.name for path in (tmp_path / "a").glob("flights-1*")) == []
    indexes.close()


def test_directory_is_locked_for_one_process(indexes, tmp_path):
    with pytest.raises(DirectoryInUseError, match="another process uses"):
        SqliteIndexStore(tmp_path / "a")
    indexes.close()
    SqliteIndexStore(tmp_path / "a").close()


def test_killed_process_keeps_added_documents(tmp_path):
    code = f"""
import sys, time
from partage.recipes.sqlite_index import SqliteIndexStore
from partage.recipes.search_index import Document
from partage.client.metadata import TopicPartition
indexes = SqliteIndexStore({str(tmp_path / "a")!r})
index = indexes.open(TopicPartition("flights", 0), "id")
for n in range(50):
    index.add([Document(n, 0, None, "word%d" % n)], n + 1)
print("ready", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(DirectoryInUseError):
                SqliteIndexStore(tmp_path / "a")
            assert found(tmp_path, "word7") == [("flights", 0, 7)]  # during the write
        finally:
            process.kill()
    assert found(tmp_path, "word49") == [("flights", 0, 49)]
    indexes = SqliteIndexStore(tmp_path / "a")
    assert indexes.open(ZERO, "id").position == 50
    indexes.close()


def test_interrupted_first_transaction_leaves_nothing(tmp_path):
    """The process was killed after it created the database file, before the first transaction."""
    (tmp_path / "a").mkdir()
    connection = sqlite3.connect(tmp_path / "a" / "flights-0.index")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    (tmp_path / "a" / "flights-1.index").touch()
    with pytest.raises(NoSearchIndexError, match="no search index in"):
        search(tmp_path, "x")
    indexes = SqliteIndexStore(tmp_path / "a")
    assert indexes.open(ZERO, "id").position is None
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "flights-0.index").touch()  # an index that is being created
    assert [each.path for each in searchable_partitions(tmp_path)] == [
        str(tmp_path / "a" / f"flights-{n}.index") for n in (0, 1)
    ]
    indexes.close()


def test_foreign_file_is_not_changed(tmp_path):
    (tmp_path / "flights-0.index").write_text("shopping list\n" * 100)
    with pytest.raises(
        IndexFileError, match=r"flights-0.index: file is not a database\. If the file"
    ):
        SqliteIndexStore(tmp_path)
    with pytest.raises(IndexFileError, match="not a database"):
        search(tmp_path, "x")
    (tmp_path / "flights-0.index").unlink()
    connection = sqlite3.connect(tmp_path / "flights-0.index")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(IndexFileError, match="not written by partage"):
        SqliteIndexStore(tmp_path)
    (tmp_path / "flights-0.index").unlink()
    SqliteIndexStore(tmp_path).close()
    with pytest.raises(SearchIndexError, match="cannot create directory"):
        SqliteIndexStore(tmp_path / "member.sqlite")


def test_newer_format_raises(indexes, tmp_path):
    indexes.open(ZERO, "")
    indexes.close()
    connection = sqlite3.connect(tmp_path / "a" / "flights-0.index")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(
        IndexFileError, match="its format is 2, but this version of partage reads 1"
    ):
        SqliteIndexStore(tmp_path / "a")


def test_missing_fts5_raises(tmp_path, monkeypatch):
    check_fts5()

    class Old:
        OperationalError = sqlite3.OperationalError
        sqlite_version = "3.8.0"

        def connect(self, _):
            return self

        def execute(self, _):
            raise sqlite3.OperationalError("no such module: fts5")

        def close(self):
            pass

    monkeypatch.setattr(sqlite_index, "sqlite3", Old())
    with pytest.raises(
        FullTextSearchUnavailableError, match=r"SQLite 3.8.0 of this Python has no FTS5"
    ):
        SqliteIndexStore(tmp_path)


class TestSearch:
    @pytest.fixture(autouse=True)
    def filled(self, indexes):
        indexes.open(ZERO, "").add(
            documents('{"dest":"IAH","tail":"N14228"}', '{"dest":"MIA","tail":"N24211"}'), 2
        )
        indexes.open(ONE, "").add(
            documents("IAH to dest", "on 2013-01-08 an Überflug", "IAH IAH IAH"), 3
        )
        indexes.open(BIRDS, "").add(documents("the kite", "the red kite"), 2)

    @pytest.mark.parametrize(
        ("query", "offsets"),
        [
            ("N14228", {(0, 0)}),
            ("n14228", {(0, 0)}),
            ("dest iah", {(0, 0), (1, 0)}),
            ('"dest iah"', {(0, 0)}),
            ("N1* dest", {(0, 0)}),
            ("2013-01-08", {(1, 1)}),
            ("überflug", {(1, 1)}),
            ("uberflug", {(1, 1)}),
            ("nobody", set()),
            ("dest: (IAH) AND", set()),
        ],
    )
    def test_search_words(self, tmp_path, query, offsets):
        hits = search(tmp_path, query, topics=["flights"])
        assert {(hit.partition, hit.offset) for hit in hits} == offsets

    def test_search_returns_best_matches_up_to_limit(self, tmp_path):
        assert found(tmp_path, "iah", limit=1) == [("flights", 1, 2)]
        scores = [hit.score for hit in search(tmp_path, "kite")]
        assert scores == sorted(scores, reverse=True)

    def test_search_filters_topics(self, tmp_path):
        assert found(tmp_path, "kite")[0][:2] == BIRDS
        assert found(tmp_path, "kite", topics=["flights"]) == []
        with pytest.raises(NoSearchIndexError, match="no search index of birds in"):
            search(tmp_path, "kite", topics=["birds"])

    def test_search_accepts_fts5_queries(self, tmp_path):
        assert found(tmp_path, "kite NOT red", is_fts5=True) == [(*BIRDS, 0)]
        for query in ("kite AND", "mine:kite", '"kite', "*kite"):
            with pytest.raises(InvalidQueryError, match="not a valid FTS5 query"):
                search(tmp_path, query, is_fts5=True)

    def test_hit_has_all_fields(self, tmp_path):
        (hit,) = search(tmp_path, "N14228")
        assert (hit.timestamp, hit.key) == (1000, "k0")
        assert hit.text == '{"dest":"IAH","tail":"N14228"}'
        assert hit.score > 0
        assert hit.excerpt == hit.text

    def test_search_uses_most_advanced_replica(self, tmp_path):
        other = SqliteIndexStore(tmp_path / "b")
        other.open(ZERO, "").add(documents("IAH", "IAH", "new"), 3)
        other.open(ONE, "").add(documents("old"), 1)
        assert found(tmp_path, "new") == [("flights", 0, 2)]
        assert found(tmp_path, "old") == []
        assert found(tmp_path / "b", "old") == [("flights", 1, 0)]
        furthest = {
            (each.topic, each.partition): each.position for each in searchable_partitions(tmp_path)
        }
        assert furthest == {BIRDS: 2, ZERO: 3, ONE: 3}
        other.close()

    @pytest.mark.parametrize("query", ["", " ", "-", '""', '"dest', '" "'])
    def test_query_without_words_raises(self, tmp_path, query):
        with pytest.raises(InvalidQueryError):
            search(tmp_path, query)

    def test_invalid_search_arguments_raise(self, tmp_path):
        for limit in (0, LIMIT_MAX + 1, 2**63):
            with pytest.raises(InvalidQueryError, match="1 to 1,000,000 records, not"):
                search(tmp_path, "x", limit=limit)
        with pytest.raises(InvalidQueryError, match=r"'x\\udcff' is not valid UTF-8"):
            search(tmp_path, "x\udcff")
        with pytest.raises(NoSearchIndexError, match="does not exist"):
            search(tmp_path / "nowhere", "x")
        (tmp_path / "empty").mkdir()
        with pytest.raises(NoSearchIndexError, match=r"no search index in .*empty"):
            search(tmp_path / "empty", "x")


def test_fts5_query_quotes_words():
    assert fts5_query('a "b c" d*  x:y -') == '"a" "b c" "d"* "x:y"'
