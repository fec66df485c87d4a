"""Scenarios of power failures, and checks of the state after recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import NamedTuple

from partage.lab.environment.disk import CrashDisk, PowerLossError
from partage.log.catalogue.topic_config import LogConfig
from partage.wire.records.columns import RecordTuple

from .partition_host import NOW_MS, Host, batch

PRODUCER = 7


class CrashScenario(NamedTuple):
    """An initial state, an action during which the power fails, and the expected result."""

    prepare: Callable[[], Host]
    action: Callable[[Host], object]
    start: range  # possible log start offsets
    end: range  # possible log end offsets


class State(NamedTuple):
    start: int
    end: int
    records: list[RecordTuple]


def sequenced(count: int, start: int = 0) -> list[bytes]:
    """Return batches of one record each from an idempotent producer; keys repeat."""
    return [
        batch((b"key%d" % (n % 3), b"%d" % n * 30), at_ms=NOW_MS + n, producer=(PRODUCER, 0, n))
        for n in range(start, start + count)
    ]


def host_with(durable: int, pending: int = 0, **configs: object) -> Callable[[], Host]:
    def prepare() -> Host:
        host = Host(CrashDisk(), segment_bytes=600, index_interval_bytes=100, **configs)
        host.write(*sequenced(durable))
        for payload in sequenced(pending, durable):
            host.append(payload)
        return host

    return prepare


def an_old_host() -> Host:
    host = host_with(18)()
    host.close()
    host.open()
    return host


def a_host_whose_segments_will_be_joined() -> Host:
    host = host_with(14, cleanup_policy="compact")()
    host.configs["segment.bytes"] = "2000"
    host.log.config = LogConfig.from_configs(host.configs)
    return host


def everything_expires(host: Host) -> None:
    host.now_ms += 10_000
    host.perform(host.log.apply_retention(host.now_ms))


def half_expires(host: Host) -> None:
    host.log.log_start_offset = 10
    host.perform(host.log.apply_retention(host.now_ms))


def append_and_flush(host: Host) -> None:
    for payload in sequenced(10, host.log.end_offset):
        host.append(payload)
    host.flush()


SCENARIOS = {
    "a new partition's first append": CrashScenario(
        host_with(0, 3), Host.flush, range(1), range(4)
    ),
    "a roll": CrashScenario(host_with(3, 9), Host.flush, range(1), range(3, 13)),
    "a close": CrashScenario(host_with(12), Host.close, range(1), range(12, 13)),
    "appending after a clean start": CrashScenario(
        an_old_host, append_and_flush, range(1), range(18, 29)
    ),
    "retention of everything": CrashScenario(
        host_with(12, retention_ms=1000), everything_expires, range(13), range(12, 13)
    ),
    "retention of a part": CrashScenario(host_with(20), half_expires, range(11), range(20, 21)),
    "deleting records": CrashScenario(
        host_with(12),
        lambda host: host.perform(host.log.delete_records(5)),
        range(6),
        range(12, 13),
    ),
    "a compaction that joins segments": CrashScenario(
        a_host_whose_segments_will_be_joined, Host.compact, range(1), range(14, 15)
    ),
    "a compaction": CrashScenario(
        host_with(14, cleanup_policy="compact"), Host.compact, range(1), range(14, 15)
    ),
}


def crashed_at(story: CrashScenario, operation: int, rng: Random) -> tuple[Host, bool]:
    """Run the scenario with a power failure before an operation, or without one if it has fewer."""
    host = story.prepare()
    assert isinstance(host.disk, CrashDisk)
    host.disk.crash_after = operation
    try:
        story.action(host)
        ended = True
    except PowerLossError:
        ended = False
    host.disk.crash(rng)
    return host, ended


def state_of(host: Host) -> State:
    return State(host.log.log_start_offset, host.log.end_offset, host.records())


def crashes(story: CrashScenario, seed: int) -> Iterator[tuple[Host, bool]]:
    """Yield the scenario with a power failure before each operation, and after all of them."""
    operation, ended = 0, False
    while not ended:
        host, ended = crashed_at(story, operation, Random(seed * 1000 + operation))
        operation += 1
        yield host, ended


def check_recovery(name: str, host: Host, ended: bool) -> None:
    """Start after the power failure of a scenario and check the state."""
    host.open()
    state = state_of(host)
    check(SCENARIOS[name], state, ended)
    check_times(host, state)
    if "compaction" not in name:
        assert [record[0] for record in state.records] == list(range(state.start, state.end))
    append_and_check(host, state.end)


def check(story: CrashScenario, state: State, ended: bool) -> None:
    assert state.start in story.start
    assert state.end in story.end
    if ended:
        assert (state.start, state.end) == (story.start[-1], story.end[-1])
    for offset, time_ms, key, value, _ in state.records:
        assert time_ms == NOW_MS + offset
        assert (key, value) == (b"key%d" % (offset % 3), b"%d" % offset * 30)
    found = [record[0] for record in state.records]
    assert found == sorted(set(found))
    latest = set(range(max(state.start, state.end - 3), state.end))
    assert latest <= set(found) <= set(range(state.start, state.end))


def check_times(host: Host, state: State) -> None:
    for (offset, *_), (after, time_ms, *_) in pairwise(state.records):
        assert host.log.timestamp_lookup(NOW_MS + offset + 1)() == (after, time_ms)
    if state.records:
        assert host.log.timestamp_lookup(None)() == state.records[-1][:2]


def append_and_check(host: Host, end: int) -> None:
    """Let the producer repeat batches without a known result, and continue."""
    for payload, offset in zip(sequenced(3, end - 1), range(end - 1, end + 2), strict=True):
        if offset >= 0:
            assert host.append(payload).base_offset == offset
    host.flush()
