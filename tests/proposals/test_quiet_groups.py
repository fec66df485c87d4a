"""A group that has settled after a change sends only pings, heartbeats and commits.

Each of them is sent at its interval, and those of the consumer protocol have no needless fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from partage.proposals.designs.catalog import DESIGNS, VARIANTS, find_design
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.simulation.design import MemberTemplate
from partage.proposals.simulation.observer import COORDINATOR, WorldObserver
from partage.proposals.simulation.world import DesignWorld, WorldOptions
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.types import Message

MEMBER = DesignMemberSettings(group_id="g")
#: The intervals of the messages that a stable group sends, by the begin of their types.
ROUTINE_MS = {
    "Ping": MEMBER.session_timeout_ms // 3,
    "Heartbeat": MEMBER.heartbeat_interval_ms,
    "ConsumerGroupHeartbeat": MEMBER.heartbeat_interval_ms,
    "OffsetCommit": MEMBER.commit_interval_ms,
}
#: Longer than the interval of refreshes of the topic metadata.
QUIET_MS = 35_000


class RoutineObserver(WorldObserver):
    """An observer that counts messages, and collects those with needless fields."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # by member and type
        self.needless: list[Message] = []

    def on_message(self, sender: str, receiver: str, message: Any) -> None:
        member = receiver if sender == COORDINATOR else sender
        self.counts[member, type(message).__name__] += 1
        match message:
            case ConsumerGroupHeartbeatRequest():
                routine = ConsumerGroupHeartbeatRequest(
                    group_id=message.group_id,
                    member_id=message.member_id,
                    member_epoch=message.member_epoch,
                )
                if message != routine:
                    self.needless.append(message)
            case ConsumerGroupHeartbeatResponse() if message.assignment is not None:
                self.needless.append(message)


def start_member(world: DesignWorld, name: str) -> None:
    world.start_member(MemberTemplate(name=name, topics=frozenset({"t"})))


CHANGES: dict[str, Callable[[DesignWorld], None]] = {
    "new partitions": lambda world: world.add_partitions("t", 3),
    "a join": lambda world: start_member(world, "new"),
    "a leave": lambda world: world.stop_member(world.members[0]),
    "a coordinator crash": lambda world: world.crash_coordinator(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [*DESIGNS, *VARIANTS])
def test_group_is_quiet_after_a_change(name: str, change: str) -> None:
    design = find_design(name)(CoordinatorSettings(), MEMBER)
    world = DesignWorld(design, WorldOptions(topics={"t": 4}, failover_ms=10), seed=1)
    for number in range(2):
        start_member(world, f"m{number}")
    assert world.run_until_settled(120_000)
    CHANGES[change](world)
    assert world.run_until_settled(180_000)
    world.run(QUIET_MS)  # members with the largest counts notice new partitions in turn
    links = [each._link for each in world.members]
    world.observer = observer = RoutineObserver()
    world.run(QUIET_MS)
    for (member, kind), count in observer.counts.items():
        interval_ms = next((ROUTINE_MS[each] for each in ROUTINE_MS if kind.startswith(each)), None)
        assert interval_ms is not None, f"{member} of a settled group sends or gets {kind}"
        assert count <= QUIET_MS // interval_ms + 1, f"{member} sends or gets {count} of {kind}"
    assert not observer.needless
    assert [each._link for each in world.members] == links, "a settled member connects again"
