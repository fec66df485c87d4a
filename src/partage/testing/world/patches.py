"""Replaces the machine for code in a simulated world: time, randomness, and refusals.

The functions of `time`, `random`, `os.urandom` and `uuid` are replaced while a world runs, also in
modules that imported them by name. Code that would leave the world gets a `NotSimulatedError`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from random import Random
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import Any, Final, NoReturn

from partage.client.security.tls_probe import speaks_tls
from partage.testing.world.errors import NotSimulatedError
from partage.testing.world.garbage import WORLD_GARBAGE
from partage.testing.world.ordered_sets import ordered_sets
from partage.testing.world.process_clocks import ProcessClocks
from partage.testing.world.virtual_loop import VirtualLoop

#: The wall clock at the start of every world, in seconds: 2026-01-01T00:00:00Z.
START_WALL_S: Final = 1_767_225_600

#: The file name of the functions that import modules.
_IMPORT_FILE: Final = "<frozen importlib._bootstrap>"
#: Clocks without parameters.
_CLOCKS: Final = frozenset(
    {
        time.monotonic,
        time.monotonic_ns,
        time.perf_counter,
        time.perf_counter_ns,
        time.time,
        time.time_ns,
    }
)
#: The types of functions that are replaced.
_PATCHABLE: Final = frozenset({BuiltinFunctionType, FunctionType, MethodType})
#: Packages whose modules keep the machine's time: they measure the test run itself.
_UNPATCHED: Final = ("_pytest", "pytest", "pluggy", "xdist", "execnet", "hypothesis")


@contextmanager
def simulated_environment(
    loop: VirtualLoop, rng: Random, process_clocks: ProcessClocks
) -> Iterator[None]:
    """Replace the machine's time and randomness, and refuse sockets and threads.

    Other threads of the test run keep the machine's functions. Only the loop collects garbage.
    """
    get_ident = threading.get_ident
    thread_id = get_ident()

    def in_world(original: Callable[..., Any], replacement: Callable[..., Any]) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if get_ident() == thread_id:
                return replacement(*args, **options)
            return original(*args, **options)

        return call

    def clock_in_world(original: Callable[[], Any], replacement: Callable[[], Any]) -> Any:
        """Do the same for a function without parameters, in less time."""

        def call() -> Any:
            return replacement() if get_ident() == thread_id else original()

        return call

    replacements: dict[Any, Callable[..., Any]] = {
        original: (clock_in_world if original in _CLOCKS else in_world)(original, replacement)
        for original, replacement in _replacements(loop, rng, process_clocks).items()
    }
    methods = [
        (owner, name, getattr(owner, name), replacement)
        for owner, name, replacement in [
            *_refused_methods(),
            *_compiled_clocks(),
            *_ordered_batches(),
            *_needless_timeouts(),
        ]
    ]
    state = random.getstate()
    random.seed(rng.getrandbits(64))
    with WORLD_GARBAGE.frozen():
        _replace(replacements)
        for owner, name, original, replacement in methods:
            setattr(owner, name, in_world(original, replacement))
        try:
            with ordered_sets():
                yield
        finally:
            for owner, name, original, _ in methods:
                setattr(owner, name, original)
            # Also in modules that were imported in the world.
            _replace({call: original for original, call in replacements.items()})
            random.setstate(state)


def _refused_methods() -> list[tuple[Any, str, Callable[..., Any]]]:
    thread = _refusal(
        "a thread", "use asyncio.to_thread(), or partage.Consumer instead of partage.sync"
    )
    wait = _refusal(
        "waiting for another thread", "await something instead, for example partage.Consumer"
    )
    return [
        (threading.Thread, "start", thread),
        (threading.Condition, "wait", wait),
        (socket.socket, "connect", _refusal("a real connection", "connect to a host of the world")),
        (socket.socket, "bind", _refusal("a real listener", "use asyncio.start_server()")),
    ]


def _compiled_clocks() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return replacements for compiled code that reads the machine's clock: aiokafka's batches."""
    if find_spec("aiokafka") is None:
        return []
    accumulator = import_module("aiokafka.producer.message_accumulator")
    append = accumulator.BatchBuilder.append

    def append_at_world_time(builder: Any, *, timestamp: int | None, **fields: Any) -> Any:
        at_ms = int(time.time() * 1000) if timestamp is None else timestamp
        return append(builder, timestamp=at_ms, **fields)

    return [(accumulator.BatchBuilder, "append", append_at_world_time)]


def _ordered_batches() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return a hash by order for aiokafka's batches, of which it makes sets."""
    if find_spec("aiokafka") is None:
        return []
    batch = import_module("aiokafka.producer.message_accumulator").MessageBatch
    serials = itertools.count(1)

    def hash_by_order(self: Any) -> int:
        serial: int | None = getattr(self, "_serial_in_world", None)
        if serial is None:
            serial = self._serial_in_world = next(serials)
        return serial

    return [(batch, "__hash__", hash_by_order)]


