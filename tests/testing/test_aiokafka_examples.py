"""The published examples of aiokafka run unchanged in a simulated world.

They call `asyncio.run` and connect to ``localhost:9092``. Here `asyncio.run` gives its coroutine to
a process of the world, and that process forwards its port 9092 to the broker. Two examples cannot
run: `ssl_consume_produce` needs TLS, and the consumer of `group_consumer` always raises TypeError.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context

from partage.testing import PartageWorld
from partage.testing.world.errors import NotSimulatedError

EXAMPLES = Path(__file__).parent / "aiokafka_examples"


def load(name: str, *arguments: str, **settings: object) -> Coroutine[Any, Any, Any]:
    """Execute an example and return the coroutine that it gives to `asyncio.run`."""
    path = EXAMPLES / f"{name}.py"
    found: list[Coroutine[Any, Any, Any]] = []
    module = {"__name__": "__main__", "input": lambda: ""}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "run", found.append)
        patch.setattr(sys, "argv", [path.name, *arguments])
        exec(compile(path.read_text(), path, "exec"), module)
    module.update(settings)
    (coroutine,) = found
    return coroutine


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


class Examples(PartageWorld):
    """A world whose processes run examples."""

    async def run_example(self, name: str, *arguments: str, **settings: object) -> None:
        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = self.bootstrap_servers.partition(":")
            to_broker = await asyncio.open_connection(host, int(port))
            await asyncio.gather(forward(reader, to_broker[1]), forward(to_broker[0], writer))

        await asyncio.start_server(connect, "localhost", 9092)
        await load(name, *arguments, **settings)

    def start(self, name: str, *arguments: str, process: str = "", **settings: object) -> None:
        self.process(
            lambda: self.run_example(name, *arguments, **settings),
            name=process or name,
            restart_after_s=1,
        )

    async def finish(self, name: str, *arguments: str) -> None:
        """Run an example until it ends."""
        process = self.process(lambda: self.run_example(name, *arguments), name=name)
        await self.until(lambda: not process.is_running)


@pytest.fixture
def world(tmp_path: Path) -> Examples:
    return Examples(1, tmp_path)


def test_batch_produce_and_simple_consumer(world: Examples, capsys) -> None:
    async def test() -> None:
        await world.create_topic("my_topic", partitions=3)
        world.start("simple_consumer")
        await asyncio.sleep(1)
        await world.finish("batch_produce")
        await world.until(lambda: len(world.records("my_topic")) == 1_000)
        await asyncio.sleep(5)

    world.run(test)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("b'Test message ") for line in lines) == 1_000
    assert any("messages sent to partition" in line for line in lines)


@pytest.mark.parametrize("name", ["simple_produce", "idempotent_produce"])
def test_producer_continues_after_the_broker_was_killed(world: Examples, name: str, capsys) -> None:
    async def test() -> None:
        await world.create_topic("test-topic")
        world.start(name)
        await asyncio.sleep(5)
        world.kill(world.broker)
        await asyncio.sleep(3)
        world.restart(world.broker)
        await asyncio.sleep(20)
        assert {each.value for each in world.records("test-topic")} == {b"Super message"}
        assert len(world.records("test-topic")) >= 20

    world.run(test)
    assert "RecordMetadata(topic='test-topic'" in capsys.readouterr().out


def test_local_state_consumer_continues_with_its_files(world: Examples, capsys) -> None:
    totals = []

    async def test() -> None:
        await world.create_topic("test", partitions=2)
        template = f"{world.directory}/state-{{tp.topic}}-{{tp.partition}}.json"
        world.start("local_state_consumer", FILE_NAME_TMPL=template)

        def total() -> int:
            files = world.directory.glob("state-*.json")
            return sum(sum(json.loads(each.read_text())["counts"].values()) for each in files)

        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send_and_wait("test", b"x", key=b"key %d" % (number % 3))
                await asyncio.sleep(1)
                if number == 10:
                    world.kill("local_state_consumer")
                    world.restart("local_state_consumer")
        await world.until(lambda: total() == 20, timeout_s=120)
        totals.append(total())

    world.run(test)
    assert totals == [20]
    assert "Process TopicPartition(topic='test'" in capsys.readouterr().out


def test_transactional_produce_aborts_its_transaction(world: Examples) -> None:
    committed = []

    async def test() -> None:
        await world.create_topic("test-topic")
        world.start("transactional_produce")
        await world.until(lambda: any("failed: ValueError" in line for line in world.story))
        world.kill("transactional_produce")
        values = [each.value for each in world.records("test-topic")]
        assert b"Super transactional message" in values
        consumer = AIOKafkaConsumer(
            "test-topic",
            bootstrap_servers=world.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            committed.extend(await consumer.getmany(timeout_ms=5_000))

    world.run(test)
    assert committed == []


def test_custom_partitioner_prints_what_its_page_says(world: Examples, capsys) -> None:
    async def test() -> None:
        await world.create_topic("foobar", partitions=10)
        await world.finish("docs_custom_partitioner")

    world.run(test)
    first, _, last = capsys.readouterr().out.splitlines()
    assert (first, last) == ("'1' produced in partition: 9", "'3' produced in partition: 0")


def test_manual_commit_commits_ten_messages(world: Examples) -> None:
    async def test() -> None:
        await world.create_topic("foobar")
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            for _ in range(12):
                await producer.send_and_wait("foobar", b"x")
        await world.finish("docs_manual_commit")
        assert list(world.committed("some-consumer-group").values()) == [10]

    world.run(test)


def test_serializers_print_what_their_page_says(world: Examples, capsys) -> None:
    async def test() -> None:
        await world.create_topic("foobar")
        await world.finish("docs_serialize_produce")
        await world.finish("docs_serialize_consume")

    world.run(test)
    assert capsys.readouterr().out.splitlines() == [
        "<class 'dict'> {'a': 123.4, 'b': 'some string'}",
        "<class 'list'> [1, 2, 3, 4]",
    ]


def test_group_producer_takes_partition_and_message(world: Examples) -> None:
    async def test() -> None:
        await world.create_topic("some-topic", partitions=2)
        await world.finish("docs_group_consumer_producer", "1", "message #3")
        (record,) = world.records("some-topic")
        assert (record.partition, record.value) == (1, b"message #3")

    world.run(test)


def test_group_consumer_of_the_documentation_has_an_error() -> None:
    with pytest.raises(TypeError, match="takes 0 positional arguments but 2 were given"):
        load("docs_group_consumer", "TEST_GROUP", "2")


def test_transaction_example_processes_each_message_once(world: Examples) -> None:
    counts = []

    async def test() -> None:
        await world.create_topic("in_topic", partitions=2)
        await world.create_topic("out_topic", partitions=2)
        world.start("docs_transaction_example")
        await asyncio.sleep(5)  # it starts at the end of its topic
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            for number in range(30):
                await producer.send_and_wait("in_topic", b"x", key=b"key %d" % (number % 3))
                await asyncio.sleep(1)
                if number == 10:
                    world.kill("docs_transaction_example")
                    world.restart("docs_transaction_example")
        consumer = AIOKafkaConsumer(
            "out_topic",
            bootstrap_servers=world.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with consumer:
            until_s = world.elapsed_s + 100
            while world.elapsed_s < until_s:
                found = await consumer.getmany(timeout_ms=1_000)
                counts.extend(int(each.value) for some in found.values() for each in some)

    world.run(test)
    assert sum(counts) == 30
    # A minute without messages ends it: it commits an empty dictionary of offsets.
    assert any("failed: ValueError: {}" in line for line in world.story)


def test_example_with_tls_is_refused_with_the_reason(world: Examples) -> None:
    with pytest.raises(FileNotFoundError):  # the example reads certificates first
        load("ssl_consume_produce")

    async def test() -> None:
        with pytest.raises(NotSimulatedError, match="TLS is not possible in a simulated world"):
            await asyncio.open_connection("broker-1", 9093, ssl=create_ssl_context())

    world.run(test)
