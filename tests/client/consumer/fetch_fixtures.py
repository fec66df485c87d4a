"""Fetch state machines with three partitions, for tests."""

from partage.client import TopicPartition
from partage.client.consumer.fetch_state_machine import FetchStateMachine, Placement
from partage.client.consumer.partition_state import TO_EARLIEST
from partage.client.metadata import LeaderAndEpoch

A, B, C = (TopicPartition("t", n) for n in range(3))
HERE = Placement(LeaderAndEpoch(1, 0), b"t" * 16)
THERE = Placement(LeaderAndEpoch(2, 0), b"t" * 16)
#: A preferred read replica is used for this time.
LIFETIME_MS = 1000
EVERYWHERE = {A: HERE, B: HERE, C: THERE}


def yes(partition):
    return True


def made(*partitions, policy=TO_EARLIEST, buffer_bytes=1000, partition_bytes=100, at=0):
    """Return a fetch state machine with these partitions, all at one offset."""
    positions = FetchStateMachine(
        policy=policy,
        partition_bytes=partition_bytes,
        fetch_bytes=500,
        buffer_bytes=buffer_bytes,
        replica_lifetime_ms=LIFETIME_MS,
    )
    positions.add_partitions(partitions)
    for partition in partitions:
        if at is not None:
            positions.seek(partition, at)
    return positions
