"""Rule ``prompt-responses``: the response to a commit leaves as soon as its offsets are durable.

Brokers of a cluster are not judged: their responses also wait for a lease.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from partage.coordinator.records import OffsetRecord
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    BrokerDied,
    History,
    LogWriteFailed,
    RecordsDurable,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
    ShardLoaded,
    ZooKeeperAnswered,
)
from partage.lab.offset_log import LogChange
from partage.model.settings import GroupSettings
from partage.wire.apis.offset_commit import OffsetCommitRequest

#: Thousands of responses are sent in several turns of the loop.
_LATE_MS: Final = 100
_Commit = tuple[str, int]  # the group, and the time of the request for the broker


class PromptResponsesChecker:
    """Tracks the commits without a response whose offsets are durable."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._open: dict[_Commit, list[RequestReceived]] = defaultdict(list)
        self._stored: list[RequestReceived] = []  # by the confirmation under way
        # with the time since which the offsets are durable, by serial, oldest first
        self._waiting: dict[int, tuple[int, RequestReceived]] = {}
        self._is_cluster = False
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(RecordsDurable, self._on_confirmed)
        history.subscribe(ZooKeeperAnswered, self._on_cluster)
        for kind in (BrokerDied, LogWriteFailed, ShardLoaded):
            history.subscribe(kind, self._forget)
        ledger.on_durable(self._on_durable)

    def _on_request(self, entry: RequestReceived) -> None:
        self._check(entry.at_ms)
        message = entry.message
        if isinstance(message, OffsetCommitRequest) and not self._is_cluster:
            self._open[message.group_id, entry.broker_ms].append(entry)

    def _on_response(self, entry: ResponseSent) -> None:
        asked = entry.request
        if isinstance(asked.message, OffsetCommitRequest):
            self._waiting.pop(asked.serial, None)
            self._open.pop((asked.message.group_id, asked.broker_ms), None)
        self._check(entry.at_ms)

    def _on_durable(self, record: LogChange) -> None:
        if isinstance(record, OffsetRecord):
            asked = self._open.get((record.group_id, record.commit_ms), [])
            if len(asked) == 1:  # otherwise it is unknown which of them is durable
                self._stored += asked

    def _on_confirmed(self, entry: RecordsDurable) -> None:
        for asked in self._stored:
            self._waiting.setdefault(asked.serial, (entry.at_ms, asked))
        self._stored.clear()

    def _on_cluster(self, entry: ZooKeeperAnswered) -> None:
        self._is_cluster = True

    def _forget(self, entry: BrokerDied | LogWriteFailed | ShardLoaded) -> None:
        self._open.clear()
        self._stored.clear()
        self._waiting.clear()

    def _check(self, at_ms: int) -> None:
        oldest = next(iter(self._waiting.values()), None)
        if oldest is None:
            return
        durable_ms, asked = oldest
        if at_ms - durable_ms > _LATE_MS:
            raise RuleViolationError(
                "prompt-responses",
                f"{at_ms - durable_ms} ms after it was stored, {asked} has no response",
            )
