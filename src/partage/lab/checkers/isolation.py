"""Rules ``G1a``, ``G1b``, ``poll-skip`` and others: what a Fetch shows.

G1a (aborted read) and G1b (intermediate read) are the names of Adya and Elle. ``poll-skip`` and
``inconsistent-offsets`` are those of Jepsen's workload for Kafka.

- ``G1a``: A read_committed Fetch shows no record of an aborted transaction.
- ``G1b``: It shows no record of a transaction that is still open.
- ``poll-skip``: It skips no committed record. A read_uncommitted Fetch skips none at all.
- ``inconsistent-offsets``: It shows no record that the log does not have at this offset.
- ``last-stable-offset``: The last stable offset is not above the start of an open transaction, is
  never above the high watermark, and never moves back.

The responses are decoded as clients do. The fate of each record is taken from the log at the time
of the response, and again at the end: a decision that was shown must be durable.
"""

from __future__ import annotations

from typing import Any

from partage.lab.checkers.ledger import Ledger
from partage.lab.checkers.output_ledger import OutputLog
from partage.lab.clients.isolated_reader import visible_records
from partage.lab.history import History, OutputReread, ResponseSent, RuleViolationError
from partage.lab.names import OUTPUT_TOPIC
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import FetchRequest, FetchResponse


class IsolationChecker:
    """Checks each Fetch of the topic of transactional producers."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._logs = ledger.outputs.logs
        self._stable: dict[TopicPartition, int] = {}
        self._shown: dict[TopicPartition, dict[int, bytes]] = {}
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(OutputReread, self._on_reread)

    def _on_response(self, entry: ResponseSent) -> None:
        asked, message = entry.request.message, entry.message
        if not isinstance(asked, FetchRequest) or not isinstance(message, FetchResponse):
            return
        for topic in message.responses:
            if topic.topic != OUTPUT_TOPIC:
                continue
            begins = {
                p.partition: p.fetch_offset
                for each in asked.topics
                if each.topic == OUTPUT_TOPIC
                for p in each.partitions
            }
            for result in topic.partitions:
                if not result.error_code:
                    place = TopicPartition(topic.topic, result.partition_index)
                    self._check_stable(place, result)
                    begin = begins[result.partition_index]
                    self._check_records(place, begin, result, asked.isolation_level == 1)

    def _check_stable(self, place: TopicPartition, result: Any) -> None:
        stable, before = result.last_stable_offset, self._stable.get(place, 0)
        unstable = self._logs[place].first_unstable_offset
        problem = None
        if stable > result.high_watermark:
            problem = f"above the high watermark {result.high_watermark}"
        elif stable < before:
            problem = f"but was {before}"
        elif unstable is not None and stable > unstable:
            problem = f"but a transaction is open since {unstable}"
        if problem is not None:
            raise RuleViolationError(
                "last-stable-offset", f"the one of {place} is {stable}, {problem}"
            )
        self._stable[place] = stable

    def _check_records(
        self, place: TopicPartition, begin: int, result: Any, is_committed: bool
    ) -> None:
        content = bytes(result.records[0]) if result.records else b""
        aborted = result.aborted_transactions or () if is_committed else ()
        records, end = visible_records(content, begin, aborted)
        shown = dict(records)
        log = self._logs[place]
        for offset, value, fate in _expected(log, begin, end):
            is_removable = log.is_compacted and fate is False
            if offset in shown and is_committed:
                _check_fate(place, offset, value, fate)
            if shown.pop(offset, None) == value:
                if is_committed:
                    self._shown.setdefault(place, {})[offset] = value
            elif fate or (not is_committed and not is_removable):
                raise RuleViolationError(
                    "poll-skip", f"{value!r} at {offset} of {place} is missing in a Fetch"
                )
        if shown:
            raise RuleViolationError(
                "inconsistent-offsets", f"{shown} in {place} are not at these offsets of the log"
            )

    def _on_reread(self, entry: OutputReread) -> None:
        fates = {
            offset: (value, fate)
            for offset, value, fate in _expected(self._logs[entry.partition], 0, 1 << 62)
        }
        for offset, value in self._shown.get(entry.partition, {}).items():
            stored, fate = fates.get(offset, (b"", False))
            _check_fate(entry.partition, offset, value, fate if stored == value else False)


def _expected(log: OutputLog, begin: int, end: int) -> list[tuple[int, bytes, bool | None]]:
    """Return the records in a range of offsets, and whether they are committed."""
    return [
        (offset, value, batch.is_committed)
        for batch in log.between(begin, end)
        for offset, value in batch.records(begin)
    ]


def _check_fate(place: TopicPartition, offset: int, value: bytes, fate: bool | None) -> None:
    if not fate:
        rule, what = ("G1b", "open") if fate is None else ("G1a", "aborted")
        raise RuleViolationError(
            rule, f"a Fetch shows {value!r} at {offset} of {place}; its transaction is {what}"
        )
