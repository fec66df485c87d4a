"""Polls that are cancelled before their callbacks have run."""

from __future__ import annotations

import asyncio

import pytest

import partage

from .conftest import PARTITIONS
from .test_group_members import Told

pytestmark = pytest.mark.timeout(600)


def test_poll_cancelled_during_commit_revokes_nothing(partage_broker, topic):
    """No callback has run yet: the next poll repeats the commit and runs it."""

    async def work():
        heard, seen = Told(), 0
        options = {"auto_offset_reset": "earliest", "partition_assignment_strategy": ["range"]}
        servers = partage_broker.bootstrap_servers
        async with partage.Consumer(servers, group_id="g", **options) as consumer:
            consumer.subscribe([topic], heard)
            while seen < 60:
                seen += len(await consumer.poll(1000))
            with partage_broker.faults.hold("OffsetCommit") as held:
                consumer.drain()
                polling = asyncio.create_task(consumer.poll(60_000))
                await asyncio.to_thread(held.wait)
                polling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await polling
            assert [call for call, _ in heard.calls] == ["assigned"]
            assert len(consumer.assignment()) == PARTITIONS
            while not consumer.is_drained:
                await consumer.poll(1000)
            assert heard.calls[1:] == [("revoked", set(range(PARTITIONS)))]
            done = await consumer.committed([(topic, n) for n in range(PARTITIONS)])
            assert {each.offset for each in done.values()} == {10}

    asyncio.run(work())
