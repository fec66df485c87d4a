"""Run a broker or a consumer of the first design in the foreground of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from partage.broker.cluster.cluster_session import ZooKeeperUnreachableError
from partage.client.consumer import Record
from partage.model.addresses import format_address
from partage.model.topic_partition import TopicPartition
from partage.proposals.broker_side.settings import PushConsumerSettings
from partage.proposals.sockets.broker_side.fetchers import Fetchers
from partage.proposals.sockets.broker_side.push_broker import (
    PushBroker,
    PushBrokerIdInUseError,
    PushBrokerOptions,
)
from partage.proposals.sockets.broker_side.push_consumer import PushConsumerShell
from partage.proposals.sockets.foreground import ForegroundError, stop_signal
from partage.store.zookeeper import StoreError


async def serve_broker(options: PushBrokerOptions, on_listening: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM, SIGINT or a fatal error.

    Args:
        options: The options.
        on_listening: Called with the bound address.

    Raises:
        ForegroundError: It cannot start, or it has failed.
    """
    stopped = asyncio.ensure_future(stop_signal().wait())
    starting = asyncio.ensure_future(PushBroker.start(options))
    await asyncio.wait({stopped, starting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
    try:
        broker = await starting
    except asyncio.CancelledError:
        return
    except (ZooKeeperUnreachableError, PushBrokerIdInUseError) as error:
        raise ForegroundError(str(error)) from None
    except StoreError as error:
        raise ForegroundError(
            f"cannot register in ZooKeeper {options.state.servers} below "
            f"{options.state.path!r}: {error}"
        ) from None
    except OSError as error:
        listen = format_address(options.host, options.port)
        raise ForegroundError(f"cannot listen on {listen}: {error.strerror or error}") from None
    on_listening(str(broker.address))
    failed = asyncio.ensure_future(broker.wait_failed())
    waited: set[asyncio.Future[Any]] = {stopped, failed}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    await broker.stop()
    if failed.done():
        raise ForegroundError(f"the broker has failed: {failed.result()}")
    failed.cancel()


async def run_consumer(
    settings: PushConsumerSettings,
    bootstrap_servers: str,
    consumer_options: Mapping[str, Any],
    deliver: Callable[[list[Record]], None],
    on_change: Callable[[frozenset[TopicPartition]], None],
) -> None:
    """Run a consumer until SIGTERM, SIGINT or a fatal error.

    After a signal, it waits for the ping that acknowledges its offsets, at most for its session
    timeout.

    Args:
        settings: The settings.
        bootstrap_servers: The brokers of the records.
        consumer_options: Options of the consumer that reads the records.
        deliver: Called with each batch of records.
        on_change: Called with all partitions that are read, when they change.

    Raises:
        ForegroundError: The consumer has failed.
        ClientError: ``consumer_options`` are invalid.
        OSError: ``deliver`` raised it.
    """
    shell: PushConsumerShell
    async with Fetchers(
        bootstrap_servers,
        deliver,
        reset_to=settings.auto_offset_reset,
        on_out_of_range=lambda partitions: shell.on_out_of_range(partitions),
        on_change=on_change,
        before_delivery=lambda: shell.check_stall(),
        **consumer_options,
    ) as fetchers:
        shell = PushConsumerShell(settings, fetchers)
        try:
            await _run_shell(shell, fetchers, settings.session_timeout_ms / 1000)
        finally:
            shell.stop()


async def _run_shell(shell: PushConsumerShell, fetchers: Fetchers, patience_s: float) -> None:
    stopped = asyncio.ensure_future(stop_signal().wait())
    shell.start()
    closed = asyncio.ensure_future(shell.wait_closed())
    failed = asyncio.ensure_future(fetchers.wait_failed())
    try:
        await asyncio.wait({closed, failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not closed.done():
            shell.leave()
            await asyncio.wait({closed}, timeout=patience_s)
        if failed.done():
            failed.result()
        if shell.error is not None:
            raise ForegroundError(f"the coordinator refused the consumer: {shell.error}")
        if closed.done():
            closed.result()
    finally:
        for task in (closed, failed, stopped):
            task.cancel()
