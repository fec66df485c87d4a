"""The rules about the requests of members, by name:

- ``commit``: without auto commit, a consumer commits only while a commit of its user runs; the
  request may arrive when the coordinator does not hold an earlier one back any longer. A commit
  names no partition that another member owns and the member gave up before its generation.
- ``rebalance``: without faults, no member repeats a JoinGroup or SyncGroup that is not answered.
- ``close``: without faults, a consumer that leaves looks for no more topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from partage.broker.net.inbound_request import InboundRequest
from partage.lab.brokers.observed_response import ObservedResponse, observe_response
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules
from partage.testing.shell_worlds.scenario import NEW_TOPIC, ReaderPlan
from partage.wire.apis.join_group import JOIN_GROUP
from partage.wire.apis.metadata import METADATA
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.sync_group import SYNC_GROUP

#: Longer than the way of a request to a broker.
_ARRIVAL_S: Final = 0.05
_PARKED: Final = frozenset({JOIN_GROUP.key, SYNC_GROUP.key})


class MemberRules:
    """Checks the requests of the readers of a world.

    Args:
        plans: The readers, by name.
        partitions: The number of partitions of each topic at first.
        rules: What the readers own, and what they do.
        now_s: Returns the virtual time in seconds.
        report: Called with the name of a broken rule and a description.

    Attributes:
        leaders: The processes that led their groups when they last joined.
    """

    def __init__(
        self,
        plans: Mapping[str, ReaderPlan],
        partitions: Mapping[str, int],
        rules: DeliveryRules,
        now_s: Callable[[], float],
        report: Callable[[str, str], None],
    ) -> None:
        self._plans = plans
        self._partitions = partitions
        self._rules = rules
        self._now_s = now_s
        self._report = report
        #: The begin of each generation of a process, by its member id and its number.
        self._generations: dict[tuple[str, str, int], float] = {}
        self._unanswered: dict[str, InboundRequest] = {}
        self.leaders: set[str] = set()

    def on_process_end(self, process: str) -> None:
        """Note that a process was killed or has ended."""
        self._unanswered.pop(process, None)

    def on_broker_end(self) -> None:
        """Note that a broker has ended: its requests get no response."""
        self._unanswered.clear()

    def on_request(
        self, process: str, inbound: InboundRequest, topic_name: Callable[[bytes], str]
    ) -> None:
        """Check a request of a reader."""
        key = inbound.api.key
        if key == OFFSET_COMMIT.key:
            self._check_commit(process, inbound, topic_name)
        elif key in _PARKED:
            self._check_parked(process, inbound)
        elif key == METADATA.key:
            if inbound.message.topics is None:
                self._check_search(process)
            self._watch_metadata(process, inbound, topic_name)

    def _check_commit(
        self, process: str, inbound: InboundRequest, topic_name: Callable[[bytes], str]
    ) -> None:
        plan, request, rules = self._plans[process], inbound.message, self._rules
        ended_s = rules.commit_ended_s(process)
        hold = rules.commit_hold(process)
        if ended_s is not None and hold is not None and ended_s >= hold.since_s:
            ended_s = max(ended_s, hold.until_s)  # the request may have waited behind the held one
        is_late = ended_s is not None and self._now_s() > ended_s + _ARRIVAL_S
        if plan.commits != "auto" and is_late and rules.is_healthy:
            self._report("commit", f"{process} commits without a request of its user")
        generation = request.generation_id_or_member_epoch
        began_s = self._generations.get((process, request.member_id, generation))
        if began_s is None:
            return
        for topic in request.topics:
            for each in topic.partitions:
                name = topic.name or topic_name(topic.topic_id)
                partition = TopicPartition(name, each.partition_index)
                given_up_s = rules.given_up_s(process, partition)
                if given_up_s is None or given_up_s >= began_s:
                    continue
                if owner := rules.owner(plan.group, partition):
                    self._report(
                        "commit", f"{process} commits {partition}, which {owner} owns by now"
                    )

    def _check_parked(self, process: str, inbound: InboundRequest) -> None:
        before = self._unanswered.get(process)
        if before is not None and self._rules.is_healthy:
            text = f"{process} sends {inbound.api.name}, but waits for {before.api.name}"
            self._report("rebalance", text)
        self._unanswered[process] = inbound

        def answered(response: ObservedResponse) -> None:
            if self._unanswered.get(process) is inbound:
                del self._unanswered[process]
            message = response.message
            if inbound.api.key == JOIN_GROUP.key and not message.error_code:
                key = process, message.member_id, message.generation_id
                self._generations[key] = self._now_s()
                if message.leader == message.member_id:
                    self.leaders.add(process)
                else:
                    self.leaders.discard(process)

        observe_response(inbound, answered)

    def _watch_metadata(
        self, process: str, inbound: InboundRequest, topic_name: Callable[[bytes], str]
    ) -> None:
        """Tell the rules if a member joins because of new partitions that its group has not got."""

        def answered(response: ObservedResponse) -> None:
            partitions = (
                TopicPartition(topic.name or topic_name(topic.topic_id), each.partition_index)
                for topic in response.message.topics
                for each in topic.partitions
            )
            if any(self._joins_for(process, partition) for partition in partitions):
                self._rules.on_rejoin_due(process)

        observe_response(inbound, answered)

    def _joins_for(self, process: str, partition: TopicPartition) -> bool:
        """Return True if a member joins when it learns of a partition.

        Without the consumer protocol, members join for topics that their patterns match, and the
        leader for new partitions.
        """
        plan, count = self._plans[process], self._partitions.get(partition.topic)
        is_new = count is not None and partition.partition >= count
        joins = is_new and process in self.leaders
        if partition.topic == NEW_TOPIC:
            joins = plan.has_pattern
        is_classic = "session_timeout_ms" in plan.options
        return is_classic and joins and self._rules.owner(plan.group, partition) is None

    def _check_search(self, process: str) -> None:
        """Check that a consumer that leaves looks for no topics.

        The request may have waited behind a fetch on its connection.
        """
        since_s = self._rules.leaving_since_s(process)
        if since_s is None or not self._rules.is_healthy:
            return
        wait_s = self._plans[process].options["fetch_max_wait_ms"] / 1000
        if self._now_s() > since_s + wait_s + _ARRIVAL_S:
            self._report("close", f"{process} looks for topics after it began to leave")
