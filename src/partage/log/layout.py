"""Where things lie in the data directory: Kafka's names, and a few of our own.

::

    topics.json                          the catalogue
    synced                               what is known durable, one slot a partition
    TOPIC-P/00000000000000000000.log     a segment, named after its base offset
    TOPIC-P/00000000000000000000.index       its offset index, once it is closed
    TOPIC-P/00000000000000000000.timeindex   its time index, once it is closed
    TOPIC-P/00000000000000000000.snapshot    the producers' state at its base offset
    TOPIC-P/compaction.progress          up to where it was compacted, and when
    TOPIC-P/compaction.swap              a compaction being swapped in
    TOPIC-P/*.cleaned, *.tmp             unfinished work, removed at start-up
    TOPIC-P/*.torn-POSITION              bytes that start-up cut off, kept to be looked at; with -2,
                                         -3, ... those that were cut off there later
    TOPIC-P.ID.deleted                   a deleted topic's partition, on its way out
"""

from __future__ import annotations

from typing import Final

CATALOGUE: Final = "topics.json"
MARKERS: Final = "synced"
PROGRESS: Final = "compaction.progress"
SWAP: Final = "compaction.swap"

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
SNAPSHOT: Final = ".snapshot"
CLEANED: Final = ".cleaned"
TEMPORARY: Final = ".tmp"
DELETED: Final = ".deleted"

_DIGITS: Final = 20
_TOPIC_SHOWN_MAX: Final = 200  # leaves room for the rest in a file name of 255 bytes


def partition_directory(topic: str, partition: int) -> str:
    """The directory of a partition."""
    return f"{topic}-{partition}"


def deleted_directory(topic: str, partition: int, topic_id: bytes) -> str:
    """What a deleted topic's directory is renamed to; no other topic has this name."""
    return f"{topic[:_TOPIC_SHOWN_MAX]}-{partition}.{topic_id.hex()}{DELETED}"


def file_of(directory: str, offset: int, suffix: str) -> str:
    """The path of a segment's file, or of a snapshot at an offset."""
    return f"{directory}/{offset:0{_DIGITS}}{suffix}"


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name; `None` if it has another form."""
    stem = name.removesuffix(suffix)
    well_formed = len(stem) == _DIGITS and stem.isascii() and stem.isdigit()
    return int(stem) if well_formed and stem != name else None


def files_of_segment(directory: str, base_offset: int) -> list[str]:
    """Everything that goes with a segment when it goes."""
    return [
        file_of(directory, base_offset, suffix) for suffix in (LOG, INDEX, TIME_INDEX, SNAPSHOT)
    ]
