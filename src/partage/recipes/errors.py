"""Exceptions of the recipes, most of them of the search index of `RedundantIndexer`."""

from __future__ import annotations

from pathlib import Path


class CalledFromWorkError(RuntimeError):
    """Raised instead of a deadlock: the call would wait for the end of the work that makes it."""

    def __init__(self) -> None:
        super().__init__(
            "this call waits until the work has stopped, and the work itself makes it; return from "
            "the work instead"
        )


class SearchIndexError(Exception):
    """The base class of search index exceptions; the messages say what to do."""


class NoSearchIndexError(SearchIndexError):
    """Raised if a directory has no indexes, or none of the requested topics."""


class InvalidQueryError(SearchIndexError, ValueError):
    """Raised for a query that FTS5 cannot parse."""


class FullTextSearchUnavailableError(SearchIndexError):
    """Raised if this Python's SQLite was built without FTS5."""

    def __init__(self, sqlite_version: str) -> None:
        super().__init__(
            f"SQLite {sqlite_version} of this Python has no FTS5: use a Python whose "
            "SQLite was built with SQLITE_ENABLE_FTS5, such as those of python.org, Debian and "
            "conda"
        )


class DirectoryInUseError(SearchIndexError):
    """Raised if another process uses the directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"another process uses {directory}: give each process a separate directory"
        )


class IndexFileError(SearchIndexError):
    """Raised if SQLite failed on an index file."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(
            f"{path}: {why}. If the file is damaged or is not an index, move it away: a missing "
            "index is rebuilt from its topic"
        )
