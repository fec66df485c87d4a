"""Errors about bytes on disk that differ from what was acknowledged."""

from __future__ import annotations


class DamagedLogError(Exception):
    """Raised when acknowledged bytes are missing or changed.

    The message says where, and how to repair the log.

    Attributes:
        path: The damaged file, relative to the data directory.
        position: The first damaged byte.
        fault: The reason.
    """

    def __init__(self, path: str, position: int, fault: str) -> None:
        self.path = path
        self.position = position
        self.fault = fault
        super().__init__(
            f"{path} is damaged at byte {position}: {fault}. Acknowledged records are affected. "
            f"Restore the file from a copy, or truncate the log there, which loses all later "
            f"records: partage log cut {path} --at {position}"
        )


class UnreadableBatchError(Exception):
    """Raised when a batch with a valid checksum cannot be decompressed.

    Compressed batches are stored without inspection, so the producer sent it like this. The disk is
    not at fault.
    """


class DamagedFileError(Exception):
    """Raised when a file other than a log, such as the list of topics, cannot be read.

    The message says why, and how to repair it.
    """
