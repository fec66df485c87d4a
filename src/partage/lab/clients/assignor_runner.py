"""Runs subscription, assignment and decoding for a consumer process of a world."""

from __future__ import annotations

from typing import Final

from partage.assignors import Topic
from partage.bridge.consumer_protocol import ConsumerProtocol, LeaderAssignmentError
from partage.lab.clients.member_process import MemberProcess
from partage.member import events, outcome
from partage.wire.primitives import MalformedError

_FAILURE_DELAY_MS: Final = 10
_ASSIGN_MAX_MS: Final = 50


class AssignorRunner:
    """The consumer protocol of one process, on the virtual clock."""

    def __init__(self, process: MemberProcess, protocol: ConsumerProtocol) -> None:
        self.protocol = protocol
        self.is_hung = False  # the assignor does not return
        self.failures_left = 0  # number of further assignments that fail
        self._process = process
        # partition counts of its last assignment as leader
        self._assigned_counts: dict[str, int] = {}
        self._hung_action: outcome.ComputeAssignment | None = None

    @property
    def is_outdated(self) -> bool:
        """True if partition counts changed since this process last assigned as leader."""
        return self._assigned_counts != self._process.partition_counts

    def describe(self, action: outcome.EncodeSubscription) -> None:
        """Encode the subscription and the owned partitions."""

        def describe() -> None:
            self._process.handle(
                events.JoinPrepared(
                    at_ms=self._process.world.now_ms,
                    serial=action.serial,
                    protocols=self.protocol.build_protocols(
                        self._process.topics, action.owned, action.generation
                    ),
                )
            )

        self._process.call_later(0, describe)

    def assign(self, action: outcome.ComputeAssignment) -> None:
        """Assign as the leader, after a short delay or once a hung assignor returns."""
        if self.is_hung:
            self._hung_action = action
            return
        if self.failures_left:
            self.failures_left -= 1
            self._process.call_later(
                _FAILURE_DELAY_MS, lambda: self._assign_failed(action, "the assignor raised")
            )
            return
        counts = dict(self._process.partition_counts)
        self._assigned_counts = counts
        topics = {name: Topic(name=name, partition_count=count) for name, count in counts.items()}

        def assign() -> None:
            try:
                members = self.protocol.decode_members(action.protocol, action.members)
                assignments = self.protocol.assign(members, topics)
            except MalformedError as error:
                self._assign_failed(action, str(error))
            else:
                self._process.handle(
                    events.AssignmentComputed(
                        at_ms=self._process.world.now_ms,
                        serial=action.serial,
                        assignments=assignments,
                    )
                )

        self._process.call_later(self._process.rng.randrange(_ASSIGN_MAX_MS), assign)

    def resume(self) -> None:
        """Resume a hung assignor, if there is one. Its result is usually too late."""
        action, self._hung_action = self._hung_action, None
        if action is not None:
            self.assign(action)

    def _assign_failed(self, action: outcome.ComputeAssignment, reason: str) -> None:
        self._process.handle(
            events.AssignorFailed(
                at_ms=self._process.world.now_ms,
                serial=action.serial,
                reason=reason,
                assignments=self.protocol.encode_failure(action.members, reason),
            )
        )

    def decode(self, action: outcome.DecodeAssignment) -> None:
        """Decode the assignment."""

        def decode() -> None:
            at_ms, serial = self._process.world.now_ms, action.serial
            try:
                assigned = self.protocol.apply_assignment(
                    action.protocol, action.assignment, action.generation
                )
            except (LeaderAssignmentError, MalformedError) as error:
                self._process.handle(
                    events.AssignmentDecodeFailed(at_ms=at_ms, serial=serial, reason=str(error))
                )
                return
            is_subscribed = all(topic in self._process.topics for topic, _ in assigned)
            self._process.handle(
                events.AssignmentDecoded(
                    at_ms=at_ms,
                    serial=serial,
                    partitions=tuple(assigned),
                    is_subscribed=is_subscribed,
                )
            )

        self._process.call_later(0, decode)
