"""Leader selection among members with several versions of an assignor, on each broker (KIP-429)."""

from __future__ import annotations

import time

import pytest

from interop.peers.server import BrokerProcess
from partage.assignors import CooperativeSticky
from partage.sync import Consumer

pytestmark = pytest.mark.interop

Used = list[tuple[int, tuple[int, ...]]]


def probing(used: Used, *speaks: int) -> CooperativeSticky:
    """Return an assignor with these versions; ``used`` records the leader's and the members'
    versions.
    """

    class Probing(CooperativeSticky):
        name = "mine"
        versions = speaks
        has_version_probing = True

        def assign(self, members, topics):  # type: ignore[no-untyped-def]
            used.append((self.version, tuple(sorted(m.version for m in members))))
            return super().assign(members, topics)

    return Probing()


def test_leader_version_decides_assignment_version(
    broker: BrokerProcess, topic: str, partitions: set[tuple[str, int]]
) -> None:
    used: Used = []

    def joined(*speaks: int) -> Consumer:
        member = Consumer(
            broker.bootstrap,
            group_id=topic,
            heartbeat_interval_ms=50,
            partition_assignment_strategy=[probing(used, *speaks)],
        )
        member.subscribe([topic])
        return member

    def until_shared(*members: Consumer) -> None:
        give_up = time.monotonic() + 60
        while not shared(*members):
            assert time.monotonic() < give_up, [member.assignment() for member in members]
            for member in members:
                member.poll(20)

    def shared(*members: Consumer) -> bool:
        held = [partition for member in members for partition in member.assignment()]
        return sorted(held) == sorted(partitions) and all(m.assignment() for m in members)

    old = joined(0)
    try:
        until_shared(old)
        with joined(1, 0) as new:
            until_shared(old, new)
            knows = type(broker).__name__ == "PartageBroker"
            assert used[-1] == ((1, (0, 1)) if knows else (0, (0, 0)))
            old.close()
            until_shared(new)
            give_up = time.monotonic() + 60
            while used[-1] != (1, (1,)):
                assert time.monotonic() < give_up, used
                new.poll(20)
    finally:
        old.close()