def _needless_timeouts() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return replacements for code that wakes up regularly to do nothing: aiokafka's fetcher.

    It plans its fetches when one of them ends, and at other events. It also plans every 200 ms
    (`consumer_timeout_ms`), without any effect if all partitions are being fetched or are paused.
    """
    if find_spec("aiokafka") is None:
        return []
    fetcher = import_module("aiokafka.consumer.fetcher").Fetcher
    plan = getattr(fetcher, "_get_actions_per_node", None)
    if plan is None:
        return []

    def plan_without_timeout(self: Any, assignment: Any) -> Any:
        planned = plan(self, assignment)
        fetches, resets, timeout_s, has_no_leader, *rest = planned
        is_busy = fetches or resets or self._in_flight
        if (
            is_busy
            and not has_no_leader
            and not self._records
            and timeout_s == self._fetcher_timeout
        ):
            return fetches, resets, None, has_no_leader, *rest
        return planned

    return [(fetcher, plan.__name__, plan_without_timeout)]


def _replace(replacements: dict[Any, Callable[..., Any]]) -> None:
    """Replace functions in all modules that have them as attributes."""
    for module in _modules():
        for name, value in list(vars(module).items()):
            if type(value) in _PATCHABLE and value in replacements:
                setattr(module, name, replacements[value])


def _modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if not name.startswith(_UNPATCHED)]


def _replacements(
    loop: VirtualLoop, rng: Random, process_clocks: ProcessClocks
) -> dict[Any, Callable[..., Any]]:
    monotonic = loop.time

    def monotonic_ns() -> int:
        return round(loop.time() * 1e9)

    def wall() -> float:
        return START_WALL_S + loop.elapsed_s + process_clocks.ahead_s()

    def wall_ns() -> int:
        elapsed_s = loop.elapsed_s + process_clocks.ahead_s()
        return START_WALL_S * 1_000_000_000 + round(elapsed_s * 1e9)

    def clock_s(clock: int) -> float:
        return wall() if clock == time.CLOCK_REALTIME else loop.time()

    def clock_ns(clock: int) -> int:
        return wall_ns() if clock == time.CLOCK_REALTIME else monotonic_ns()

    async def speaks_no_tls(address: object) -> bool:
        return False  # as no listener of a world

    replacements: dict[Any, Callable[..., Any]] = {
        **_chained_futures(),
        speaks_tls: speaks_no_tls,
        time.monotonic: monotonic,
        time.monotonic_ns: monotonic_ns,
        time.perf_counter: monotonic,
        time.perf_counter_ns: monotonic_ns,
        time.time: wall,
        time.time_ns: wall_ns,
        time.sleep: _refusal("time.sleep()", "it would stop the whole world: use asyncio.sleep()"),
        os.urandom: _draw_bytes(rng),
    }
    if hasattr(time, "clock_gettime"):  # not on Windows
        replacements |= {time.clock_gettime: clock_s, time.clock_gettime_ns: clock_ns}
    return replacements


def _chained_futures() -> dict[Any, Callable[..., Any]]:
    """Return a replacement for the function that copies results of threads to asyncio's futures.

    Such a result takes a turn of the loop. From Python 3.14 on, asyncio saves this turn if the
    result is set in the thread of the loop, but only a world has a client in that thread.
    """
    chain = getattr(asyncio.futures, "_chain_future", None)
    if chain is None:
        return {}

    def chain_in_world(source: Any, destination: Any) -> None:
        if not isinstance(source, Future) or not isinstance(destination, asyncio.Future):
            chain(source, destination)
            return
        loop = destination.get_loop()

        def copy() -> None:
            if destination.done():
                return
            if source.cancelled():
                destination.cancel()
            elif (error := source.exception()) is not None:
                destination.set_exception(error)
            else:
                destination.set_result(source.result())

        def on_result(_: Future[Any]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(copy)

        destination.add_done_callback(lambda done: source.cancel() if done.cancelled() else None)
        source.add_done_callback(on_result)

    return {chain: chain_in_world}


def _draw_bytes(rng: Random) -> Callable[[int], bytes]:
    """Return the function that replaces `os.urandom`.

    Imports get other bytes: only the first world of a test run imports a module, and all worlds of
    a seed have the same story.
    """
    import_rng = Random(0)

    def draw(count: int) -> bytes:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == _IMPORT_FILE:
                return import_rng.randbytes(count)
            frame = frame.f_back
        return rng.randbytes(count)

    return draw


def _refusal(what: str, advice: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotSimulatedError(what, advice)

    return refuse
