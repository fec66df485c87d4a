"""The broker as groups with the consumer protocol need it: topics, configs and assignors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from partage.broker.coordination.group_actions import GroupActions, ResultCallback
from partage.broker.coordination.topic_images import TopicImages
from partage.coordinator.consumer_group.actions import Action
from partage.coordinator.consumer_group.events import GroupConfig, GroupConfigsChanged


class ConsumerGroupServices:
    """The services that all shards share.

    Args:
        images: the topics.
        group_configs: returns the altered configs of all groups.
        assignment_interval_ms: returns the default of ``consumer.assignment.interval.ms``.
        actions: performs the actions of groups.
    """

    def __init__(
        self,
        images: TopicImages,
        group_configs: Callable[[], Mapping[str, GroupConfig]],
        assignment_interval_ms: Callable[[], int],
        actions: GroupActions,
    ) -> None:
        self.images = images
        self._group_configs = group_configs
        self._assignment_interval_ms = assignment_interval_ms
        self._actions = actions

    def configs_event(self, at_ms: int) -> GroupConfigsChanged:
        """Return the event that reports the configs of groups to a shard."""
        return GroupConfigsChanged(
            at_ms=at_ms,
            configs=self._group_configs(),
            assignment_interval_ms=self._assignment_interval_ms(),
        )

    def run(self, action: Action, done: ResultCallback) -> None:
        """Perform an action; ``done`` is called once on the loop, at once or later."""
        self._actions.run(action, done)

    def close(self) -> None:
        """Ignore the results of all work that has not ended."""
        self._actions.close()
