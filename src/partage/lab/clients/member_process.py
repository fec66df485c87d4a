"""A consumer process with a member state machine of the classic protocol.

`ConsumerProcess` performs the actions of the member.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from partage.bridge.consumer_protocol import PROTOCOL_TYPE
from partage.lab import history
from partage.lab.clients.member_shell import MemberShell
from partage.lab.context import WorldContext
from partage.lab.coverage import consumer_coverage_key
from partage.lab.options import PARKED_LAPSE_MS, REQUEST_TIMEOUT_MS
from partage.member import events, invariants, outcome
from partage.member.ownership import Ownership
from partage.member.settings import MemberSettings
from partage.member.states import MemberState
from partage.model.rebalance_protocol import RebalanceProtocol
from partage.model.topic_partition import TopicPartition

_NOT_MEMBER_STATES: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.FATAL})


class MemberProcess(MemberShell):
    """A process with one member of a group with the classic protocol."""

    def __init__(
        self,
        world: WorldContext,
        name: str,
        group_id: str,
        topics: frozenset[str],
        rebalance_protocol: RebalanceProtocol,
        instance_id: str | None,
    ) -> None:
        options = world.options
        # a static member needs API versions that have instance ids
        below_max = options.versions_below_newest_max
        super().__init__(world, name, group_id, min(below_max, 1) if instance_id else below_max)
        self.topics = topics
        self.instance_id = instance_id
        self._generation = -1  # the last generation in which it was Stable
        self._owned: frozenset[TopicPartition] = frozenset()
        self._recorded: frozenset[TopicPartition] = frozenset()  # as recorded in the history
        self.core = Ownership(
            MemberSettings(
                group_id=group_id,
                protocol_type=PROTOCOL_TYPE,
                instance_id=instance_id,
                session_timeout_ms=options.session_timeout_ms,
                heartbeat_interval_ms=options.heartbeat_interval_ms,
                rebalance_timeout_ms=options.rebalance_timeout_ms,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                max_poll_interval_ms=options.max_poll_interval_ms,
                parked_request_grace_ms=PARKED_LAPSE_MS,
            ),
            rebalance_protocol,
        )

    # Events

    def handle(self, event: events.Event) -> None:
        """Let the member handle an event, and perform the resulting actions."""
        if not self.is_alive:
            return
        core = self.core
        self.world.consumer_coverage[consumer_coverage_key(core.membership.state, event)] += 1
        result = core.handle(event)
        for action in result.actions:
            self._perform_action(action)
        for key, deadline_ms in result.timers:
            self._arm(key, deadline_ms)
        if self.world.has_invariant_checks:
            invariants.check_ownership(core, self._timers.armed)
        if core.owned != self._owned:
            self._owned = core.owned
            self._on_owned_changed(core.owned)
        membership = core.membership
        owned = core.owned if membership.is_in_generation else frozenset()
        if membership.state is MemberState.STABLE and membership.generation != self._generation:
            self._generation, self._recorded = membership.generation, owned
            self._record_ownership()
        elif owned != self._recorded:
            self._recorded = owned
            self._record_ownership()

    @abstractmethod
    def _perform_action(self, action: outcome.Action) -> None:
        """Perform an action of the member."""

    @abstractmethod
    def _on_owned_changed(self, owned: frozenset[TopicPartition]) -> None:
        """Handle a change of the owned partitions."""

    def _record_ownership(self) -> None:
        """Append the partitions that the process owns, as far as it knows, to the history."""
        membership = self.core.membership
        self.world.append_history(
            history.OwnershipChanged(
                at_ms=self.world.now_ms,
                process=self.name,
                group_id=self.group_id,
                member_id=membership.member_id,
                generation=membership.generation,
                partitions=tuple(sorted(self._recorded)) if self.is_alive else (),
            )
        )

    # State

    @property
    def is_in_poll(self) -> bool:
        """True if the user waits in poll, as far as the member knows."""
        return self.core.membership.is_in_poll

    @property
    def partition_counts(self) -> dict[str, int]:
        """The partition counts of the topics that the process can read."""
        return self.world.partition_counts

    @property
    def is_member(self) -> bool:
        """True if the process is a member of its group or wants to be."""
        return self.is_alive and self.core.membership.state not in _NOT_MEMBER_STATES
