"""The accepted design and its variants: a late response, resync, the largest partition count."""

from __future__ import annotations

import pytest

from partage.proposals.designs.catalog import find_design
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId, Disconnected, MessageReceived
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.processes import DesignMemberProcess
from partage.proposals.simulation.world import DesignWorld, WorldOptions
from partage.proposals.two_phase.reported_counts import (
    CountReportingAssignor,
    largest_counts,
    reported_counts,
)
from partage.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest


def new_world(
    design: str, *, stale_ms: int = 0, members: int = 4, partitions: int = 8
) -> DesignWorld:
    """Return a world with a stable group."""
    world = DesignWorld(
        find_design(design)(CoordinatorSettings(), DesignMemberSettings(group_id="g")),
        WorldOptions(topics={"t": partitions}, stale_metadata_ms=stale_ms),
        seed=1,
    )
    for number in range(members):
        world.start_member(MemberTemplate(name=f"m{number}", topics=frozenset({"t"})))
    world.run(60_000)
    assert world.is_stable
    world.traffic.take()
    return world


def leader(world: DesignWorld) -> DesignMemberProcess:
    return next(each for each in world.members if each.machine._core.membership.is_leader)  # type: ignore[attr-defined]


def test_late_response_to_sync_group_starts_a_second_reader() -> None:
    """The finding of the accepted design: no request follows that checks the session."""
    world = new_world("two-phase-eager", members=1)
    late = world.start_member(MemberTemplate(name="late", topics=frozenset({"t"})))
    while not world.traffic.messages["SyncGroupRequest"]:
        world.run(1)
    world.network.cut(late.name, 100_000)  # its session ends after 45 s
    world.run(99_000)
    assert not world.broken_rules
    world.run(10_000)
    assert {each.rule for each in world.broken_rules} == {"one reader"}
    assert world.readers.double_read_ms < 10_000


class TestResync:
    def test_new_partitions_are_assigned_without_a_join(self) -> None:
        world = new_world("two-phase-resync")
        world.add_partitions("t", 3)
        assert world.run_until_stable(60_000)
        messages = world.traffic.take().messages
        assert messages["JoinGroupRequest"] == 0
        assert messages["SyncGroupRequest"] == 4  # of the leader, then of each other member

    def test_new_coordinator_gives_all_members_the_resynced_assignment(self) -> None:
        world = new_world("two-phase-resync")
        world.add_partitions("t", 3)
        while not world.traffic.messages["SyncGroupRequest"]:
            world.run(1)
        world.run(20)  # the leader's request is stored; no other member knows of it
        world.crash_coordinator()
        assert world.run_until_stable(60_000)
        assert world.traffic.messages["JoinGroupRequest"] == 0

    def test_leader_repeats_a_resync_whose_response_was_lost(self) -> None:
        world = new_world("two-phase-resync")
        process = leader(world)
        world.add_partitions("t", 3)
        while not world.traffic.messages["SyncGroupRequest"]:
            world.run(1)
        world.crash_coordinator()  # before the records are durable
        assert world.run_until_stable(90_000)
        assert sum(len(each.machine.owned) for each in world.members) == 11
        assert process.machine.is_stable

    def test_member_whose_response_was_lost_fetches_its_assignment_again(self) -> None:
        world = new_world("two-phase-resync", members=2, partitions=2)
        world.add_partitions("t", 2)
        while world.traffic.messages["SyncGroupRequest"] < 2:
            world.run(1)
        follower = next(each for each in world.members if each is not leader(world))
        follower._link.drop_silently()  # type: ignore[union-attr]
        follower._link = None
        follower.handle(Disconnected(at_ms=0))
        world.run(20_000)
        assert world.is_stable
        assert world.traffic.messages["JoinGroupRequest"] == 0
        assert world.traffic.messages["SyncGroupRequest"] == 3

    def test_member_that_joins_ends_a_resync_with_a_rebalance(self) -> None:
        world = new_world("two-phase-resync")
        world.add_partitions("t", 3)
        world.start_member(MemberTemplate(name="new", topics=frozenset({"t"})))
        assert world.run_until_stable(60_000)
        assert world.traffic.messages["JoinGroupRequest"] >= 5

    @pytest.mark.parametrize("change", ["", "follower", "generation", "group", "protocol"])
    def test_only_the_leader_of_the_generation_can_assign_again(self, change: str) -> None:
        world = new_world("two-phase-resync")
        coordinator = world.coordinator.machine  # type: ignore[union-attr]
        group = coordinator.shard.groups["g"]  # type: ignore[attr-defined]
        before = dict(group.assignments)
        other = next(each for each in group.members if each != group.leader)
        request = SyncGroupRequest(
            group_id="other" if change == "group" else "g",
            generation_id=group.generation - (change == "generation"),
            member_id=other if change == "follower" else group.leader,
            protocol_type="consumer",
            protocol_name="range" if change == "protocol" else group.protocol,
            assignments=[SyncGroupAssignment(member_id=group.leader, assignment=b"x")],
        )
        now_ms = world.clock.now_ms
        coordinator.handle(
            MessageReceived(at_ms=now_ms, connection=ConnectionId(999), message=request, draw=1)
        )
        assert (group.assignments != before) == (change == "")


class TestLargestCount:
    def test_assignor_reports_the_counts_before_its_metadata(self) -> None:
        assignor = CountReportingAssignor(b"rest")
        assert assignor.replace_counts({"t": 3})
        assert not assignor.replace_counts({"t": 3})
        data = assignor.at_version(0).user_data(["t"], {}, 1)
        assert data is not None
        assert reported_counts(data) == {"t": 3}
        assert data.endswith(b"rest")

    def test_largest_count_of_each_topic_is_used(self) -> None:
        assert largest_counts([{"t": 3, "u": 1}, {"t": 2}, {"u": 4}]) == {"t": 3, "u": 4}

    def test_any_member_that_knows_new_partitions_gets_them_assigned(self) -> None:
        """The leader's metadata stays stale; another member's refresh is enough."""
        read = {}
        for design in ("two-phase-eager", "two-phase-largest-count"):
            world = new_world(design, stale_ms=120_000)
            stale, process = dict(world.topics), leader(world)
            answer = world.metadata
            world.metadata = (  # type: ignore[method-assign]
                lambda rng, *, is_from_coordinator, stale=stale, process=process, answer=answer: (
                    stale
                    if rng is process._rng
                    else answer(rng, is_from_coordinator=is_from_coordinator)
                )
            )
            world.add_partitions("t", 3)
            world.run(60_000)
            read[design] = not world.readers.unread
        assert read == {"two-phase-eager": False, "two-phase-largest-count": True}
