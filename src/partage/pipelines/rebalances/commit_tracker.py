"""Commits of a group: the lag after them, and the rejected ones."""

from __future__ import annotations

from partage.model.topic_partition import TopicPartition
from partage.pipelines.rebalances.rows import LagRow, RefusedRow
from partage.store.group_events import GroupEventRecord


class CommitTracker:
    """Collects lag and rejected commits from the events of one group."""

    def __init__(self, group_id: str) -> None:
        self.lags: list[LagRow] = []
        self.refusals: list[RefusedRow] = []
        self._group_id = group_id
        self._last: dict[TopicPartition, int] = {}

    def record_lag(self, event: GroupEventRecord) -> None:
        """Add a row for each partition whose lag has changed."""
        for topic, partitions in (event.lag or {}).items():
            for partition, lag in partitions.items():
                key = TopicPartition(topic, partition)
                if self._last.get(key) == lag:
                    continue
                self._last[key] = lag
                self.lags.append(
                    LagRow(
                        group_id=self._group_id,
                        seen_at=event.at_ms,
                        topic=topic,
                        partition=partition,
                        lag=lag,
                    )
                )

    def record_refusal(self, event: GroupEventRecord) -> None:
        """Add a row for rejected commits."""
        self.refusals.append(
            RefusedRow(
                group_id=self._group_id,
                refused_at=event.at_ms,
                generation=event.generation,
                member_id=event.member_id or "",
                error=event.reason,
                topics=",".join(event.topics or []),
                commits=event.count,
            )
        )
