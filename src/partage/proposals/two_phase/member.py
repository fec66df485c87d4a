"""The product's member with the classic protocol as a member of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from partage.assignors.base import Assignor
from partage.assignors.group_view import Topic
from partage.bridge.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocol
from partage.member import events, outcome
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.proposals import machine
from partage.proposals.product.member import Outcome, ProductMember
from partage.proposals.topic_pattern import TopicPattern


class TwoPhaseMember(ProductMember):
    """A consumer of the accepted design. Its assignors decide whether it is cooperative.

    Args:
        settings: The settings of the member.
        topics: The topics to subscribe to.
        assignors: The assignors, the preferred one first.
        commit_interval_ms: How often the member commits its positions.
        pattern: A pattern of topics that this member matches, instead of ``topics``.
    """

    #: The state machine of the member and its partitions.
    core_class: ClassVar[type[Ownership]] = Ownership

    def __init__(
        self,
        settings: MemberSettings,
        topics: frozenset[str],
        assignors: Sequence[Assignor],
        commit_interval_ms: int,
        pattern: TopicPattern | None = None,
    ) -> None:
        self._protocol = ConsumerProtocol(assignors)
        core = self.core_class(settings, self._protocol.rebalance_protocol)
        super().__init__(core, settings, topics, commit_interval_ms, pattern)
        self._core: Ownership = core
        self._compute: outcome.ComputeAssignment | None = None
        self._leader_topics: dict[str, int] = {}  # as of the last assignment by this member

    @property
    def _is_core_stable(self) -> bool:
        return self._core.membership.state is MemberState.STABLE and self._core.step is None

    def _perform(self, result: Outcome, action: outcome.Action) -> None:
        at_ms = result.at_ms
        match action:
            case outcome.SendLeave(is_parked=True):
                self._leave_later = action
                self._is_found = False
                self._clear_waiting(result)
                result.act(machine.Disconnect())
                result.act(machine.Connect())
            case (
                outcome.SendJoin()
                | outcome.SendSync()
                | outcome.SendHeartbeat()
                | outcome.SendLeave()
            ):
                self._send(result, action)
            case outcome.EncodeSubscription(serial=serial, owned=owned, generation=generation):
                protocols = self._protocol.build_protocols(self._topics, owned, generation)
                self._run(
                    result, events.JoinPrepared(at_ms=at_ms, serial=serial, protocols=protocols)
                )
            case outcome.ComputeAssignment():
                self._compute = action
                result.act(machine.FetchMetadata())
            case outcome.DecodeAssignment(serial=serial):
                partitions = self._protocol.apply_assignment(
                    action.protocol, action.assignment, action.generation
                )
                self._run(
                    result,
                    events.AssignmentDecoded(
                        at_ms=at_ms, serial=serial, partitions=tuple(partitions)
                    ),
                )
            case _:
                super()._perform(result, action)

    def _on_metadata_refreshed(self, result: Outcome, counts: dict[str, int]) -> None:
        """Rejoin if this member is the leader and assigned with other partition counts."""
        if self._leader_topics and counts != self._leader_topics:
            self._run(result, events.MetadataChanged(at_ms=result.at_ms, reason="topics changed"))

    def _on_metadata(self, result: Outcome, counts: dict[str, int]) -> None:
        action, self._compute = self._compute, None
        if action is None:
            return
        self._leader_topics = counts
        assignments = self._assign(action, counts)
        self._run(
            result,
            events.AssignmentComputed(
                at_ms=result.at_ms, serial=action.serial, assignments=assignments
            ),
        )

    def _assign(
        self, action: outcome.ComputeAssignment, counts: Mapping[str, int]
    ) -> dict[str, bytes]:
        """Return the encoded assignment of each member, with the leader's partition counts."""
        topics = {name: Topic(name=name, partition_count=count) for name, count in counts.items()}
        members = self._protocol.decode_members(action.protocol, action.members)
        return self._protocol.assign(members, topics)


def member_settings(
    group_id: str, session_timeout_ms: int, heartbeat_interval_ms: int
) -> MemberSettings:
    """Return settings with the defaults of Kafka's consumer for everything else."""
    return MemberSettings(
        group_id=group_id,
        protocol_type=PROTOCOL_TYPE,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
    )
