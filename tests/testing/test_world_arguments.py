"""Wrong arguments of a simulated world, which otherwise would leave a test without its purpose."""

from __future__ import annotations

import asyncio

import pytest

from partage.testing import PartageWorld


@pytest.fixture
def world(tmp_path) -> PartageWorld:
    return PartageWorld(1, tmp_path)


async def sleep() -> None:
    await asyncio.sleep(100)


def test_faults_for_an_unknown_process_are_refused(world) -> None:
    async def scenario():
        world.process(sleep, name="worker-1")
        with pytest.raises(ValueError, match=r"no process 'wrker-1'; the processes are .*worker-1"):
            world.draw_faults(5, within_s=30, targets=["wrker-1", world.broker])
        assert world.plan == []
        world.draw_faults(5, within_s=30, targets=["worker-1", world.broker])
        assert len(world.plan) == 5

    world.run(scenario)


def test_coroutine_as_process_is_refused(world) -> None:
    async def scenario():
        work = sleep()
        with pytest.raises(TypeError, match="returns a coroutine, not coroutine: write lambda"):
            world.process(work, name="worker-1")
        work.close()

    world.run(scenario)


def test_coroutine_function_as_invariant_is_refused(world) -> None:
    async def holds():
        return False

    async def scenario():
        with pytest.raises(TypeError, match="'holds' is a coroutine function"):
            world.always(holds)

    world.run(scenario)


def test_leader_of_a_partition_that_does_not_exist_is_refused(world) -> None:
    async def scenario():
        await world.create_topic("orders", partitions=2)
        assert world.leader("orders", 1) == world.broker
        with pytest.raises(LookupError, match="topic 'orders' has no partition 2"):
            world.leader("orders", 2)
        with pytest.raises(LookupError, match="no topic 'order'; did you mean 'orders'"):
            world.leader("order", 0)

    world.run(scenario)
