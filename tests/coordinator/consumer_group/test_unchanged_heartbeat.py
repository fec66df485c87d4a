"""The short path of a heartbeat that changes nothing.

The harness handles each such heartbeat in all steps too, and compares the outcomes.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.coordinator.consumer_group.actions import ResolveRegexes
from partage.coordinator.consumer_group.events import GroupConfig
from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from partage.coordinator.consumer_group.reconciliation import to_partition_set
from partage.coordinator.consumer_group.replies import ConsumerGroupHeartbeatReply
from partage.coordinator.timers import SessionTimer
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings

from .harness import ConsumerHarness, joining, parts, topic

ASSIGNMENT_INTERVAL_MS = 2_000
MEMBERS = ("A", "B", " ")
EPOCHS = ("its", "its", "its", "its", "previous", "next", 0, LEAVE_EPOCH, STATIC_LEAVE_EPOCH)
#: One field each that a heartbeat may have besides the epoch.
FIELDS: tuple[dict[str, object], ...] = (
    {},
    joining("t"),
    joining("t", "u"),
    {"subscribed_topics": ("t",)},
    {"subscribed_topics": ()},
    {"subscribed_regex": "t.*"},
    {"subscribed_regex": ""},
    {"subscribed_regex": "(", "regex_error": "missing )"},
    {"server_assignor": "range"},
    {"server_assignor": "unknown"},
    {"rack_id": "r"},
    {"rack_id": " "},
    {"rebalance_timeout_ms": 60_000},
    {"rebalance_timeout_ms": 50_000},
    {"owned": {}},
    {"owned": parts(t=(0,))},
    {"client_id": "other"},
    {"client_host": "/other"},
)
INSTANCE_IDS = (None, "i", "j", " ")

heartbeats = st.tuples(
    st.just("heartbeat"),
    st.sampled_from(MEMBERS),
    st.sampled_from(EPOCHS),
    st.just({}) | st.sampled_from(FIELDS),
    st.sampled_from(INSTANCE_IDS),
)
joins = st.tuples(st.just("join"), st.sampled_from(MEMBERS), st.sampled_from(INSTANCE_IDS[:3]))
other_steps = st.sampled_from(
    [
        ("action",),
        ("actions",),
        ("topics",),
        ("config",),
        ("assignor", "range"),
        ("assignor", "uniform"),
        ("restart",),
        ("time", 1_000),
        ("time", 40_000),
    ]
)
settling = st.just(("settle",))
FIRST_STEPS = (("join", "A", None), ("join", "B", "i"), ("settle",))
histories = st.lists(
    heartbeats | heartbeats | heartbeats | settling | joins | other_steps, min_size=10, max_size=40
)


class History:
    """A group to which the events of a random history happen."""

    def __init__(self) -> None:
        settings_ = ConsumerGroupSettings(assignment_interval_ms=ASSIGNMENT_INTERVAL_MS)
        self.harness = ConsumerHarness(settings=settings_)
        self.harness.runs_actions = False
        self.harness.checks_replay = False  # the tests of membership check it
        self.size = 6

    def step(self, name: str, *arguments: object) -> None:
        harness = self.harness
        match name, *arguments:
            case "heartbeat", str(member_id), epoch, dict(fields), instance_id:
                fields = {**fields, "instance_id": instance_id}
                harness.send(member_id, self._epoch(member_id, epoch), **fields)
            case "join", str(member_id), instance_id:
                # a v0 client may have a blank member id
                fields = {**joining("t"), "instance_id": instance_id, "may_generate_id": True}
                harness.send(member_id, 0, **fields)
                harness.run_actions()
            case ("settle",):
                self.settle()
            case ("action",):
                if harness.actions:
                    harness.run_action()
            case ("actions",):
                harness.run_actions()
            case ("topics",):
                self.size += 1
                harness.change_topics(topic("t", self.size), topic("u", 1))
            case ("config",):
                harness.configure(
                    GroupConfig(session_timeout_ms=50_000, heartbeat_interval_ms=7_000)
                )
            case "assignor", str(name):
                harness.configure(GroupConfig(assignor=name))
            case ("restart",):
                harness.restart()
            case "time", int(ms):
                harness.advance(ms)

    def settle(self) -> None:
        """Let all members report their partitions until the group is stable."""
        harness = self.harness
        for _ in range(4):
            harness.advance(ASSIGNMENT_INTERVAL_MS)
            harness.run_actions()
            for member in self._members():
                reported = to_partition_set(member.assignment.assigned)
                instance_id = member.subscription.instance_id
                if member.epoch > 0:
                    harness.send(member.id, member.epoch, owned=reported, instance_id=instance_id)

    def _members(self) -> list[ConsumerMember]:
        group = self.harness.shard.groups.get("g")
        return list(group.members.values()) if isinstance(group, ConsumerGroup) else []

    def _epoch(self, member_id: str, epoch: object) -> int:
        if isinstance(epoch, int):
            return epoch
        current = next((each.epoch for each in self._members() if each.id == member_id), 1)
        return current + {"its": 0, "previous": -1, "next": 1}[str(epoch)]


@settings(max_examples=40, deadline=None)
@given(histories)
def test_unchanged_heartbeat_has_the_outcome_of_all_steps(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for name, *arguments in [*FIRST_STEPS, *steps]:
        history.step(str(name), *arguments)


@pytest.mark.parametrize("fields", FIELDS, ids=repr)
def test_heartbeat_with_a_field_has_the_outcome_of_all_steps(fields: dict[str, object]) -> None:
    for member_id, instance_id in product(MEMBERS[:2], INSTANCE_IDS):
        history = History()
        for name, *arguments in FIRST_STEPS:
            history.step(name, *arguments)
        assert history.harness.epochs == ("Stable", 3, 3)
        history.step("heartbeat", member_id, "its", fields, instance_id)


def test_heartbeats_of_a_stable_group_take_the_short_path() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("S", "t", instance_id="i")
    harness.beat("A")
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    harness.beat("S", instance_id="i")
    before, repetitions = harness.short_path_count, harness.repetition_count
    for _ in range(3):
        harness.advance(5_000)
        reply = harness.beat("A")
        harness.beat("S", instance_id="i")
    assert harness.short_path_count == before + 6
    assert harness.repetition_count == repetitions + 4
    assert reply == ConsumerGroupHeartbeatReply(
        member_id="A", member_epoch=3, heartbeat_interval_ms=5_000
    )
    assert harness.armed[SessionTimer("g", "A")] == harness.now_ms + 45_000


def test_heartbeat_of_a_group_with_changed_topics_takes_all_steps() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.change_topics(topic("t", 8))
    before = harness.short_path_count
    harness.beat("A")
    assert harness.short_path_count == before
    assert harness.epochs == ("Stable", 3, 3)


def test_heartbeat_of_a_group_with_a_changed_assignor_takes_all_steps() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.beat("A")
    harness.configure(GroupConfig(assignor="range"))
    before = harness.short_path_count
    harness.beat("A")
    assert harness.short_path_count == before
    assert harness.epochs == ("Stable", 3, 3)


def test_heartbeat_of_a_blank_member_id_takes_all_steps() -> None:
    harness = ConsumerHarness()
    joined = harness.join(" ", "t", may_generate_id=True)
    before = harness.short_path_count
    assert harness.ask(" ", joined.member_epoch).error is ErrorCode.INVALID_REQUEST
    assert harness.short_path_count == before


def test_heartbeat_before_the_topics_are_loaded_takes_all_steps() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.restart(has_topics=False)
    assert harness.beat("A").error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_heartbeat_resolves_old_regular_expressions_again() -> None:
    harness = ConsumerHarness()
    harness.join("A", subscribed_regex="t.*")
    harness.beat("A")
    harness.runs_actions = False
    harness.beat("A")
    assert not harness.actions
    for _ in range(20):
        harness.advance(30_000)
        harness.beat("A")
    (action,) = harness.actions
    assert isinstance(action, ResolveRegexes)
