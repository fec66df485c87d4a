"""Search indexes in SQLite with FTS5: one directory for each member, one file for each partition.

Indexes can be searched while they are written (write-ahead log); see `partage.recipes.search`. A
process crash loses no committed data. A power failure may lose the last transactions, documents and
position alike; these records are then read again.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from partage.model.topic_partition import TopicPartition
from partage.recipes.errors import (
    DirectoryInUseError,
    FullTextSearchUnavailableError,
    IndexFileError,
    SearchIndexError,
)
from partage.recipes.search_index import Document, IndexStore, SearchIndex

#: SQLite's header fields that identify these files and their format.
APPLICATION_ID: Final = 0x50415254
FORMAT: Final = 1

SUFFIX: Final = ".index"
_FILE: Final = re.compile(r"(.+)-(\d+)\.index")
_MEMBER: Final = "member.sqlite"
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE state (
    topic TEXT, partition INTEGER, topic_id TEXT, position INTEGER, retired_at_ms INTEGER
);
CREATE TABLE documents ("offset" INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, text TEXT);
CREATE VIRTUAL TABLE words USING fts5 (text, content = 'documents', content_rowid = 'offset');
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
"""


def check_fts5() -> None:
    """Raise FullTextSearchUnavailableError if SQLite has no FTS5."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    except sqlite3.OperationalError:
        raise FullTextSearchUnavailableError(sqlite3.sqlite_version) from None
    finally:
        connection.close()


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite about a file to IndexFileError."""
    try:
        yield
    except sqlite3.Error as error:
        raise IndexFileError(path, error) from error


def partition_of(path: Path) -> TopicPartition | None:
    """Return the partition of an index file, by its name; None for other files."""
    matched = _FILE.fullmatch(path.name)
    return None if matched is None else TopicPartition(matched[1], int(matched[2]))


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Raise IndexFileError if a file is not an index of this format."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise IndexFileError(path, "it was not written by partage")
    if version != FORMAT:
        raise IndexFileError(
            path, f"its format is {version}, but this version of partage reads {FORMAT}"
        )


