"""Histories from the events of a coordinator, compared with the state of the coordinator."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from coordinator.consumer_group.mixed_group import MixedGroup
from coordinator.consumer_group.test_mixed_interleavings import steps
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import STATIC_LEAVE_EPOCH
from partage.coordinator.consumer_group.progress import snapshot_event
from partage.coordinator.outcome import GroupEventType
from partage.pipelines.rebalances.event_decoder import parse_event
from partage.pipelines.rebalances.group_analysis import GroupAnalysis
from partage.store.group_events import encode_event, event_records


class ObservedGroup:
    """A group of clients with both protocols, and the analysis of its events."""

    def __init__(self, *, is_cooperative: bool) -> None:
        self.group = MixedGroup(is_cooperative=is_cooperative)
        self.analysis = GroupAnalysis("g")

    def step(self, index: int, verb: str) -> None:
        self.group.step(index, verb)
        if verb == "restart" and isinstance(self.state, ConsumerGroup) and self.state.members:
            harness = self.group.harness
            event = snapshot_event(
                harness.now_ms,
                self.state,
                harness.shard.catalogue,
                GroupEventType.LOADED,
                self.state.state_name,
            )
            harness.group_events.append(event)
        self.analyse()

    def analyse(self) -> None:
        events, self.group.harness.group_events = self.group.harness.group_events, []
        for event in events:
            for record in event_records(event):
                if record is not None:
                    self.analysis.apply(parse_event(encode_event(record)))

    @property
    def state(self) -> object:
        return self.group.harness.shard.groups.get("g")

    def check(self) -> None:
        """Compare the analysis with a consumer group."""
        state = self.state
        if not isinstance(state, ConsumerGroup):
            return
        present = [each for each in state.members.values() if each.epoch != STATIC_LEAVE_EPOCH]
        names = {image.topic_id: name for name, image in self.group.harness.topics.items()}
        held = {
            (names[topic_id], partition): member.subscription.instance_id or member.id
            for member in present
            for partitions in (member.assignment.assigned, member.assignment.pending_revocation)
            for topic_id, numbers in partitions.items()
            for partition in numbers
        }
        read = {
            (row.topic, row.partition): row.member
            for row in self.analysis.ownership
            if row.to_at is None
        }
        assert read == held
        assert self.analysis.group.members == len(state.members)
        is_settled = state.epoch == state.assignment_epoch and all(
            member.is_reconciled(state.epoch) for member in present
        )
        last = self.analysis.rebalances[-1]
        assert (last.outcome == "under way") == (not is_settled and bool(state.members))


@pytest.mark.parametrize("is_cooperative", [False, True])
@given(steps)
@settings(max_examples=25, deadline=None)
def test_analysis_of_any_interleaving_has_the_readers_of_the_coordinator(
    is_cooperative: bool, steps_: list[tuple[int, str]]
) -> None:
    observed = ObservedGroup(is_cooperative=is_cooperative)
    observed.group.start()
    observed.analyse()
    for index, verb in steps_:
        observed.step(index, verb)
        observed.check()
    assert observed.analysis.group.is_complete
