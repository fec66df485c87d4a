"""`partage_broker` in tests that are coroutines, with clients on the same event loop."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from partage import Consumer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def consumer(partage_broker):
    """A consumer that runs on the event loop of the test."""
    partage_broker.create_topic("flights")
    consumer = AIOKafkaConsumer(
        "flights",
        bootstrap_servers=partage_broker.bootstrap_servers,
        group_id="tower",
        client_id="tower",
        heartbeat_interval_ms=20,
        retry_backoff_ms=10,
        enable_auto_commit=False,
    )
    await consumer.start()
    yield consumer
    await consumer.stop()


async def test_expire_async_waits_until_the_member_has_joined(partage_broker):
    partage_broker.create_topic("flights")
    expiring = asyncio.create_task(partage_broker.faults.expire_async("tower"))
    await asyncio.sleep(0)
    options = {"group_id": "tower", "heartbeat_interval_ms": 20}
    async with Consumer(partage_broker.bootstrap_servers, **options) as consumer:
        consumer.subscribe(["flights"])
        while not expiring.done():
            await consumer.poll(timeout_ms=10)
        expired = expiring.result()
        while not (members := partage_broker.faults.members("tower")) or expired in members:
            await consumer.poll(timeout_ms=10)


async def test_expire_async_of_unknown_member_raises(partage_broker):
    with pytest.raises(LookupError, match="group 'tower' has no member"):
        await partage_broker.faults.expire_async("tower", within_s=0.01)


async def test_wait_async_lets_the_client_send_its_request(partage_broker, consumer):
    with partage_broker.faults.hold("OffsetCommit", client_id="tower") as held:
        committing = asyncio.create_task(consumer.commit(dict.fromkeys(consumer.assignment(), 0)))
        await held.wait_async()
        assert not committing.done()
    await committing
    assert partage_broker.committed("tower") == {("flights", 0): 0}


async def test_wait_async_times_out(partage_broker):
    held = partage_broker.faults.hold("JoinGroup", required=False)
    with pytest.raises(TimeoutError, match=r"no matching request arrived within 0\.01 s"):
        await held.wait_async(0.01)


async def test_cancelled_wait_leaves_the_broker_usable(partage_broker, consumer):
    held = partage_broker.faults.hold("OffsetCommit")
    for _ in range(2):
        waiting = asyncio.create_task(held.wait_async())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    committing = asyncio.create_task(consumer.commit(dict.fromkeys(consumer.assignment(), 0)))
    await held.wait_async()
    held.release()
    await committing


async def test_blocking_waits_raise_in_a_running_loop(partage_broker):
    with pytest.raises(RuntimeError, match=r"use: await faults\.expire_async\("):
        partage_broker.faults.expire("tower")
    held = partage_broker.faults.hold("JoinGroup", required=False)
    with pytest.raises(RuntimeError, match=r"use: await held\.wait_async\(\)"):
        held.wait()


async def test_blocking_waits_work_in_a_thread_of_a_coroutine(partage_broker, consumer):
    (member_id,) = partage_broker.faults.members("tower")
    assert await asyncio.to_thread(partage_broker.faults.expire, "tower") == member_id


async def test_records_committed_and_reset_work_in_coroutines(partage_broker, consumer):
    async with AIOKafkaProducer(bootstrap_servers=partage_broker.bootstrap_servers) as producer:
        await producer.send_and_wait("flights", b"UA1545")
    assert (await consumer.getone()).value == b"UA1545"
    await consumer.commit()
    assert [each.value for each in partage_broker.records("flights")] == [b"UA1545"]
    assert partage_broker.committed("tower") == {("flights", 0): 1}
    await consumer.stop()
    partage_broker.reset()
    assert partage_broker.committed("tower") == {}
