"""CPU time of simulated worlds: three aiokafka consumers, 10,000 records and ten faults.

Each world simulates one hour. A shop sends 10,000 records in that hour, and the consumers of one
group, with aiokafka's defaults except for ``fetch_max_wait_ms``, read and commit them. The shop
sends 100 records at a time, or each record alone. The figures are CPU time of the thread, which
other programs on the machine hardly change; the start of the interpreter and imports are left out.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.brokers import OURS
from bench.figures import Figure, figures_of_rounds
from partage.testing import PartageWorld

TITLE = "One hour of a simulated world"

_WORKERS = ("worker-1", "worker-2", "worker-3")
_FAULTS = 10


def measure(*, is_quick: bool, with_kafka: bool) -> Iterator[Figure]:
    """Measure worlds with batches and long polls of two lengths, and one with single records."""
    hour_s, records = (360, 1_000) if is_quick else (3_600, 10_000)
    for batch, max_wait_ms, wanted in ((100, 500, 2.0), (100, 5_000, None), (1, 500, None)):
        seconds = [
            run_world(seed, hour_s=hour_s, records=records, batch=batch, max_wait_ms=max_wait_ms)
            for seed in (1, 2, 3)
        ]
        yield from figures_of_rounds(
            f"{records:,} records, {batch} at a time, polls of {max_wait_ms:,} ms",
            "s",
            {OURS: seconds},
            less_is_better=True,
            wanted=wanted,
            note=f"3 consumers, {_FAULTS} faults, {hour_s:,} virtual s; CPU, median of 3 seeds",
        )


def run_world(seed: int, *, hour_s: int, records: int, batch: int, max_wait_ms: int) -> float:
    """Run one world; return its CPU time in seconds."""
    with tempfile.TemporaryDirectory() as directory:
        world = PartageWorld(seed, Path(directory))
        seen: set[bytes] = set()

        async def consume() -> None:
            consumer = AIOKafkaConsumer(
                "orders",
                bootstrap_servers=world.bootstrap_servers,
                group_id="workers",
                auto_offset_reset="earliest",
                fetch_max_wait_ms=max_wait_ms,
            )
            async with consumer:
                async for record in consumer:
                    seen.add(record.value)

        async def sell() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers)
            async with producer:
                for start in range(0, records, batch):
                    numbers = range(start, start + batch)
                    sent = [await producer.send("orders", b"order %d" % n) for n in numbers]
                    await asyncio.gather(*sent)
                    await asyncio.sleep(hour_s * 0.9 * batch / records)

        async def scenario() -> None:
            await world.create_topic("orders", partitions=6)
            world.process(sell, name="shop", restart_after_s=1)
            for name in _WORKERS:
                world.process(consume, name=name, restart_after_s=1)
            world.draw_faults(_FAULTS, within_s=hour_s, targets=[*_WORKERS])
            world.eventually(every_record_has_arrived)
            await asyncio.sleep(hour_s)

        def every_record_has_arrived() -> bool:
            return len(seen) == records

        began_s = time.thread_time()
        world.run(scenario)
        return time.thread_time() - began_s
