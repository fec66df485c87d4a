"""The rule of an earlier version of the document for members with different topic metadata.

"The basic idea is to have the assignment algorithm use the largest number of partitions for each
topic reported by any of the consumers." Each member reports its partition counts in the user data
of its subscription, and joins again when its metadata refresh finds other ones. Kafka uses the
counts of the leader instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from partage.assignors import RoundRobin
from partage.assignors.base import Assignor
from partage.member import events, outcome
from partage.member.settings import MemberSettings
from partage.proposals.product.member import Outcome
from partage.proposals.topic_pattern import TopicPattern
from partage.proposals.two_phase.member import TwoPhaseMember

_DECODER = msgspec.msgpack.Decoder(dict[str, int])


class CountReportingAssignor(RoundRobin):
    """Round-robin, with the member's partition counts before the other user data.

    Args:
        metadata: Further user data.
    """

    def __init__(self, metadata: bytes = b"") -> None:
        self._counts: dict[str, int] = {}  # changed in place: `at_version` copies the assignor
        self._metadata = metadata

    def replace_counts(self, counts: Mapping[str, int]) -> bool:
        """Report these counts from now on; return True if they differ from the last ones."""
        changed = counts != self._counts
        self._counts.clear()
        self._counts.update(counts)
        return changed

    def user_data(self, topics: Iterable[str], owned: object, generation: int) -> bytes | None:
        encoded = msgspec.msgpack.encode(self._counts)
        return len(encoded).to_bytes(4) + encoded + self._metadata


def reported_counts(user_data: bytes) -> dict[str, int]:
    """Return the partition counts in a member's user data."""
    size = int.from_bytes(user_data[:4])
    return _DECODER.decode(user_data[4 : 4 + size])


def largest_counts(reports: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the largest partition count of each topic."""
    largest: dict[str, int] = {}
    for report in reports:
        for topic, count in report.items():
            largest[topic] = max(count, largest.get(topic, 0))
    return largest


class ReportingMember(TwoPhaseMember):
    """Reports its partition counts, and uses the largest ones as the leader."""

    must_know_topics = True

    def __init__(
        self,
        settings: MemberSettings,
        topics: frozenset[str],
        assignors: Sequence[Assignor],
        commit_interval_ms: int,
        pattern: TopicPattern | None = None,
    ) -> None:
        super().__init__(settings, topics, assignors, commit_interval_ms, pattern)
        reporting = assignors[0]
        assert isinstance(reporting, CountReportingAssignor)
        self._reporting = reporting

    def _match_topics(self, counts: Mapping[str, int]) -> bool:
        """Match the pattern, and report the counts in the join that follows."""
        has_changed = super()._match_topics(counts)
        if has_changed or self._is_starting:
            self._replace_counts(counts)
        return has_changed

    def _on_metadata_refreshed(self, result: Outcome, counts: dict[str, int]) -> None:
        """Report other counts in a new join."""
        if self._replace_counts(counts):
            self._run(
                result,
                events.MetadataChanged(
                    at_ms=result.at_ms, reason="topics changed", is_own_subscription=True
                ),
            )

    def _replace_counts(self, counts: Mapping[str, int]) -> bool:
        subscribed = {topic: counts[topic] for topic in self._topics if topic in counts}
        return self._reporting.replace_counts(subscribed)

    def _assign(
        self, action: outcome.ComputeAssignment, counts: Mapping[str, int]
    ) -> dict[str, bytes]:
        """Assign with the largest counts. ``counts`` are those of this leader's last fetch."""
        members = self._protocol.decode_members(action.protocol, action.members).members
        reports = [reported_counts(bytes(each.user_data or b"")) for each in members]
        return super()._assign(action, largest_counts([counts, *reports]))
