"""Bytes on disk that are not what was acknowledged."""

from __future__ import annotations


class DamagedLog(Exception):
    """Acknowledged bytes are missing or changed; the message says where, and what can be done.

    ``path`` and ``position`` (bytes) are where it begins, ``fault`` is what is wrong there.
    """

    def __init__(self, path: str, position: int, fault: str) -> None:
        self.path = path
        self.position = position
        self.fault = fault
        super().__init__(
            f"{path} is damaged at byte {position}: {fault}. Records here were acknowledged. "
            f"Restore the file from a copy, or give up what follows and cut it there: "
            f"partage log cut {path} --at {position}"
        )


class UnreadableBatch(Exception):
    """A batch that is as its producer sent it, checksum and all, and cannot be unpacked. Compressed
    batches are stored unseen: no fault of the disk's.
    """


class DamagedFile(Exception):
    """A file that is no log, such as the list of topics, cannot be read; the message says why, and
    what can be done."""
