"""``records``: a record that was acknowledged stays where it is, and is there once.

The producer of a world writes n as the n-th record of a partition, and tells the broker which
number it is: so n lies at offset n, whatever was lost on the way, and is never seen elsewhere.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import Delivered, History, Partition, Produced, Violation
from partage.model.settings import GroupSettings


class Records:
    """Judges each acknowledged and each delivered record by its place."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        history.listen(Produced, self._produced)
        history.listen(Delivered, self._delivered)

    def _produced(self, entry: Produced) -> None:
        self._judge(entry.partition, entry.offset, entry.value)

    def _delivered(self, entry: Delivered) -> None:
        for offset, value in entry.records:
            self._judge(entry.partition, offset, value)

    def _judge(self, partition: Partition, offset: int, value: bytes) -> None:
        if value != str(offset).encode():
            raise Violation("records", f"{value!r} is at offset {offset} of {partition}")
