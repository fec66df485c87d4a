"""Faults of the ZooKeeper sessions of brokers."""

from __future__ import annotations

from random import Random
from typing import Final

from partage.testing.world.world import PartageWorld

#: The brokers' default session timeout in ZooKeeper.
_SESSION_S: Final = 6.0


def disturb_session(world: PartageWorld, broker: str, rng: Random) -> None:
    """Let a broker lose its ZooKeeper session, or almost lose it.

    Clients reach a broker that is cut off from ZooKeeper. A broker that pauses may go on without
    knowing that another one has taken over.
    """
    for_s = _SESSION_S * rng.choice((0.3, 0.7, 1, 1.5, 3)) * rng.uniform(0.9, 1.1)
    match rng.choice(("cut", "cut", "pause", "expire")):
        case "cut":
            world.cut(broker, world.zookeeper, for_s)
        case "pause":
            world.pause(broker, for_s)
        case "expire":
            world.expire_session(broker)
