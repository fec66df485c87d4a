"""Faults of single connections, and of disks, in a simulated world."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from partage.client.connection import Connection
from partage.client.errors import ClientError, ConnectionLostError, RequestTimeoutError
from partage.client.options import ClientOptions
from partage.lab.environment.disk import IO_ERRORS
from partage.model.addresses import Address
from partage.testing import PartageWorld
from partage.testing.world.fault_injection import ConnectionFault
from partage.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from partage.wire.apis.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from partage.wire.records.encoder import SimpleRecord, encode_batch

TIMEOUT_MS = 2_000


async def open_connection(world: PartageWorld) -> Connection:
    options = ClientOptions(request_timeout_ms=TIMEOUT_MS)
    return await Connection.open(Address(world.broker, 9092), options)


def failures_of_two(
    directory: Path, kind: ConnectionFault, for_s: float = 0.0
) -> list[tuple[type[ClientError] | None, float]]:
    """Let one of two connections fail; return the error and the time of a request on each."""
    world = PartageWorld(1, directory)
    found = []

    async def main() -> None:
        connections = [await open_connection(world) for _ in range(2)]
        world.fail_connection("client", kind, Random(1), for_s)
        for connection in connections:
            begin_s, error = world.elapsed_s, None
            try:
                await connection.send(LIST_GROUPS, ListGroupsRequest())
            except ClientError as caught:
                error = type(caught)
            found.append((error, world.elapsed_s - begin_s))
            connection.close()

    async def test() -> None:
        world.process(main, name="client")
        await world.until(lambda: not world.is_running("client"))

    world.run(test)
    return sorted(found, key=lambda each: each[1])


@pytest.mark.parametrize("kind", ["lose_request", "lose_response"])
def test_silent_connection_times_out_and_the_other_one_works(
    tmp_path: Path, kind: ConnectionFault
) -> None:
    (fine, _), (failed, waited_s) = failures_of_two(tmp_path, kind)
    assert (fine, failed) == (None, RequestTimeoutError)
    assert waited_s == pytest.approx(TIMEOUT_MS / 1000, abs=0.01)


def test_reset_connection_is_lost_and_the_other_one_works(tmp_path: Path) -> None:
    errors = {error for error, _ in failures_of_two(tmp_path, "reset")}
    assert errors == {None, ConnectionLostError}


def test_stalled_connection_answers_later(tmp_path: Path) -> None:
    (fine, _), (stalled, waited_s) = failures_of_two(tmp_path, "stall", 1.5)
    assert (fine, stalled) == (None, None)
    assert waited_s == pytest.approx(1.5, abs=0.05)


def test_connection_that_is_reset_while_it_opens_fails_at_once(tmp_path: Path) -> None:
    world = PartageWorld(1, tmp_path)
    times_s = []

    async def main() -> None:
        for _ in range(50):
            begin_s = world.elapsed_s
            with suppress(ClientError):
                (await open_connection(world)).close()
            times_s.append(world.elapsed_s - begin_s)

    async def test() -> None:
        world.process(main, name="client")
        while world.is_running("client"):
            await asyncio.sleep(0.0015)
            world.reset_connections("client")

    world.run(test)
    assert max(times_s) < 1


async def write(connection: Connection) -> int:
    batch = encode_batch([SimpleRecord(None, b"value", timestamp_ms=1_767_225_600_000)])
    topic = ProduceTopic(name="t", partition_data=[ProducePartition(index=0, records=[batch])])
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
    response = await connection.send(PRODUCE, request, version_max=12)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize(
    ("operation", "code"), [fault for fault in sorted(IO_ERRORS) if fault[0] != "read"]
)
def test_write_fails_while_the_disk_does_and_succeeds_later(
    tmp_path: Path, operation: str, code: int
) -> None:
    world = PartageWorld(1, tmp_path, loses_power=True)
    codes = []

    async def test() -> None:
        await world.create_topic("t")
        connection = await open_connection(world)
        world.fail_disk(world.broker, operation, code, for_s=1.0)
        codes.append(await write(connection))
        begin_s = world.elapsed_s
        await world.until(lambda: world.elapsed_s > begin_s + 10)
        codes.append(await write(connection))
        connection.close()

    world.run(test)
    assert codes[0] > 0 == codes[1]


def test_disk_of_a_dead_broker_does_not_fail(tmp_path: Path) -> None:
    world = PartageWorld(1, tmp_path, loses_power=True)

    async def test() -> None:
        world.kill(world.broker)
        world.fail_disk(world.broker, "read", errno.EIO, for_s=100)
        world.restart(world.broker)
        await world.until(lambda: world.coordinator("g") is not None)

    world.run(test)