def is_new(connection: sqlite3.Connection) -> bool:
    """True if a file is being created, or a crash interrupted its first transaction."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(tables == 0)


class SqliteIndex(SearchIndex):
    """The index of one partition, in one file."""

    def __init__(self, path: Path, partition: TopicPartition) -> None:
        self.path = path
        with sqlite_errors(path):
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            try:
                self._prepare(partition)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, partition: TopicPartition) -> None:
        execute = self._connection.execute
        begins = is_new(self._connection)
        if not begins:
            check_format(self._connection, self.path)
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        if begins:
            self._connection.executescript(_SCHEMA)
            execute("INSERT INTO state VALUES (?, ?, '', NULL, NULL)", partition)
            execute("COMMIT")
        row = execute("SELECT topic_id, position, retired_at_ms FROM state").fetchone()
        self.topic_id: str = row[0]
        self._position: int | None = row[1]
        self.retired_at_ms: int | None = row[2]

    @property
    def position(self) -> int | None:
        return self._position

    def activate(self, topic_id: str) -> None:
        """Mark the index as in use, for this topic."""
        self._set("topic_id = ?, retired_at_ms = NULL", topic_id)
        self.topic_id, self.retired_at_ms = topic_id, None

    def retire(self, at_ms: int) -> None:
        """Mark the index as not in use."""
        self._set("retired_at_ms = ?", at_ms)
        self.retired_at_ms = at_ms

    def _set(self, columns: str, value: object) -> None:
        with sqlite_errors(self.path):
            self._connection.execute(f"UPDATE state SET {columns}", (value,))

    def add(self, documents: Sequence[Document], position: int) -> None:
        connection = self._connection
        with sqlite_errors(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT INTO documents VALUES (?, ?, ?, ?)", documents)
                connection.executemany(
                    "INSERT INTO words (rowid, text) VALUES (?, ?)",
                    [(document.offset, document.text) for document in documents],
                )
                connection.execute("UPDATE state SET position = ?", (position,))
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # it may have been rolled back already
                    connection.execute("ROLLBACK")
                raise
        self._position = position

    def close(self) -> None:
        self._connection.close()


class SqliteIndexStore(IndexStore):
    """The indexes of one member in a directory, which is created if needed.

    Only one process at a time can use it.

    Raises:
        FullTextSearchUnavailableError: This Python's SQLite has no FTS5.
        DirectoryInUseError: Another process uses the directory.
        IndexFileError: A file in the directory is not an index, or is damaged.
    """

    def __init__(self, directory: Path | str) -> None:
        check_fts5()
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SearchIndexError(f"cannot create directory {self.directory}: {error}") from None
        self._lock = threading.Lock()
        self._open: dict[TopicPartition, SqliteIndex] = {}
        self._retired_ms: dict[TopicPartition, int | None] = {}  # of all existing indexes
        self._member = self._lock_directory()
        try:
            for path in sorted(self.directory.glob(f"*{SUFFIX}")):
                if (partition := partition_of(path)) is not None:
                    index = SqliteIndex(path, partition)
                    self._retired_ms[partition] = index.retired_at_ms
                    index.close()
        except BaseException:
            self._member.close()
            raise

    def _lock_directory(self) -> sqlite3.Connection:
        """Read or create the member's name; lock the directory until `close` or process exit."""
        path = self.directory / _MEMBER
        with sqlite_errors(path):
            member = sqlite3.connect(path, timeout=0, check_same_thread=False, isolation_level=None)
            try:
                member.execute("BEGIN EXCLUSIVE")
                member.execute("CREATE TABLE IF NOT EXISTS member (name TEXT)")
                if member.execute("SELECT name FROM member").fetchone() is None:
                    member.execute("INSERT INTO member VALUES (?)", (secrets.token_hex(4),))
                (self.name,) = member.execute("SELECT name FROM member").fetchone()
                member.execute("PRAGMA locking_mode = EXCLUSIVE")  # the COMMIT keeps the lock
                member.execute("COMMIT")
                member.execute("BEGIN EXCLUSIVE")
            except BaseException as error:
                member.close()
                if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                    raise DirectoryInUseError(self.directory) from None
                raise
        return member

    def path_of(self, partition: TopicPartition) -> Path:
        """Return the path of a partition's index."""
        return self.directory / f"{partition.topic}-{partition.partition}{SUFFIX}"

    def open(self, partition: TopicPartition, topic_id: str) -> SqliteIndex:
        index = SqliteIndex(self.path_of(partition), partition)
        if topic_id and index.topic_id not in ("", topic_id):
            index.close()
            self.remove(partition)
            index = SqliteIndex(self.path_of(partition), partition)
        index.activate(topic_id or index.topic_id)
        with self._lock:
            self._open[partition] = index
            self._retired_ms[partition] = None
        return index

    def retire(self, partition: TopicPartition) -> None:
        index = self._open.pop(partition, None)
        if index is None:
            if self._retired_ms.get(partition, 0) is not None:
                return  # It is retired already, or there is no index.
            index = SqliteIndex(self.path_of(partition), partition)
        index.retire(_now_ms())
        index.close()
        with self._lock:
            self._retired_ms[partition] = index.retired_at_ms

    def remove(self, partition: TopicPartition) -> None:
        path = self.path_of(partition)
        index = self._open.pop(partition, None)
        if index is None and path.exists():
            with suppress(SearchIndexError):  # damaged indexes are removed too
                index = SqliteIndex(path, partition)
        if index is not None:
            # This ends its write-ahead log, which must not exist when a new index is created.
            index.close()
        for end in ("-wal", "-shm", ""):
            path.with_name(path.name + end).unlink(missing_ok=True)
        with self._lock:
            self._retired_ms.pop(partition, None)

    def remove_retired(self, older_than_ms: int) -> list[TopicPartition]:
        until_ms = _now_ms() - older_than_ms
        gone = [
            partition
            for partition, at_ms in sorted(self._retired_ms.items())
            if at_ms is not None and at_ms <= until_ms
        ]
        for partition in gone:
            self.remove(partition)
        return gone

    def stored_partitions(self) -> Mapping[str, list[int]]:
        with self._lock:
            found: dict[str, list[int]] = {}
            retired = {p: at_ms is not None for p, at_ms in self._retired_ms.items()}
            for topic, partition in sorted(retired, key=lambda p: (retired[p], p)):
                found.setdefault(topic, []).append(partition)
            return found

    def close(self) -> None:
        for index in self._open.values():
            index.close()
        self._open.clear()
        self._member.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
