"""What a search index has to be, to be kept by `partage.recipes.RedundantIndexer`.

An `Index` is one replica of one partition: its documents, and the offset up to which the partition
is in it, both changed together or not at all. `Indexes` are all that one member has.
`partage.recipes.sqlite_index` is the one implementation here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from partage.client.consumer import Record
from partage.client.metadata import TopicPartition


class SearchIndexError(Exception):
    """The root of what goes wrong with indexes; the message says what to do."""


class Document(NamedTuple):
    """One record as it is searched: ``timestamp`` in ms since the epoch, -1 where there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    text: str


def record_text(record: Record) -> str | None:
    """A record's value as text, which is searched by default; None, for none, is left out."""
    return None if record.value is None else record.value.decode(errors="replace")


def replace_surrogates(text: str) -> str:
    """The same, with "?" for what UTF-8 cannot hold: half a pair, as JSON's ``\\ud800`` gives."""
    return text.encode(errors="replace").decode()


class SearchIndex(ABC):
    """One replica of one partition; used by one thread at a time."""

    @property
    @abstractmethod
    def position(self) -> int | None:
        """The offset of the next record that it lacks; None: it is new, and lacks all."""

    @abstractmethod
    def add(self, documents: Sequence[Document], position: int) -> None:
        """Add documents and move the position, in one transaction: after a crash both or neither.

        Raises:
            SearchIndexError: neither.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of it; what is in it stays."""


class IndexStore(ABC):
    """The indexes of one member. ``name`` is theirs for good, also after a restart."""

    name: str

    @abstractmethod
    def open(self, partition: TopicPartition, topic_id: str) -> SearchIndex:
        """The index of a partition, in which it left off, or a new one.

        A new one too if what is there belongs to another topic of the same name. ``topic_id`` is
        empty where the cluster has no ids.
        """

    @abstractmethod
    def retire(self, partition: TopicPartition) -> None:
        """Others keep this partition now: it is searched no more, and kept for a while.

        Whether it is open or not; what is retired already stays so.
        """

    @abstractmethod
    def remove(self, partition: TopicPartition) -> None:
        """Have nothing of this partition any more; it may not be open."""

    @abstractmethod
    def remove_retired(self, older_than_ms: int) -> list[TopicPartition]:
        """Remove what was retired so many ms ago or longer; which ones that was."""

    @abstractmethod
    def stored_partitions(self) -> Mapping[str, Collection[int]]:
        """What there is, what is retired at the end; may be called from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


def open_index_store(indexes: IndexStore | Path | str) -> IndexStore:
    """These, or those in SQLite in a directory; raises `SearchIndexError`."""
    if isinstance(indexes, IndexStore):
        return indexes
    from partage.recipes.sqlite_index import SqliteIndexStore  # not every Python has SQLite

    return SqliteIndexStore(indexes)
