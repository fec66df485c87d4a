"""ZooKeeper over TLS with client certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from client.certificate_authority import Authority
from free_ports import free_ports
from partage.broker.cluster.cluster_session import ZooKeeperTlsError, ZooKeeperUnreachableError
from partage.broker.cluster.kazoo_session import KazooSession
from partage.broker.cluster.tls import KazooTlsHandler, ssl_context
from partage.broker.overrides import apply_overrides
from partage.model.settings import BrokerSettings
from partage.store.zookeeper import Create
from polled_conditions import PATIENCE_S

from .brokers import ClusterBroker, brokers
from .group_client import GroupClient
from .zookeeper_ensemble import ensemble

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]

ENABLE = "zookeeper.ssl.client.enable"
TRUSTED = "zookeeper.ssl.truststore.location"
OWN = "zookeeper.ssl.keystore.location"


@dataclass
class TlsEnsemble:
    """A server; ``overrides`` are for brokers that may connect to it."""

    port: int
    overrides: dict[str, str]

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsEnsemble]:
    files = tmp_path_factory.mktemp("certificates")
    authority = Authority(files)
    server = authority.issue("server", "127.0.0.1").in_one_file()
    broker = authority.issue("broker").in_one_file()
    (port,) = free_ports(1)
    lines = [
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={server.certificate}",
        "ssl.keyStore.type=PEM",
        f"ssl.trustStore.location={authority.certificate}",
        "ssl.trustStore.type=PEM",
        "ssl.clientAuth=need",
    ]
    overrides = {ENABLE: "true", TRUSTED: str(authority.certificate), OWN: str(broker.certificate)}
    with ensemble(tmp_path_factory.mktemp("secure") / "data", more=lines):
        yield TlsEnsemble(port, overrides)


def context(overrides: dict[str, str]) -> ssl.SSLContext | None:
    return ssl_context(apply_overrides(BrokerSettings(), overrides))


@pytest.fixture(scope="module")
def refusals(secure: TlsEnsemble, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reasons why clients reach no server. They try at the same time."""
    other = Authority(tmp_path_factory.mktemp("other"), "other").certificate
    attempts = {
        "other authority": (secure.servers, {**secure.overrides, TRUSTED: str(other)}),
        "other name": (f"localhost:{secure.port}", secure.overrides),
        "no certificate": (secure.servers, {ENABLE: "true", TRUSTED: secure.overrides[TRUSTED]}),
    }

    async def refusal(servers: str, overrides: dict[str, str]) -> str:
        with pytest.raises(ZooKeeperUnreachableError) as refused:
            await KazooSession.begin(servers, 10_000, 3, context(overrides))
        return str(refused.value)

    async def trying() -> list[str]:
        return await asyncio.gather(*(refusal(*attempt) for attempt in attempts.values()))

    return dict(zip(attempts, asyncio.run(trying()), strict=True))


def test_brokers_connect_over_tls(secure: TlsEnsemble, tmp_path: Path) -> None:
    with (
        brokers(tmp_path, secure.servers, "/secure", overrides=secure.overrides) as running,
        GroupClient(list(running.values()), "g") as group,
    ):
        joined = group.join_and_sync()
        for _ in range(20):
            assert group.heartbeat(joined) == 0
        running[group.find()[0]].stop()
        assert group.heartbeat(joined) == 0


def test_select_returns_sockets_with_buffered_bytes(tmp_path: Path) -> None:
    """Two responses in one TLS record: no further bytes arrive after the first one was read."""
    authority = Authority(tmp_path)
    issued = authority.issue("server", "127.0.0.1")
    client = context({ENABLE: "true", TRUSTED: str(authority.certificate)})
    assert client is not None
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as threads:
        serving = threads.submit(accept, listening, issued.server())
        handler = KazooTlsHandler(client)
        made = handler.create_connection(listening.getsockname(), "127.0.0.1", PATIENCE_S)
        with made as connection, serving.result() as served:
            served.sendall(b"firstsecond")
            assert handler.select([connection], [], [], PATIENCE_S)[0] == [connection]
            assert connection.recv(5) == b"first"
            assert handler.select([connection], [], [], 0)[0] == [connection]
            assert connection.recv(6) == b"second"
            assert handler.select([connection], [], [], 0)[0] == []


def accept(listening: socket.socket, server: ssl.SSLContext) -> ssl.SSLSocket:
    accepted, _ = listening.accept()
    return server.wrap_socket(accepted, server_side=True)


def test_many_concurrent_responses_are_read(secure: TlsEnsemble) -> None:
    async def playing() -> int:
        session = await KazooSession.begin(
            secure.servers, 60_000, PATIENCE_S, context(secure.overrides)
        )
        try:
            await session.transact([Create("/many", b"x" * 100)])
            async with asyncio.timeout(PATIENCE_S):
                return len(await session.read_all(["/many"] * 3_000))
        finally:
            await session.end()

    assert asyncio.run(playing()) == 3_000


def test_server_of_other_authority_is_refused(
    secure: TlsEnsemble, refusals: dict[str, str]
) -> None:
    said = refusals["other authority"]
    assert f"no ZooKeeper server answers at {secure.servers} over TLS (" in said
    assert "certificate" in said


def test_server_with_other_name_is_refused(refusals: dict[str, str]) -> None:
    assert "certificate is not valid for 'localhost'" in refusals["other name"]


def test_client_without_certificate_is_refused(refusals: dict[str, str]) -> None:
    assert "no ZooKeeper server answers" in refusals["no certificate"]


def test_tls_is_disabled_by_default() -> None:
    assert context({}) is None
    checking = context({ENABLE: "true"})
    assert checking is not None
    assert (checking.verify_mode, checking.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("name", [TRUSTED, OWN])
@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"JKS", "the file does not contain ")],
)
def test_unusable_files_are_reported(
    name: str, content: bytes | None, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.jks"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ZooKeeperTlsError, match=f"{name}={path}: {why}"):
        context({ENABLE: "true", name: str(path)})
    with pytest.raises(ZooKeeperTlsError, match=f"needs {ENABLE}=true"):
        context({name: str(path)})


def test_encrypted_key_is_refused(tmp_path: Path) -> None:
    """And there is no prompt on the terminal."""
    issued = Authority(tmp_path).issue("broker", password="secret").in_one_file()
    with pytest.raises(
        ZooKeeperTlsError,
        match="the file does not contain an unencrypted key and its certificate in PEM format",
    ):
        context({ENABLE: "true", OWN: str(issued.certificate)})


def test_broker_reports_tls_error(tmp_path: Path) -> None:
    overrides = {ENABLE: "true", TRUSTED: "no"}
    broker = ClusterBroker(1, tmp_path / "b", "zookeeper://127.0.0.1:1/p", overrides)
    assert f"{TRUSTED}=no: No such file" in broker.start_refused()
