"""The interface of search indexes that `partage.recipes.RedundantIndexer` maintains.

A `SearchIndex` is one replica of one partition: its documents and its position, changed in one
transaction. An `IndexStore` has all indexes of one member. `partage.recipes.sqlite_index`
implements both.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from partage.client.consumer import Record
from partage.model.topic_partition import TopicPartition

#: An escape in a JSON string: a surrogate pair, another code unit, or a single character.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
)
#: Escapes of these characters are kept: they would end the string, or the text in SQLite.
_KEPT_ESCAPED: Final = frozenset({'"', "\\", *map(chr, range(32))} - set("\t\n\f\r"))


class Document(NamedTuple):
    """A record as it is indexed; ``timestamp`` is ms since the epoch, -1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    text: str


def record_text(record: Record) -> str | None:
    r"""Return a record's value as text, the default text to index; None without a value.

    In a JSON document, escapes such as ``\u00fc`` and ``\n`` are decoded, so that their words are
    found. The result is still a JSON document, except that its strings may contain line breaks.
    """
    if record.value is None:
        return None
    text = record.value.decode(errors="replace")
    return _ESCAPE.sub(_decode_escape, text) if "\\" in text and _is_json(text) else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _decode_escape(escape: re.Match[str]) -> str:
    decoded: str = json.loads(f'"{escape[0]}"')
    is_kept = decoded in _KEPT_ESCAPED or "\ud800" <= decoded[0] <= "\udfff"
    return escape[0] if is_kept else decoded


def replace_surrogates(text: str) -> str:
    r"""Return the text with "?" for lone surrogates (``\ud800``), which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


class SearchIndex(ABC):
    """One replica of one partition; one thread at a time uses it."""

    @property
    @abstractmethod
    def position(self) -> int | None:
        """The offset of the next record to index; None for a new index."""

    @abstractmethod
    def add(self, documents: Sequence[Document], position: int) -> None:
        """Add documents and set the position, in one transaction: a crash keeps both or neither.

        Args:
            documents: The documents, in the order of their offsets.
            position: The offset of the next record to index.

        Raises:
            SearchIndexError: Nothing was changed.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the index; its content remains."""


class IndexStore(ABC):
    """The indexes of one member; ``name`` is permanent, also after a restart."""

    name: str

    @abstractmethod
    def open(self, partition: TopicPartition, topic_id: str) -> SearchIndex:
        """Return the existing index of a partition, or a new one.

        If the existing index belongs to an earlier topic with the same name, it is replaced by a
        new one.

        Args:
            partition: The partition.
            topic_id: The id of its topic; empty if the cluster has no topic ids.

        Raises:
            SearchIndexError: The index cannot be opened.
        """

    @abstractmethod
    def retire(self, partition: TopicPartition) -> None:
        """Close the index of a partition that moved away; it is kept for a while but not searched.

        The index need not be open. Retiring it twice has no effect.
        """

    @abstractmethod
    def remove(self, partition: TopicPartition) -> None:
        """Delete the index of a partition, which must not be in use."""

    @abstractmethod
    def remove_retired(self, older_than_ms: int) -> list[TopicPartition]:
        """Delete indexes that were retired ``older_than_ms`` ago or earlier; return their
        partitions.
        """

    @abstractmethod
    def stored_partitions(self) -> Mapping[str, Collection[int]]:
        """Return all partitions by topic, retired ones last; any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Close all indexes."""
