"""Search in the indexes of `partage.recipes.RedundantIndexer`, also while they are written."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from partage.model.arguments import check_instance, check_int, check_path, check_texts
from partage.model.topic_partition import TopicPartition
from partage.recipes.errors import IndexFileError, InvalidQueryError, NoSearchIndexError
from partage.recipes.search_index import replace_surrogates
from partage.recipes.sqlite_index import (
    SUFFIX,
    check_format,
    check_fts5,
    is_new,
    partition_of,
    sqlite_errors,
)

__all__ = ["LIMIT_MAX", "Hit", "SearchablePartition", "search", "searchable_partitions"]

#: Maximum number of results: they are held in memory, for each partition.
LIMIT_MAX: Final = 1_000_000

_SEARCH: Final = """
SELECT d."offset", d.timestamp, d.key, d.text, -bm25(words), snippet(words, 0, '', '', '…', 24)
FROM words JOIN documents d ON d."offset" = words.rowid
WHERE words MATCH ? ORDER BY rank, d."offset" LIMIT ?
"""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a search found.

    Attributes:
        score: The BM25 score, higher for better matches; computed for each partition.
        excerpt: The part of the text with the most matches.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    text: str
    score: float
    excerpt: str


class SearchablePartition(msgspec.Struct, frozen=True, kw_only=True):
    """The searchable index of one partition; ``position`` is the next offset, 0 at first."""

    topic: str
    partition: int
    documents: int
    position: int
    path: str


def search(
    directory: Path | str,
    query: str,
    *,
    limit: int = 10,
    topics: Collection[str] | None = None,
    is_fts5: bool = False,
) -> list[Hit]:
    """Search the indexes of one member's directory, or of several in it.

    Args:
        directory: The directory of one member's indexes, or one with such directories.
        query: Words that must all occur. Words in double quotes must follow each other; a word that
            ends with ``*`` is a prefix.
        limit: Maximum number of results, at most `LIMIT_MAX`.
        topics: The topics to search; all if None.
        is_fts5: True if the query is in FTS5's query language (AND, OR, NOT, NEAR).

    Returns:
        The best matches, best first.

    Raises:
        NoSearchIndexError, InvalidQueryError, FullTextSearchUnavailableError, IndexFileError
    """
    check_instance("query", query, str)
    if not 1 <= check_int("limit", limit, least=-(2**63)) <= LIMIT_MAX:
        raise InvalidQueryError(
            f"the limit of a search must be 1 to {LIMIT_MAX:,} records, not {limit:,}"
        )
    if query != replace_surrogates(query):
        raise InvalidQueryError(f"the query {query!r} is not valid UTF-8: it has a lone surrogate")
    wanted = query if is_fts5 else fts5_query(query)
    found: list[Hit] = []
    for partition, path in _chosen(_to_path(directory), topics):
        with _reading(path) as connection:
            try:
                rows = connection.execute(_SEARCH, (wanted, limit)).fetchall()
            except sqlite3.OperationalError as error:
                raise _bad(query, error) or error from None
        found += [_hit(partition, row) for row in rows]
    return heapq.nsmallest(limit, found, key=_rank)


def _rank(hit: Hit) -> tuple[float, str, int, int]:
    return -hit.score, hit.topic, hit.partition, hit.offset


def searchable_partitions(
    directory: Path | str, topics: Collection[str] | None = None
) -> list[SearchablePartition]:
    """Return the indexes that `search` would use, by partition.

    Args:
        directory: The directory of one member's indexes, or one with such directories.
        topics: The topics; all if None.

    Raises:
        NoSearchIndexError, FullTextSearchUnavailableError, IndexFileError
    """
    return [_held(partition, path) for partition, path in _chosen(_to_path(directory), topics)]


def fts5_query(query: str) -> str:
    """Convert a query of plain words to FTS5; each word is quoted, so that no operator applies.

    Raises:
        InvalidQueryError: The query has no words, or a quote is not closed.
    """
    parts = query.split('"')
    if len(parts) % 2 == 0:
        raise InvalidQueryError(f"the query {query!r} has an unterminated double quote")
    terms: list[str] = []
    for number, part in enumerate(parts):
        pieces = [part] if number % 2 else part.split()
        terms += [piece for piece in pieces if any(map(str.isalnum, piece))]
    if not terms:
        raise InvalidQueryError(f"the query {query!r} has no words to search for")
    return " ".join(f'"{term.removesuffix("*")}"{"*" * term.endswith("*")}' for term in terms)


def _to_path(directory: Path | str) -> Path:
    check_path("directory", directory)
    return Path(directory)


def _chosen(directory: Path, topics: Collection[str] | None) -> list[tuple[TopicPartition, Path]]:
    """Return one index of each partition: of several replicas the one with the highest position."""
    if topics is not None:
        check_texts("topics", topics, "flights", may_be_empty=True)
    check_fts5()
    if not directory.is_dir():
        raise NoSearchIndexError(f"directory {directory} does not exist")
    best: dict[TopicPartition, tuple[int, Path]] = {}
    for path in sorted(directory.rglob(f"*{SUFFIX}")):
        partition = partition_of(path)
        if partition is None or (topics is not None and partition.topic not in topics):
            continue
        try:
            with _opened(path) as connection:
                if is_new(connection):
                    continue
                check_format(connection, path)
                position, retired = connection.execute(
                    "SELECT coalesce(position, 0), retired_at_ms FROM state"
                ).fetchone()
        except IndexFileError:
            if not path.exists():
                continue  # The index was removed in the meantime.
            raise
        if retired is None and position > best.get(partition, (-1, path))[0]:
            best[partition] = position, path
    if not best:
        named = f" of {', '.join(sorted(topics))}" if topics else ""
        raise NoSearchIndexError(
            f"no search index{named} in {directory}: create one with partage pipeline index"
        )
    return [(partition, best[partition][1]) for partition in sorted(best)]


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with _opened(path) as connection:
        check_format(connection, path)
        yield connection


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with sqlite_errors(path):
        # SQLite must be able to write here: after a crash, the first process to open the database
        # must recover its write-ahead log.
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        try:
            connection.execute("PRAGMA query_only = ON")
            yield connection
        finally:
            connection.close()


def _bad(query: str, error: sqlite3.OperationalError) -> InvalidQueryError | None:
    said = str(error)
    if said.startswith(("fts5:", "no such column", "unterminated", "unknown special query")):
        return InvalidQueryError(f"the query {query!r} is not a valid FTS5 query: {said}")
    return None


def _hit(partition: TopicPartition, row: tuple[int, int, bytes | None, str, float, str]) -> Hit:
    offset, timestamp, key, text, score, excerpt = row
    return Hit(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        timestamp=timestamp,
        key=None if key is None else key.decode(errors="replace"),
        text=text,
        score=score,
        excerpt=excerpt,
    )


def _held(partition: TopicPartition, path: Path) -> SearchablePartition:
    with _reading(path) as connection:
        (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
        (position,) = connection.execute("SELECT coalesce(position, 0) FROM state").fetchone()
    return SearchablePartition(
        topic=partition.topic,
        partition=partition.partition,
        documents=documents,
        position=position,
        path=str(path),
    )
