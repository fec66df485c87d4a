"""Worlds in which a killed broker loses what its disk has not synced."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from partage.model.settings import BrokerSettings
from partage.testing import PartageWorld
from partage.testing.world import brokers

COUNT = 20


def records_after_a_kill(seed: int, directory: Path) -> int:
    """Write records, kill the broker, and return how many records it has after a restart."""
    world = PartageWorld(seed, directory, loses_power=True)
    found = []

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, acks=-1) as producer:
            for number in range(COUNT):
                await producer.send_and_wait("t", b"%d" % number, partition=0)

    async def test() -> None:
        await world.create_topic("t")
        world.process(produce, name="writer")
        await world.until(lambda: not world.is_running("writer"))
        world.kill(world.broker)
        world.restart(world.broker)
        await world.until(lambda: world.coordinator("g") is not None)
        found.append(len(world.records("t")))

    world.run(test)
    return found[0]


def test_acknowledged_records_survive_a_power_failure(tmp_path: Path) -> None:
    assert records_after_a_kill(1, tmp_path) == COUNT


def test_records_that_are_not_synced_are_lost_in_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "BrokerSettings", lambda: BrokerSettings(is_fsync_enabled=False))
    kept = [records_after_a_kill(seed, tmp_path / str(seed)) for seed in range(4)]
    assert min(kept) < COUNT
