"""Rule ``reads``: the end of a partition never moves back, and no client commits beyond it.

The end is known from Fetch responses and acknowledged records. It must survive crashes, because
consumers may have used the records up to there.
"""

from __future__ import annotations

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    RecordProduced,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.fetch import FetchRequest, FetchResponse
from partage.wire.apis.offset_commit import OffsetCommitRequest


class ReadsChecker:
    """Tracks the known end of each partition."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ends: dict[TopicPartition, int] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(RecordProduced, self._produced)

    def _produced(self, entry: RecordProduced) -> None:
        end = self._ends.get(entry.partition, 0)
        self._ends[entry.partition] = max(end, entry.offset + 1)

    def _on_response(self, entry: ResponseSent) -> None:
        asked, message = entry.request.message, entry.message
        if not isinstance(asked, FetchRequest) or not isinstance(message, FetchResponse):
            return
        wanted = {
            TopicPartition(topic.topic, p.partition): p.fetch_offset
            for topic in asked.topics
            for p in topic.partitions
        }
        for topic in message.responses:
            for p in topic.partitions:
                partition = TopicPartition(topic.topic, p.partition_index)
                end = self._ends.get(partition, 0)
                if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and wanted[partition] <= end:
                    raise RuleViolationError(
                        "reads",
                        f"{partition} ended at {end}, but an earlier offset is out of range",
                    )
                if p.error_code:
                    continue
                if p.high_watermark < end:
                    raise RuleViolationError(
                        "reads", f"{partition} ended at {end}, but now ends at {p.high_watermark}"
                    )
                self._ends[partition] = p.high_watermark

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        if isinstance(message, OffsetCommitRequest):
            for topic in message.topics:
                for p in topic.partitions:
                    end = self._ends.get(
                        TopicPartition(topic.name, p.partition_index), p.committed_offset
                    )
                    if p.committed_offset > end:
                        raise RuleViolationError(
                            "reads",
                            f"{entry.client} commits {topic.name}-{p.partition_index} up to "
                            f"{p.committed_offset}, but it ends at {end}",
                        )
