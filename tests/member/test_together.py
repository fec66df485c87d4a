"""Coordinator and members together, on a wire that is not to be trusted."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from partage.member import events
from partage.member.outcome import Call, Problem
from partage.member.states import MemberState
from partage.member.timers import Timer

from .node import Node
from .translating import GROUP
from .world import World

#: More of them: ``PARTAGE_SEED=1000 PARTAGE_WORLDS=500 pytest tests/member/test_together.py``.
FIRST = int(os.environ.get("PARTAGE_SEED", "0"))
WORLDS = int(os.environ.get("PARTAGE_WORLDS", "25"))
STEPS = 300
#: What happens, as often as it stands here.
DISTURBANCES = """
    add add crash restart sleep leave cut cut silence coordinator
    subscribe metadata rejoin nothing nothing
"""
TOPICS = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}))


def populate(world: World) -> None:
    for number in range(world.random.randint(1, 5)):
        add(world, number)


def add(world: World, number: int) -> None:
    draw = world.random
    instance_id = f"i{draw.randint(1, 3)}" if draw.random() < 0.3 else None
    taken = {n.core.membership.settings.instance_id for n in world.members if n.is_alive}
    if instance_id in taken and draw.random() < 0.8:
        instance_id = None  # mostly nobody uses an instance id twice
    Node(world, f"m{number}", draw.choice(TOPICS), instance_id)


def disturb(world: World, number: int) -> None:
    draw = world.random
    alive = world.members
    node = draw.choice(alive) if alive else None
    match draw.choice(DISTURBANCES.split()):
        case "add" if sum(n.core.membership.state is not MemberState.OUT for n in alive) < 6:
            add(world, number)
        case "coordinator" if world.driver is not None and draw.random() < 0.5:
            world.crash_coordinator()
        case _ if node is None:
            pass
        case "crash":
            node.crash()
        case "restart":
            node.crash()
            settings = node.core.membership.settings
            Node(world, f"m{number}", node.topics, settings.instance_id)
        case "sleep" if not node.is_asleep:
            node.sleep(draw.choice((500, 5_000, 20_000)))
        case "leave" if draw.random() < 0.5:
            node.leave()
        case "cut" if node.connection is not None:
            world.cut(node.connection)
        case "silence" if node.connection is not None:
            world.cut(node.connection, silently=True)
        case "subscribe":
            node.subscribe(draw.choice(TOPICS))
        case "metadata":
            world.partition_counts["t"] += draw.randint(0, 2)
            for other in alive:
                other.notice_metadata()
        case "rejoin":
            node.hear(events.RejoinWanted(at_ms=world.now_ms, reason="for fun"))


def expect_peace(world: World) -> None:
    """Once nothing goes wrong any more everybody works, and everything is worked on once."""
    world.is_calm = True
    world.run(45_000)
    expect_all_at_work(world)
    if world.random.random() < 0.5:
        world.partition_counts["t"] += 1
        for node in world.members:
            node.notice_metadata()
    elif world.members:
        world.random.choice(world.members).subscribe(world.random.choice(TOPICS))
    world.run(20_000)
    expect_all_at_work(world)
    before = world.seen["rebalances"]
    world.run(15_000)
    assert world.seen["rebalances"] == before, "rebalances that nobody needs"


def expect_all_at_work(world: World) -> None:
    assert world.driver is not None
    assert world.driver.shard is not None
    at_work = []
    for node in world.members:
        membership = node.core.membership
        if membership.state not in (MemberState.OUT, MemberState.FAILED):
            assert membership.state is MemberState.STABLE, (node.name, membership.state)
            assert node.core.deliverable == node.core.owned == node.listened
            at_work.append(node)
    group = world.driver.shard.groups.get(GROUP)
    members = set() if group is None else set(group.members)
    assert members == {node.core.membership.member_id for node in at_work}
    owned = sorted(p for node in at_work for p in node.core.owned)
    topics = {topic for node in at_work for topic in node.topics}
    assert owned == sorted((t, n) for t in topics for n in range(world.partition_counts[t]))


def live(seed: int) -> World:
    world = World(seed)
    populate(world)
    for number in range(STEPS):
        world.run(world.random.choice((1, 50, 500, 3_000)))
        disturb(world, 100 + number)
    world.run(10_000)
    expect_peace(world)
    return world


@pytest.fixture(scope="module")
def lived() -> list[World]:
    worlds = []
    for seed in range(FIRST, FIRST + WORLDS):
        try:
            worlds.append(live(seed))
        except BaseException as error:
            error.add_note(f"in the world of PARTAGE_SEED={seed}")
            raise
    return worlds


def test_nothing_is_owned_twice_and_all_worlds_come_to_rest(lived: list[World]) -> None:
    """What is checked all along is in `World` and `Node`; here, that there was much to check."""
    seen = sum((world.seen for world in lived), Counter[str]())
    print(f"{len(lived)} worlds from {FIRST} on: {dict(sorted(seen.items()))}")
    assert seen["rebalances"] > 20 * len(lived)
    assert seen["commit NONE"] > 100 * len(lived)
    assert {f"told {call}" for call in Call} <= seen.keys()
    assert {str(problem) for problem in Problem} <= seen.keys()
    assert {f"{timer} timer" for timer in Timer} <= seen.keys()
    assert {"zombies", "coordinator crashed", "skipped the assignment", "left"} <= seen.keys()
    assert "failed FENCED_INSTANCE_ID" in seen


def test_a_seed_is_a_world() -> None:
    assert live(FIRST).seen == live(FIRST).seen
