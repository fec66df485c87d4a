"""Faults of the network between members and brokers."""

from __future__ import annotations

from random import Random

from partage.lab.environment.clock import START_MS
from partage.lab.faults.members import pick_member
from partage.lab.options import IN_FLIGHT_MAX_MS
from partage.lab.world import World


def connection_resets(world: World, rng: Random) -> bool:
    connections = [c for c in world.network.connections if c.is_open]
    if not connections:
        return False
    connection = rng.choice(connections)
    for way in (connection.up, connection.down):
        way.reset(rng.randrange(way.in_flight_bytes + 1))
    return True


def response_is_lost(world: World, rng: Random) -> bool:
    connections = [c for c in world.network.connections if c.is_open]
    if not connections:
        return False
    connection = rng.choice(connections)
    connection.up.reset(
        connection.up.in_flight_bytes
    )  # the request is handled, but its response is lost
    connection.down.reset(0)
    return True


def broker_end_vanishes(world: World, rng: Random) -> bool:
    connections = [c for c in world.network.connections if c.is_open]
    if not connections:
        return False
    connection = rng.choice(connections)
    connection.up.reset(0)
    connection.down.drop_silently()
    return True


def requests_are_cut_off(world: World, rng: Random) -> bool:
    return _cut(world, rng, ("up",))


def responses_are_cut_off(world: World, rng: Random) -> bool:
    return _cut(world, rng, ("down",))


def member_is_cut_off(world: World, rng: Random) -> bool:
    return _cut(world, rng, ("up", "down"))


def _cut(world: World, rng: Random, ways: tuple[str, ...]) -> bool:
    member = pick_member(world, rng)
    if member is not None:
        for_ms = rng.choice((1_000, 4_000, 12_000))
        # After the faults are healed, delayed bytes must arrive within IN_FLIGHT_MAX_MS.
        left_ms = START_MS + world.options.safety_ms + IN_FLIGHT_MAX_MS - world.now_ms
        for_ms = min(for_ms, left_ms - 1)
        for way in ways:
            world.network.cut(member.name, way, for_ms)
    return member is not None


def network_slows_down(world: World, rng: Random) -> bool:
    world.network.slow_down(rng.choice((500, 3_000, 8_000)), rng.choice((2_000, 8_000)))
    return True


def connections_are_refused(world: World, rng: Random) -> bool:
    world.network.refuse_connections(rng.choice((500, 5_000)))
    return True
