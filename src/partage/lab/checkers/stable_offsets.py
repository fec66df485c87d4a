"""Rule ``stable-offsets``: an OffsetFetch that requires stable offsets shows no pending partition.

While a transaction has a pending offset of a partition, the committed one may be about to change,
so that the response has UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    RecordsAppended,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.lab.offset_log import LogChange, PendingOffset
from partage.model.settings import GroupSettings
from partage.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_Key = tuple[str, str, int]


class StableOffsetsChecker:
    """Tracks the durable pending offsets of each partition."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        # producer -> its pending partitions, with a number for each of its transactions
        self._pending: dict[int, dict[_Key, int]] = {}
        self._count = 0
        self._seen: dict[int, set[tuple[_Key, int]]] = {}  # at the request, by serial
        ledger.on_durable(self._store)
        ledger.on_appended(self._write)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)

    def _store(self, record: LogChange) -> None:
        if not isinstance(record, PendingOffset):
            return
        offset = record.offset
        if offset is None:  # the append of the marker may also have the offset
            self._pending.pop(record.producer_id, None)
            return
        self._count += 1
        key = offset.group_id, offset.topic, offset.partition
        self._pending.setdefault(record.producer_id, {})[key] = self._count

    def _write(self, entry: RecordsAppended) -> None:
        for record in entry.records:
            if isinstance(record, PendingOffset) and record.offset is None:
                self._pending.pop(record.producer_id, None)

    def _now(self) -> set[tuple[_Key, int]]:
        return {
            (key, count)
            for of_producer in self._pending.values()
            for key, count in of_producer.items()
        }

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if isinstance(message, OffsetFetchRequest) and message.require_stable:
            self._seen[entry.serial] = self._now()

    def _on_response(self, entry: ResponseSent) -> None:
        seen, message = self._seen.pop(entry.request.serial, None), entry.message
        if not seen or not isinstance(message, OffsetFetchResponse):
            return
        pending = {key for key, _ in seen & self._now()}
        for group in message.groups:
            for topic in () if group.error_code else group.topics:
                for p in topic.partitions:
                    key = group.group_id, topic.name, p.partition_index
                    if not p.error_code and key in pending:
                        raise RuleViolationError(
                            "stable-offsets", f"{key} was shown while a transaction is open"
                        )
