"""One process of a `SingleWriter`: ``SERVERS TOPIC NAME CLIENT`` with client confluent or aiokafka.

It writes one record per transaction, ``NAME TOKEN NUMBER``, and prints the record after its commit,
or ``ended ERROR``. The directory of a fourth argument is for a test that suspends the process: once
``pause`` exists there, the process blocks inside an open transaction until ``resume`` exists.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from partage.recipes import SingleWriter, Term

SERVERS, TOPIC, NAME, CLIENT = sys.argv[1:5]
ORDERS = Path(sys.argv[5])


def create_producer(transactional_id: str) -> Any:
    if CLIENT == "aiokafka":
        return AIOKafkaProducer(bootstrap_servers=SERVERS, transactional_id=transactional_id)
    return Producer({"bootstrap.servers": SERVERS, "transactional.id": transactional_id})


def pause_if_ordered() -> None:
    """Block the event loop, so that nothing in this process can end the transaction."""
    if not (ORDERS / "pause").exists():
        return
    (ORDERS / "paused").touch()
    while not (ORDERS / "resume").exists():
        time.sleep(0.01)  # blocks the event loop on purpose


async def write(term: Term, producer: Any) -> None:
    number = 0
    try:
        while True:  # does not look at the term: the broker alone must stop a suspended writer
            number += 1
            record = f"{NAME} {term.token} {number}"
            if CLIENT == "aiokafka":
                async with producer.transaction():
                    await producer.send_and_wait(TOPIC, record.encode(), partition=0)
                    pause_if_ordered()
            else:
                producer.begin_transaction()
                producer.produce(TOPIC, record.encode(), partition=0)
                producer.flush(60)
                pause_if_ordered()
                producer.commit_transaction(60)
                await asyncio.sleep(0)
            print(record, flush=True)
    except BaseException as error:
        print("ended", type(error).__name__, error, flush=True)
        raise


async def main() -> None:
    # The other process takes over when the session of the suspended process ends.
    timeouts = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 300}
    async with SingleWriter(
        SERVERS, TOPIC, create_producer=create_producer, write=write, **timeouts
    ):
        await asyncio.Event().wait()


asyncio.run(main())
