"""What kazoo does when a session ends while something is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError, RuntimeInconsistency, SessionExpiredError

from partage.broker.cluster.kazoo_session import KazooSession
from partage.store.zookeeper import Create, SessionOver

from .ensemble import Ensemble

WITHIN_S = 60


def test_who_waits_for_an_answer_that_never_comes_is_told_of_the_end() -> None:
    """kazoo drops what is asked just when it takes its threads down."""

    async def scenario() -> None:
        session = KazooSession("127.0.0.1:1", 4_000)
        session._client.get_async = lambda *asked, **more: session._client.handler.async_result()
        reading = asyncio.create_task(session.read("/x"))
        await asyncio.sleep(0)
        await session.end()
        with pytest.raises(SessionOver):
            await asyncio.wait_for(reading, WITHIN_S)

    asyncio.run(scenario())


def test_a_session_that_ends_within_a_transaction_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers say so as the result of one of the operations."""

    async def scenario() -> None:
        session = KazooSession("127.0.0.1:1", 4_000)

        async def answered(ask: object) -> list[Exception]:
            return [RolledBackError(), SessionExpiredError(), RuntimeInconsistency()]

        monkeypatch.setattr(session, "_asked", answered)
        try:
            with pytest.raises(SessionOver):
                await session.transact([Create(f"/{n}", b"") for n in range(3)])
        finally:
            await session.end()

    asyncio.run(scenario())


@pytest.mark.xdist_group("zookeeper")
@pytest.mark.timeout(300)
def test_to_reach_the_servers_takes_a_quorum(zookeeper: Ensemble, tmp_path: Path) -> None:
    """They number what they agree on: a leader that answered by itself would not."""
    client = KazooClient(zookeeper.servers_at)
    client.start(60)
    path = f"/numbers-{tmp_path.name}"

    def number(name: str) -> int:
        return int(client.create(f"{path}-{name}", include_data=True)[1].czxid)

    async def scenario() -> tuple[int, int]:
        session = await KazooSession.begin(zookeeper.servers_at, 30_000, 60)
        try:
            before = await asyncio.to_thread(number, "before")
            for _ in range(3):
                await session.reach()
            return before, await asyncio.to_thread(number, "after")
        finally:
            await session.end()

    try:
        before, after = asyncio.run(scenario())
        assert after >= before + 4
    finally:
        client.stop()
        client.close()
