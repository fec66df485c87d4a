"""Ends of a single writer's terms, with scripted producers; real ones are in ``interop``."""

from __future__ import annotations

import asyncio
import threading

import pytest

from partage.recipes import SingleWriter
from polled_conditions import PATIENCE_S, eventually_async

from .settings import QUICK, run


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


class ScriptedProducer:
    """A producer as of confluent-kafka, whose initialization the test holds back."""

    def __init__(self):
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.calls = []

    def init_transactions(self, timeout_s):
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        self.calls.append("initialized")

    def purge(self, *, blocking):
        self.calls.append("purged")

    def close(self):
        self.calls.append("closed")


def test_writer_resigns_after_its_initialization_has_ended(servers):
    """A request of its thread would fence the successor."""
    producer = ScriptedProducer()

    async def write(term, producer):
        raise AssertionError("the term has ended")

    async def main():
        async with SingleWriter(
            servers, "ledger", create_producer=lambda name: producer, write=write, **QUICK
        ) as writer:
            await asyncio.to_thread(producer.begun.wait, PATIENCE_S)
            resigned = asyncio.ensure_future(writer.resign())
            done, _ = await asyncio.wait([resigned], timeout=0.05)
            assert not done
            producer.may_end.set()
            await resigned
            assert producer.calls == ["initialized", "purged", "closed"]

    run(main())


class SlowProducer:
    """A producer as of aiokafka, whose `stop` waits for an answer of the broker."""

    def __init__(self):
        self.may_stop = asyncio.Event()
        self.has_stopped = asyncio.Event()

    async def start(self):
        pass

    async def stop(self):
        await self.may_stop.wait()
        self.has_stopped.set()


def test_producer_that_stops_late_is_not_interrupted(servers):
    """aiokafka's producer would keep its tasks and connections for ever."""

    async def write(term, producer):
        await asyncio.Event().wait()

    async def main():
        producer = SlowProducer()
        async with SingleWriter(
            servers, "ledger", create_producer=lambda name: producer, write=write, **QUICK
        ) as writer:
            await writer.wait_until_elected()
            async with asyncio.timeout(PATIENCE_S):
                await writer.resign()  # it waits for the producer only for `stop_ms`
            assert not producer.has_stopped.is_set()
            producer.may_stop.set()
            async with asyncio.timeout(PATIENCE_S):
                await producer.has_stopped.wait()

    run(main())


#: aiokafka's error for a producer that the broker rejected.
ProducerFenced = type("ProducerFenced", (Exception,), {})


class FencedProducer:
    """A fenced producer as of aiokafka, whose `stop` raises before it closes its client."""

    def __init__(self):
        self.client = self
        self.is_closed = False
        self.has_started = asyncio.Event()

    async def start(self):
        self.has_started.set()

    async def stop(self):
        raise ProducerFenced

    async def close(self):
        self.is_closed = True


def test_connections_of_a_fenced_producer_are_closed(servers):
    producer = FencedProducer()

    async def write(term, producer):
        await asyncio.Event().wait()

    async def main():
        async with SingleWriter(
            servers, "ledger", create_producer=lambda name: producer, write=write, **QUICK
        ) as writer:
            await writer.wait_until_elected()
            await producer.has_started.wait()
            await writer.resign()
            assert producer.is_closed

    run(main())


class PausingWriter(SingleWriter):
    """A writer whose pause after a lost term the test ends."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.is_pausing = asyncio.Event()
        self.may_continue = asyncio.Event()

    async def _pause(self):
        self.is_pausing.set()
        await self.may_continue.wait()
        self.may_continue.clear()
        self.is_pausing.clear()


@pytest.mark.parametrize("resigns", [True, False])
def test_writer_that_resigned_during_the_pause_stays_resigned(servers, resigns):
    terms = []

    async def write(term, producer):
        terms.append(term.token)
        raise ProducerFenced("by another producer")

    def create(name):
        producer = ScriptedProducer()
        producer.may_end.set()
        return producer

    async def main():
        async with PausingWriter(
            servers, "ledger", create_producer=create, write=write, **QUICK
        ) as writer:
            await asyncio.wait_for(writer.is_pausing.wait(), PATIENCE_S)
            if resigns:
                await writer.resign()
            writer.may_continue.set()
            await eventually_async(lambda: not writer.is_pausing.is_set() or len(terms) > 1)
            if not resigns:
                await eventually_async(lambda: len(terms) == 2)
                return
            async with SingleWriter(
                servers, "ledger", create_producer=create, write=write, **QUICK
            ) as other:
                # It is elected only if the first one is no candidate.
                await eventually_async(lambda: other.failure is not None)
            assert len(terms) == 2

    run(main())
