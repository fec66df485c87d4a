"""Names of files in the data directory: Kafka's names, and a few additional ones.

::

    topics.json                          the catalogue of topics
    synced                               checkpoints, one slot for each partition
    TOPIC-P/00000000000000000000.log     a segment, named after its base offset
    TOPIC-P/00000000000000000000.index       its offset index, once it is closed
    TOPIC-P/00000000000000000000.timeindex   its time index, once it is closed
    TOPIC-P/00000000000000000000.txnindex    the transactions that its markers abort, if any
    TOPIC-P/00000000000000000000.snapshot    the producer state at its base offset
    TOPIC-P/compaction.progress          the extent and times of past compactions
    TOPIC-P/compaction.swap              a compaction that is being swapped in
    TOPIC-P/*.cleaned, *.tmp             unfinished work, removed at start
    TOPIC-P/*.torn-POSITION              bytes that recovery cut off; later ones at the same
                                         position end in -2, -3, ...
    TOPIC-P.ID.deleted                   a deleted topic's partition, to be removed
"""

from __future__ import annotations

from typing import Final

CATALOGUE_FILE: Final = "topics.json"
CHECKPOINT_FILE: Final = "synced"
PROGRESS_FILE: Final = "compaction.progress"
SWAP_FILE: Final = "compaction.swap"

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
CLEANED_SUFFIX: Final = ".cleaned"
TEMPORARY_SUFFIX: Final = ".tmp"
DELETED_SUFFIX: Final = ".deleted"

_DIGITS: Final = 20
_TOPIC_SHOWN_MAX: Final = 200  # leaves room for the rest in a file name of 255 bytes


def partition_directory(topic: str, partition: int) -> str:
    """Return the directory of a partition."""
    return f"{topic}-{partition}"


def deleted_directory(topic: str, partition: int, topic_id: bytes) -> str:
    """Return the new name of a deleted partition's directory, which no other topic can have."""
    return f"{topic[:_TOPIC_SHOWN_MAX]}-{partition}.{topic_id.hex()}{DELETED_SUFFIX}"


def segment_file(directory: str, offset: int, suffix: str) -> str:
    """Return the path of a segment's file, or of a snapshot at an offset."""
    return f"{directory}/{offset:0{_DIGITS}}{suffix}"


def base_name(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def offset_from_name(name: str, suffix: str) -> int | None:
    """Return the offset in a file name; None if the name has another form."""
    stem = name.removesuffix(suffix)
    well_formed = len(stem) == _DIGITS and stem.isascii() and stem.isdigit()
    return int(stem) if well_formed and stem != name else None


def segment_files(directory: str, base_offset: int) -> list[str]:
    """Return the paths of all files that belong to a segment."""
    return [
        segment_file(directory, base_offset, suffix)
        for suffix in (
            LOG_SUFFIX,
            INDEX_SUFFIX,
            TIME_INDEX_SUFFIX,
            TXN_INDEX_SUFFIX,
            SNAPSHOT_SUFFIX,
        )
    ]
