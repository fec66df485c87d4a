"""Members read the topics of a cluster that accepts TLS only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Condition, Event, Thread

import pytest
from confluent_kafka import Producer

from client.certificate_authority import Authority
from client.scripted_broker import Relay
from partage.broker.broker import Broker
from partage.log.memory_disk import MemoryDisk
from partage.model.settings import BrokerSettings

from .proposal_processes import MemberProcess, ProposalProcess

_PATIENCE_S = 30.0


@asynccontextmanager
async def tls_broker(context: ssl.SSLContext) -> AsyncIterator[str]:
    """Run a broker behind a port with TLS; yield the address of the port."""
    async with Relay("", tls=context) as port:
        broker = await Broker.start(
            MemoryDisk(), BrokerSettings(), host="127.0.0.1", port=0, advertised=port.address
        )
        port.target = f"{broker.address.host}:{broker.address.port}"
        try:
            yield f"{port.address.host}:{port.address.port}"
        finally:
            await broker.stop()


@contextmanager
def running_in_thread(context: ssl.SSLContext) -> Iterator[str]:
    """Run `tls_broker` in a thread."""
    addresses: list[str] = []
    is_up = Event()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def serve() -> None:
        async with tls_broker(context) as address:
            addresses.append(address)
            is_up.set()
            await stopping.wait()

    thread = Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_up.wait(_PATIENCE_S)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("design", ["multi-assignor", "single-assignor"])
def test_member_reads_records_over_tls(design: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with running_in_thread(authority.issue("server", "127.0.0.1").server()) as servers:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "security.protocol": "ssl",
                "ssl.ca.location": str(authority.certificate),
            }
        )
        producer.produce("t", "v")
        assert producer.flush(_PATIENCE_S) == 0
        del producer  # it would connect again while the port closes
        config = tmp_path / "client.properties"
        config.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={authority.certificate}\n"
        )
        changed = Condition()
        listening = ("--listen", "127.0.0.1:0", "--initial-rebalance-delay-ms", 0)
        coordinator = ProposalProcess(design, "coordinator", *listening)
        address = coordinator.stdout.readline().strip()
        member = MemberProcess(
            changed,
            *(design, "member", "t", "--json", "--group", "g", "--coordinator", address),
            *("--bootstrap-server", servers, "--command-config", config),
        )
        try:
            with changed:
                assert changed.wait_for(lambda: member.values, _PATIENCE_S), member.errors
            assert member.values == ["v"]
        finally:
            member.end()
            coordinator.end()
            coordinator.stdout.close()
            coordinator.stderr.close()
