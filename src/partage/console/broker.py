"""``partage broker``: a broker in the foreground."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from partage.broker.broker import Broker, CannotListen
from partage.broker.cluster.address import BadState, StateAddress, parse_state
from partage.broker.cluster.joining import CannotJoin
from partage.broker.data_directory import DirectoryHeld, DirectoryLock
from partage.broker.disk import RealDisk
from partage.broker.overrides import BadOverride, with_overrides
from partage.console.addresses import BadAddress, format_address, is_everywhere, parse_address
from partage.console.failure import Failure, misused
from partage.console.options import pairs
from partage.log.damage import DamagedFile, DamagedLog
from partage.log.disk import Disk
from partage.log.memory import MemoryDisk
from partage.model.settings import INT32_MAX, BrokerSettings
from partage.wire.records.decode import DECODER

log = logging.getLogger("partage")


class SyncMode(StrEnum):
    """When a write counts as done."""

    DISK = "disk"
    OS = "os"


def run(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 picks a free one.")
    ] = "127.0.0.1:9092",
    data_dir: Annotated[Path, typer.Option(help="Where topics and groups are kept.")] = Path(
        "partage-data"
    ),
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep everything in memory; for tests.")
    ] = False,
    sync: Annotated[
        SyncMode,
        typer.Option(
            help="When a write is acknowledged: once it is on the disk, or, as Kafka does by "
            "default, once the operating system has it."
        ),
    ] = SyncMode.DISK,
    override: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A broker setting by Kafka's name, such as group.initial.rebalance.delay.ms=0; "
            "may be given several times.",
        ),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The address that clients are told to use."),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option(metavar="N", help="This broker's id, among several with one ZooKeeper."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="zookeeper://HOST:PORT/PATH",
            help="Be one of several brokers: topics and groups are agreed on here.",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every detail.")] = False,
) -> None:
    """Run a broker that any Kafka client can use. Ctrl-C or SIGTERM ends it cleanly."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        host, port = parse_address(listen)
        settings = with_overrides(BrokerSettings(), pairs(override or [], "--override"))
        settings = msgspec.structs.replace(settings, syncs=sync is SyncMode.DISK)
        reachable = _reachable(host, advertised)
        settings, state_address = _placed(settings, broker_id, state)
        if ephemeral and state is not None:
            raise BadState(
                "one of several brokers keeps its records on a disk: --state cannot be combined "
                "with --ephemeral; give it a --data-dir"
            )
    except (BadAddress, BadOverride, BadState) as error:
        raise misused(str(error)) from None
    lock: DirectoryLock | None = None
    disk: Disk
    if ephemeral:
        disk = MemoryDisk()
    else:
        try:
            lock = DirectoryLock(data_dir)
        except DirectoryHeld as error:
            raise Failure(str(error)) from None
        except OSError as error:
            raise Failure(f"cannot use {data_dir} for data: {error.strerror}") from None
        disk = RealDisk(data_dir)
    _calm_collector()
    try:
        _run_loop(serve(disk, settings, host, port, reachable, state_address))
    except CannotJoin as error:
        raise Failure(str(error)) from None
    except DamagedFile as error:
        raise Failure(f"in {data_dir}: {error}") from None
    except DamagedLog as error:  # ends with a command, which has to find the directory
        raise Failure(f"in {data_dir}: {error} --data-dir {data_dir}") from None
    except CannotListen as error:
        raise Failure(f"cannot serve {listen}: {error}") from None
    except OSError as error:
        raise Failure(f"cannot use {data_dir} for data: {error}") from None
    finally:
        if lock is not None:
            lock.release()


def _reachable(host: str, advertised: str | None) -> tuple[str, int] | None:
    """The address that clients are told, None for the one where the broker listens."""
    if advertised is None:
        if is_everywhere(host):
            raise BadAddress(
                "listening on all addresses, clients have to be told one of them: add "
                "--advertised HOST:PORT"
            )
        return None
    address = parse_address(advertised)
    if is_everywhere(address[0]) or not address[1]:
        raise BadAddress(f"clients cannot connect to {advertised!r}; --advertised wants HOST:PORT")
    return address


def _placed(
    settings: BrokerSettings, broker_id: int | None, state: str | None
) -> tuple[BrokerSettings, StateAddress | None]:
    """The settings with the broker's id, and where the state of its cluster is."""
    if broker_id is not None:
        if not 0 <= broker_id <= INT32_MAX:
            raise BadState(f"--broker-id {broker_id}: must be from 0 to {INT32_MAX}")
        settings = msgspec.structs.replace(settings, node_id=broker_id)
    if state is None:
        return settings, None
    if broker_id is None:
        raise BadState("with --state each broker needs an id of its own: add --broker-id N")
    return settings, parse_state(state)


def _calm_collector() -> None:
    """Look for garbage seldom: what a broker makes by the thousand are trees, freed by counting."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def serve(
    disk: Disk,
    settings: BrokerSettings,
    host: str,
    port: int,
    advertised: tuple[str, int] | None,
    state: StateAddress | None = None,
) -> None:
    """Start a broker, print its address, and run it until a signal comes or it fails."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stopped = loop.create_task(stopping.wait())
    starting = loop.create_task(
        Broker.start(disk, settings, host=host, port=port, advertised=advertised, state=state)
    )
    await asyncio.wait({stopped, starting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
    try:
        broker = await starting
    except asyncio.CancelledError:
        log.info("ended before it was started")
        return
    log.info("the %s record decoder is in use", DECODER)
    print(format_address(*broker.address), flush=True)
    failed = loop.create_task(broker.failed())
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    await broker.stop()
    stopped.cancel()
    if failed.done():
        raise failed.result()
    failed.cancel()
