"""A partition whose write has failed is opened again, later each time if it fails again soon."""

from __future__ import annotations

import errno
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from partage.testing import PartageWorld


def test_delay_doubles_until_the_partition_has_worked_for_a_while(tmp_path: Path) -> None:
    world = PartageWorld(1, tmp_path, loses_power=True)
    delays_s: list[float] = []

    async def work() -> None:
        await world.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            for pause_s in (0, 0, 130, 0):
                await pass_time(pause_s)
                delays_s.append(await time_of_failure(producer))

    async def pass_time(for_s: float) -> None:
        end_s = world.elapsed_s + for_s
        await world.until(lambda: world.elapsed_s >= end_s, timeout_s=for_s + 10)

    async def time_of_failure(producer: AIOKafkaProducer) -> float:
        world.fail_disk(world.broker, "sync", errno.EIO, 0.2)
        began_s = world.elapsed_s
        while True:
            try:
                await producer.send_and_wait("t", b"x", partition=0)
            except KafkaError:
                await pass_time(0.1)
            else:
                return world.elapsed_s - began_s

    world.run(work)
    assert [round(delay_s) for delay_s in delays_s] == [2, 4, 2, 4], delays_s
