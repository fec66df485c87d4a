"""Large responses take few loop iterations, and no wait is for bytes that do not arrive."""

import asyncio

import pytest
import uvloop

from partage.client import ClientOptions, ConnectionLostError, receive_low_watermark
from partage.client.connection import Connection
from partage.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from partage.wire.apis.metadata import METADATA, MetadataRequest

from .scripted_broker import CLOSE, TURN, ScriptedBroker, fetched

OPTIONS = ClientOptions(request_timeout_ms=20_000)
PIECE = 32 * 1024
PIECES = 100


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    return request.param


class Counting(Connection):
    """Counts the loop iterations in which bytes arrived."""

    turns = 0

    def buffer_updated(self, nbytes):
        self.turns += 1
        super().buffer_updated(nbytes)


async def ask(connection, topic="t"):
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 26)
    topics = [FetchTopic(topic=topic, topic_id=b"t" * 16, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    answer = await connection.send(FETCH, request)
    return bytes(answer.responses[0].partitions[0].records[0])


def in_pieces(held, count=None):
    """Answer with these records in chunks; close the connection after ``count`` chunks."""

    def script(asked):
        if asked.api is not FETCH:
            return None
        frame = asked.reply(fetched(asked, held))
        cut = [frame[at : at + PIECE] for at in range(0, len(frame), PIECE)][:count]
        turns = [part for piece in cut for part in (piece, TURN)]
        return turns if count is None else [*turns, CLOSE]

    return script


async def turns_of(broker):
    connection = await Counting.open(broker.address, OPTIONS)
    try:
        before = connection.turns
        held = await ask(connection)
        return held, connection.turns - before
    finally:
        connection.close()


HELD = bytes(range(256)) * (PIECE * PIECES // 256)


@pytest.mark.skipif(
    not receive_low_watermark.IS_RCVLOWAT_SAFE, reason="this system is left as it is"
)
def test_large_response_takes_few_loop_iterations(run, monkeypatch):
    async def main():
        async with ScriptedBroker(in_pieces(HELD)) as broker:
            few = await turns_of(broker)
            monkeypatch.setattr(receive_low_watermark, "IS_RCVLOWAT_SAFE", False)
            return few, await turns_of(broker)

    (held, few), (same, many) = run(main())
    assert held == same == HELD
    assert few < 20
    assert many > PIECES // 2


def test_small_response_after_large_arrives_at_once(run):
    async def main():
        async with ScriptedBroker(in_pieces(HELD)) as broker:
            connection = await Connection.open(broker.address, OPTIONS)
            for _ in range(3):
                assert await ask(connection) == HELD
                answer = await connection.send(METADATA, MetadataRequest(topics=None))
                assert [topic.name for topic in answer.topics] == ["t"]
            connection.close()

    run(main())


@pytest.mark.parametrize("count", [1, 40, 90, PIECES])
def test_truncated_large_response_fails_at_once(run, count):
    async def main():
        async with ScriptedBroker(in_pieces(HELD, count)) as broker:
            connection = await Connection.open(broker.address, OPTIONS)
            with pytest.raises(ConnectionLostError, match="the broker closed it"):
                await ask(connection)

    run(main())


@pytest.mark.parametrize(
    ("system", "release", "does"),
    [
        ("linux", "6.18.44-generic", True),
        ("linux", "5.8.0", True),
        ("linux", "5.15.167.4-microsoft-standard-WSL2", True),
        ("linux", "5.4.0-200", False),
        ("linux", "4.4.0", False),  # gVisor reports this release
        ("linux", "", False),
        ("darwin", "24.1.0", False),
        ("win32", "11", False),
    ],
)
def test_is_rcvlowat_safe_by_system(system, release, does):
    assert receive_low_watermark.is_rcvlowat_safe(system, release) is does
