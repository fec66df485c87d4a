"""Rule ``records``: an acknowledged record stays at its offset, exactly once.

Producers number their records in each partition and send the number as sequence. So each value is
at one offset, each offset has one value, and a producer's records are in order, whatever messages
are lost. At the end all records are read once more.
"""

from __future__ import annotations

from collections import defaultdict

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    PartitionReread,
    RecordProduced,
    RecordsDelivered,
    RuleViolationError,
)
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition


class RecordsChecker:
    """Checks the offset of each acknowledged, delivered and reread record."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._values: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._offsets: dict[TopicPartition, dict[bytes, int]] = defaultdict(dict)
        history.subscribe(RecordProduced, self._produced)
        history.subscribe(RecordsDelivered, self._delivered)
        history.subscribe(PartitionReread, self._reread)

    def _produced(self, entry: RecordProduced) -> None:
        self._judge(entry.partition, entry.offset, entry.value)

    def _delivered(self, entry: RecordsDelivered) -> None:
        for offset, value in entry.records:
            self._judge(entry.partition, offset, value)

    def _reread(self, entry: PartitionReread) -> None:
        expected = entry.first
        for offset, value in entry.records:
            if offset != expected:
                raise RuleViolationError(
                    "records", f"offset {offset} follows {expected - 1} in {entry.partition}"
                )
            self._judge(entry.partition, offset, value)
            expected += 1
        known = max(self._values[entry.partition], default=-1)
        if expected != entry.end or known >= entry.end:
            end = f"{expected}, but reports {entry.end}, and {known} is known"
            raise RuleViolationError("records", f"{entry.partition} ends at {end}")

    def _judge(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        other = self._values[partition].setdefault(offset, value)
        if other != value:
            problem = f"{value!r} is at offset {offset} of {partition}, which had {other!r}"
            raise RuleViolationError("records", problem)
        offsets = self._offsets[partition]
        if offsets.get(value) == offset:
            return
        if value in offsets:
            problem = f"{value!r} is at offset {offset} of {partition} and at {offsets[value]}"
            raise RuleViolationError("records", problem)
        offsets[value] = offset
        producer, _, number = value.rpartition(b":")
        separator = b":" if producer else b""
        for near, is_before in ((int(number) - 1, True), (int(number) + 1, False)):
            at = offsets.get(b"%b%b%d" % (producer, separator, near))
            if at is not None and (at < offset) is not is_before:
                problem = f"{value!r} is at offset {offset} of {partition}, but {near} is at {at}"
                raise RuleViolationError("records", problem)
