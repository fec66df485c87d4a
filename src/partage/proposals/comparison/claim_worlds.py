"""Worlds in which claims are measured: groups whose members start together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import Design, MemberTemplate
from partage.proposals.simulation.world import DesignWorld, WorldOptions

GROUP_ID: Final = "claimed"

#: The settings of all designs in these worlds.
SETTINGS: Final = (CoordinatorSettings(), DesignMemberSettings(group_id=GROUP_ID))


def member_names(count: int, prefix: str = "member") -> list[str]:
    """Return the names of members."""
    return [f"{prefix}-{number:03}" for number in range(count)]


def new_world(
    design: Design, members: Sequence[str], options: WorldOptions, *, seed: int = 1, kb: int = 0
) -> DesignWorld:
    """Return a world with members that subscribe to all topics.

    Args:
        design: The design.
        members: The names of the members.
        options: The environment.
        seed: The seed of the world.
        kb: The user data in the metadata of each member, in KB.
    """
    world = DesignWorld(design, options, seed)
    topics = frozenset(options.topics)
    for name in members:
        world.start_member(MemberTemplate(name=name, topics=topics, metadata_bytes=kb * 1000))
    return world
