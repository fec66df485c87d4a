"""A connection that is lost after any message: the group recovers and commits."""

from __future__ import annotations

import pytest

from partage.proposals.designs.catalog import find_design
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import Disconnected
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.processes import DesignMemberProcess
from partage.proposals.simulation.world import DesignWorld, WorldOptions

NAMES = (
    "broker-side",
    "consumer-protocol",
    "multi-assignor",
    "single-assignor",
    "two-phase-cooperative",
    "two-phase-eager",
    "two-phase-resync",
)
#: After how many messages of the member the connection is lost. A silent loss takes long to notice.
MESSAGES = {False: range(1, 7), True: range(1, 4)}
#: Longer than both ends need to notice a silent loss: a member waits 300 s for JoinGroup.
NOTICED_MS = 330_000
#: An interval of pings and one of commits.
COMMIT_LAG_MAX_MS = 25_000


def new_world(name: str) -> DesignWorld:
    """Return a world with one member, which reads all partitions."""
    design = find_design(name)(CoordinatorSettings(), DesignMemberSettings(group_id="g"))
    world = DesignWorld(design, WorldOptions(topics={"t": 4}, failover_ms=10), seed=1)
    start_member(world, "m1")
    assert world.run_until_stable(60_000)
    return world


def start_member(world: DesignWorld, name: str) -> DesignMemberProcess:
    return world.start_member(MemberTemplate(name=name, topics=frozenset({"t"})))


def lose_connection(member: DesignMemberProcess, *, is_silent: bool) -> None:
    """Lose all messages on their way; unless it is silent, both ends notice."""
    link = member._link
    if link is None or not member._is_connected:
        return
    link.drop_silently()
    if not is_silent:
        link.to_coordinator(None)
        member._link = None
        member.handle(Disconnected(at_ms=0))


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_group_recovers_from_a_loss_after_any_message(name: str, is_silent: bool) -> None:
    for number in MESSAGES[is_silent]:
        for victim_name in ("m1", "m2"):
            world = new_world(name)
            start_member(world, "m2")
            victim = next(each for each in world.members if each.name == victim_name)
            victim.requests = 0
            while victim.requests < number:
                world.run(1)
            lose_connection(victim, is_silent=is_silent)
            place = f"{victim_name} after message {number}"
            if is_silent:
                world.run(NOTICED_MS)
            assert world.run_until_settled(180_000), place
            assert not world.readers.misread, place
            world.run(2 * COMMIT_LAG_MAX_MS)
            for partition in world.readers.partitions:
                lag_ms = world.readers.commit_lag_ms(partition, world.clock.now_ms)
                assert lag_ms <= COMMIT_LAG_MAX_MS, f"{place}: {partition} lags by {lag_ms} ms"
            if not is_silent:
                assert not world.broken_rules, place


@pytest.mark.parametrize("name", [each for each in NAMES if each.startswith("two-phase")])
def test_two_phase_member_reconnects_after_its_request_timeout(name: str) -> None:
    """It does not wait for the end of its session of 45 s."""
    world = new_world(name)
    (member,) = world.members
    lost = member._link
    lose_connection(member, is_silent=True)
    world.run(34_000)  # until the next request, and 30 s for its response
    assert member._link is not lost
    assert world.is_stable
