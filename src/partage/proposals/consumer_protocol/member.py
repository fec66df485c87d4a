"""The product's member with the consumer group protocol as a member of the simulator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from partage.member import outcome
from partage.member.consumer_group.events import TopicIdsResolved
from partage.member.consumer_group.outcome import ResolveTopicIds, SendConsumerHeartbeat
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.consumer_group.state_machine import ConsumerGroupMember
from partage.member.consumer_group.states import ConsumerMemberState
from partage.member.events import SubscriptionChanged
from partage.proposals import machine
from partage.proposals.product.member import Outcome, ProductMember
from partage.proposals.product.topic_ids import topic_id


class ConsumerProtocolMember(ProductMember):
    """A consumer with the consumer group protocol.

    Args:
        settings: The settings of the member.
        name: The name of its process, with which its member ids begin.
        topics: The topics to subscribe to.
        commit_interval_ms: How often the member commits its positions.
        regex: A regular expression of topics that the coordinator matches; empty without one.
    """

    def __init__(
        self,
        settings: ConsumerMemberSettings,
        name: str,
        topics: frozenset[str],
        commit_interval_ms: int,
        regex: str = "",
    ) -> None:
        numbers = itertools.count(1)
        core = ConsumerGroupMember(settings, lambda: f"{name}-{next(numbers):022}"[:36])
        super().__init__(core, settings, topics, commit_interval_ms)
        self._core: ConsumerGroupMember = core
        self._regex = regex or None
        self._resolving: ResolveTopicIds | None = None

    @property
    def _is_core_stable(self) -> bool:
        core = self._core
        return core.state is ConsumerMemberState.STABLE and core.open_callback is None

    def _subscription(self, at_ms: int) -> SubscriptionChanged:
        return SubscriptionChanged(at_ms=at_ms, topics=self._topics, regex=self._regex)

    def _perform(self, result: Outcome, action: outcome.Action) -> None:
        match action:
            case SendConsumerHeartbeat():
                self._send(result, action)
            case ResolveTopicIds():
                self._resolving = action
                result.act(machine.FetchMetadata())
            case _:
                super()._perform(result, action)

    def _on_metadata_refreshed(self, result: Outcome, counts: Mapping[str, int]) -> None:
        """Do nothing: the coordinator watches the topics."""

    def _on_metadata(self, result: Outcome, counts: Mapping[str, int]) -> None:
        action, self._resolving = self._resolving, None
        if action is not None:
            names = {topic_id(name): name for name in counts}
            self._run(
                result, TopicIdsResolved(at_ms=result.at_ms, serial=action.serial, names=names)
            )
