"""Run a broker in the foreground of a process, until a signal or a fatal error ends it.

The command ``partage broker`` and ``python -m partage.broker`` both use this module.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from partage.broker.broker import Broker
from partage.broker.cluster.facade import ClusterJoinError
from partage.broker.cluster.state_address import StateAddress, StateAddressError, parse_state
from partage.broker.coordination.assignor_registry import AssignorRegistry
from partage.broker.foreground_options import ForegroundOptions, SyncMode
from partage.broker.net.server import ListenError, check_address
from partage.broker.overrides import OverrideError, apply_overrides, parse_overrides
from partage.broker.topics.data_directory import DirectoryLock, DirectoryLockedError
from partage.broker.topics.real_disk import RealDisk
from partage.log.disk import Disk
from partage.log.errors import DamagedFileError, DamagedLogError
from partage.log.memory_disk import MemoryDisk
from partage.model.addresses import Address, AddressParseError, is_wildcard, parse_address
from partage.model.arguments import INT32_MAX
from partage.model.settings import BrokerSettings
from partage.wire.records.decoder import DECODER

log = logging.getLogger("partage")


class BrokerOptionError(ValueError):
    """Raised if an option of the broker is invalid, or conflicts with another one."""


class BrokerStartError(Exception):
    """Raised if the broker cannot start or continue; the message names the cause."""


def run_in_foreground(options: ForegroundOptions) -> None:
    """Run a broker until SIGTERM, SIGINT or a fatal error.

    Prints the broker's address on stdout when it accepts connections, and logs to stderr.

    Raises:
        BrokerOptionError: An option is invalid.
        BrokerStartError: The broker cannot start or continue.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        host, port = parse_address(options.listen)
        settings = apply_overrides(BrokerSettings(), parse_overrides(options.override))
        AssignorRegistry(settings.groups.consumer.assignors)  # refuses unknown assignors
        settings = msgspec.structs.replace(settings, is_fsync_enabled=options.sync is SyncMode.DISK)
        reachable = _reachable(host, options.advertised)
        settings, state_address = _placed(settings, options.broker_id, options.state)
        if options.ephemeral and options.state is not None:
            raise StateAddressError(
                "--state cannot be combined with --ephemeral: a broker of a cluster keeps its "
                "records on disk; use --data-dir"
            )
    except (AddressParseError, OverrideError, StateAddressError) as error:
        raise BrokerOptionError(str(error)) from None
    data_dir = options.data_dir
    lock: DirectoryLock | None = None
    disk: Disk
    if options.ephemeral:
        disk = MemoryDisk()
    else:
        try:
            if not data_dir.exists():  # leave none behind if the broker cannot start
                check_address(host, port)
            lock = DirectoryLock(data_dir)
        except ListenError as error:
            raise _listen_refused(options, error) from None
        except DirectoryLockedError as error:
            raise BrokerStartError(str(error)) from None
        except OSError as error:
            raise BrokerStartError(
                f"cannot use data directory '{data_dir}': {error.strerror}"
            ) from None
        disk = RealDisk(data_dir)
    _calm_collector()
    try:
        _run_loop(lambda: serve(disk, settings, host, port, reachable, state_address))
    except ClusterJoinError as error:
        raise BrokerStartError(str(error)) from None
    except DamagedFileError as error:
        raise BrokerStartError(f"data directory '{data_dir}': {error}") from None
    except DamagedLogError as error:
        # The message ends with a repair command, which needs --data-dir.
        raise BrokerStartError(
            f"data directory '{data_dir}': {error} --data-dir {data_dir}"
        ) from None
    except ListenError as error:
        raise _listen_refused(options, error) from None
    except OSError as error:
        raise BrokerStartError(f"cannot use data directory '{data_dir}': {error}") from None
    finally:
        if lock is not None:
            lock.release()


def _listen_refused(options: ForegroundOptions, error: ListenError) -> BrokerStartError:
    return BrokerStartError(
        f"cannot listen on {options.listen}: {error}; choose another address with --listen"
    )


def _reachable(host: str, advertised: str | None) -> Address | None:
    """Return the address that clients connect to; None for the listening address."""
    if advertised is None:
        if is_wildcard(host):
            raise AddressParseError(
                f"--listen {host!r} means all addresses, and clients need one of them; add "
                "--advertised HOST:PORT"
            )
        return None
    address = parse_address(advertised)
    if is_wildcard(address.host) or not address.port:
        raise AddressParseError(
            f"invalid --advertised {advertised!r}: clients cannot connect to it; use HOST:PORT"
        )
    return address


def _placed(
    settings: BrokerSettings, broker_id: int | None, state: str | None
) -> tuple[BrokerSettings, StateAddress | None]:
    """Return the settings with the broker id, and the address of the cluster's state."""
    if broker_id is not None:
        if not 0 <= broker_id <= INT32_MAX:
            raise StateAddressError(
                f"invalid --broker-id {broker_id}: must be from 0 to {INT32_MAX}"
            )
        settings = msgspec.structs.replace(settings, node_id=broker_id)
    if state is None:
        return settings, None
    if broker_id is None:
        raise StateAddressError("--state requires a unique broker id; add --broker-id N")
    return settings, parse_state(state)


def _calm_collector() -> None:
    """Run the garbage collector rarely.

    A broker's short-lived objects are trees without cycles, so reference counting frees them.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()  # the command disables it while it imports


def _run_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


async def serve(
    disk: Disk,
    settings: BrokerSettings,
    host: str,
    port: int,
    advertised: Address | None,
    state: StateAddress | None = None,
) -> None:
    """Run a broker until SIGTERM, SIGINT or a fatal error.

    Prints the broker's address when it accepts connections.

    Args:
        disk: Storage of the broker's files.
        settings: Broker settings.
        host: Host to listen on.
        port: Port to listen on; 0 picks a free port.
        advertised: Address that clients connect to; None means the address that the broker listens
            on.
        state: ZooKeeper address of the cluster's state; None for a single broker.

    Raises:
        Exception: The error that stopped the broker.
    """
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
        log.info("broker stopped during startup")
        return
    log.info("selected record decoder: %s", DECODER)
    print(broker.address, flush=True)
    failed = loop.create_task(broker.wait_failed())
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    await broker.stop()
    stopped.cancel()
    if failed.done():
        raise failed.result()
    failed.cancel()
