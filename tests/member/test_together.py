"""Coordinator and members together, on a wire that is not to be trusted."""

from __future__ import annotations

import os
import random

from partage.member import events
from partage.member.states import MemberState

from .world import GROUP, Node, World

WORLDS = int(os.environ.get("PARTAGE_WORLDS", "60"))
STEPS = 60
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
    alive = [node for node in world.members if node.is_alive]
    node = draw.choice(alive) if alive else None
    match draw.choice(
        ("add", "add", "crash", "sleep", "leave", "cut", "cut", "coordinator", "subscribe",
         "metadata", "rejoin", "restart", "nothing", "nothing")
    ):  # fmt: skip
        case "add" if len(alive) < 8:
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
        case "leave":
            node.leave()
        case "cut" if node.connection is not None:
            world.cut(node.connection)
        case "subscribe":
            node.subscribe(draw.choice(TOPICS))
        case "metadata":
            world.partition_counts["t"] += draw.randint(0, 2)
            for other in alive:
                other.hear(events.MetadataChanged(at_ms=world.now_ms, reason="partitions"))
        case "rejoin":
            node.hear(events.RejoinWanted(at_ms=world.now_ms, reason="for fun"))


def expect_peace(world: World) -> None:
    """Once nothing goes wrong any more everybody works, and everything is worked on once."""
    world.is_calm = True
    for node in world.members:
        node.hear(events.MetadataChanged(at_ms=world.now_ms, reason="partitions"))
    world.run(120_000)
    assert world.driver is not None
    assert world.driver.shard is not None
    at_work = []
    for node in world.members:
        membership = node.core.membership
        if node.is_alive and membership.state not in (MemberState.OUT, MemberState.FAILED):
            assert membership.state is MemberState.STABLE, (node.name, membership.state)
            assert node.core.deliverable == node.core.owned
            at_work.append(node)
    group = world.driver.shard.groups.get(GROUP)
    members = set() if group is None else set(group.members)
    assert members == {node.core.membership.member_id for node in at_work}
    owned = sorted(p for node in at_work for p in node.core.owned)
    topics = {topic for node in at_work for topic in node.topics}
    assert owned == sorted((t, n) for t in topics for n in range(world.partition_counts[t]))
    before = world.seen["rebalances"]
    world.run(30_000)
    assert world.seen["rebalances"] == before, "rebalances that nobody needs"


def live(seed: int) -> World:
    world = World(seed)
    populate(world)
    for number in range(STEPS):
        world.run(world.random.choice((1, 50, 500, 3_000)))
        disturb(world, 100 + number)
    world.run(20_000)
    expect_peace(world)
    return world


def test_random_rebalances() -> None:
    seeds = random.Random(int(os.environ.get("PARTAGE_SEED", "0")))
    rebalances = 0
    for _ in range(WORLDS):
        seed = seeds.randrange(2**32)
        try:
            rebalances += live(seed).seen["rebalances"]
        except BaseException:
            print(f"seed {seed}")
            raise
    print(rebalances)
