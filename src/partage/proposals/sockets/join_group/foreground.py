"""Run a coordinator or a member of the designs with JoinGroup in the foreground of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from partage.broker.topics.data_directory import DirectoryLockedError
from partage.client.addresses import parse_bootstrap_servers
from partage.client.cluster import Cluster
from partage.client.consumer import Record
from partage.client.errors import ClientError
from partage.client.options import ClientOptions
from partage.log.errors import DamagedFileError
from partage.model.addresses import Address
from partage.model.topic_partition import TopicPartition
from partage.proposals.join_group.coordinator import JoinGroupCoordinator
from partage.proposals.join_group.frames import ProtocolVersions
from partage.proposals.join_group.member import DesignMember
from partage.proposals.sockets.coordinator_server import CoordinatorServer
from partage.proposals.sockets.foreground import ForegroundError, stop_signal
from partage.proposals.sockets.join_group.codecs import CoordinatorCodec, MemberCodec
from partage.proposals.sockets.join_group.member import JoinGroupMemberShell, TopicMetadataSource
from partage.proposals.sockets.join_group.record_file import RecordFile
from partage.proposals.sockets.record_store import MemoryRecordStore
from partage.proposals.sockets.topic_reader import TopicReader

_LEAVE_TIMEOUT_S: Final = 10.0


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a member.

    Attributes:
        coordinator: The address of the coordinator.
        bootstrap_servers: The brokers with the topics.
        client_options: How to connect to them for metadata.
        reader_options: Options of the consumer that reads the records.
        metadata_refresh_ms: How often the member looks for other partition counts.
        assign_ms: How long the member waits before it assigns.
    """

    coordinator: Address
    bootstrap_servers: str
    client_options: ClientOptions = ClientOptions()
    reader_options: dict[str, Any] = {}
    metadata_refresh_ms: int = 30_000
    assign_ms: int = 0


async def serve_coordinator(
    machine: JoinGroupCoordinator,
    versions: ProtocolVersions,
    design: str,
    listen: Address,
    data_dir: Path | None,
    on_listening: Callable[[str], None],
) -> None:
    """Serve a coordinator until SIGTERM, SIGINT or a fatal error.

    Args:
        machine: The coordinator, without records.
        versions: The requests of the design.
        design: The name of the design.
        listen: The address; port 0 picks a free port.
        data_dir: The directory of its records; in memory if None.
        on_listening: Called with the bound address.

    Raises:
        ForegroundError: It cannot start, or it has failed.
    """
    failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def on_fatal(error: Exception) -> None:
        if not failed.done():
            failed.set_result(error)

    with ExitStack() as stack:
        store: RecordFile | MemoryRecordStore = MemoryRecordStore()
        if data_dir is not None:
            try:
                store = RecordFile(data_dir, design)
            except DirectoryLockedError as error:
                raise ForegroundError(str(error)) from None
            except (DamagedFileError, OSError) as error:
                raise ForegroundError(f"cannot use data directory '{data_dir}': {error}") from None
            stack.callback(store.close)
        for record in store.records:
            machine.apply(record)
        server = CoordinatorServer(machine, lambda: CoordinatorCodec(versions), store, on_fatal)
        try:
            address = await server.listen(*listen)
        except OSError as error:
            raise ForegroundError(f"cannot listen on {listen}: {error}") from None
        stopping = stop_signal()
        on_listening(str(address))
        stopped = asyncio.ensure_future(stopping.wait())
        waited: set[asyncio.Future[Any]] = {stopped, failed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await server.close()
        if failed.done():
            raise ForegroundError(f"the coordinator has failed: {failed.result()}")


async def run_member(
    machine: DesignMember,
    versions: ProtocolVersions,
    options: MemberOptions,
    deliver: Callable[[list[Record]], None],
    on_change: Callable[[frozenset[TopicPartition]], None],
) -> None:
    """Run a member until SIGTERM, SIGINT or a fatal error. After a signal, it leaves the group.

    Args:
        machine: The member.
        versions: The requests of the design.
        options: The environment.
        deliver: Called with each batch of records.
        on_change: Called with all partitions that the member reads, when they change.

    Raises:
        ForegroundError: The member has failed, or the topics cannot be read at the start.
        InvalidOptionError, InvalidSecurityOptionError: ``reader_options`` are invalid.
        OSError: ``deliver`` raised it.
    """
    servers = parse_bootstrap_servers(options.bootstrap_servers)
    async with Cluster(servers, options.client_options) as cluster:
        metadata = TopicMetadataSource(cluster, servers[0])
        try:
            topics = await metadata.fetch()
        except ClientError as error:
            raise ForegroundError(str(error)) from None
        missing = sorted(machine.topics - topics.keys())
        if missing:
            raise ForegroundError(f"no topic {missing[0]!r} in the cluster; create it first")
        shell: JoinGroupMemberShell
        async with TopicReader(
            options.bootstrap_servers,
            deliver,
            on_change=on_change,
            before_delivery=lambda: shell.fire_due_timers(),
            **options.reader_options,
        ) as reader:
            shell = JoinGroupMemberShell(
                machine,
                lambda: MemberCodec(versions),
                reader,
                coordinator=options.coordinator,
                metadata=metadata,
                metadata_refresh_ms=options.metadata_refresh_ms,
                assign_ms=options.assign_ms,
            )
            try:
                await _run_shell(shell, reader)
            finally:
                shell.stop()


async def _run_shell(shell: JoinGroupMemberShell, reader: TopicReader) -> None:
    stopping = stop_signal()
    shell.start()
    closed = asyncio.ensure_future(shell.wait_closed())
    failed = asyncio.ensure_future(reader.wait_failed())
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({closed, failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not closed.done():
            shell.leave()
            await asyncio.wait({closed}, timeout=_LEAVE_TIMEOUT_S)
        if failed.done():
            failed.result()
        if shell.error is not None:
            raise ForegroundError(f"the member has left the group: {shell.error}")
        if closed.done():
            closed.result()
    finally:
        for task in (closed, failed, stopped):
            task.cancel()
