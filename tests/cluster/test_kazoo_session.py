"""kazoo when a session ends during a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError, RuntimeInconsistency, SessionExpiredError
from kazoo.security import make_digest_acl

from partage.broker.cluster.kazoo_session import KazooSession
from partage.store.zookeeper import Check, Create, RefusedError, SessionEndedError

from .zookeeper_ensemble import Ensemble

WITHIN_S = 60


def test_pending_request_fails_when_session_ends() -> None:
    """kazoo drops requests that are made while it stops its threads."""

    async def scenario() -> None:
        session = KazooSession("127.0.0.1:1", 4_000)
        session._client.get_async = lambda *asked, **more: session._client.handler.async_result()
        reading = asyncio.create_task(session.read("/x"))
        await asyncio.sleep(0)
        await session.end()
        with pytest.raises(SessionEndedError):
            await asyncio.wait_for(reading, WITHIN_S)

    asyncio.run(scenario())


def test_session_end_in_transaction_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers report it as the result of one of the operations."""

    async def scenario() -> None:
        session = KazooSession("127.0.0.1:1", 4_000)

        async def answered(ask: object) -> list[Exception]:
            return [RolledBackError(), SessionExpiredError(), RuntimeInconsistency()]

        monkeypatch.setattr(session, "_request", answered)
        try:
            with pytest.raises(SessionEndedError):
                await session.transact([Create(f"/{n}", b"") for n in range(3)])
        finally:
            await session.end()

    asyncio.run(scenario())


@pytest.fixture
def admin(zookeeper: Ensemble) -> Iterator[KazooClient]:
    """Yield an administrator's client; afterwards the root is accessible to all again."""
    client = KazooClient(zookeeper.connect_string)
    client.start(60)
    client.add_auth("digest", "admin:secret")
    acl, _ = client.get_acls("/")
    yield client
    client.set_acls("/", acl)
    client.stop()
    client.close()


@pytest.mark.xdist_group("zookeeper")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_open", [True, False])
def test_ping_leader_needs_quorum(
    zookeeper: Ensemble, admin: KazooClient, tmp_path: Path, is_open: bool
) -> None:
    """A transaction has a number that a quorum must agree on; a leader alone cannot do that.

    The root may be inaccessible, for example in an ensemble that several applications share.
    """
    path = f"/numbers-{tmp_path.name}"
    admin.create(path)
    if not is_open:
        admin.set_acls("/", [make_digest_acl("admin", "secret", all=True)])

    def number(name: str) -> int:
        return int(admin.create(f"{path}/{name}", include_data=True)[1].czxid)

    async def scenario() -> tuple[int, int]:
        session = await KazooSession.begin(zookeeper.connect_string, 30_000, 60)
        try:
            if not is_open:
                with pytest.raises(RefusedError):
                    await session.transact([Check("/", -1)])
            before = await asyncio.to_thread(number, "before")
            for _ in range(3):
                await session.ping_leader()
            return before, await asyncio.to_thread(number, "after")
        finally:
            await session.end()

    before, after = asyncio.run(scenario())
    assert after >= before + 4
