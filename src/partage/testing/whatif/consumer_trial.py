"""Trials whose members run a user's code, and the measurement of its speed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.lab.whatif.trial import ProgressCallback, Trial, TrialResult, measure_trial
from partage.model.topic_partition import TopicPartition
from partage.testing.whatif.consumer_function import ConsumerCodeError, ConsumerFunction
from partage.testing.whatif.consumer_group_world import ConsumerGroupWorld, broker_settings
from partage.testing.whatif.record_writer import mean_bytes
from partage.testing.world.errors import NotSimulatedError, StalledWorldError
from partage.testing.world.rules import RULES
from partage.testing.world.world import PartageWorld

T = TypeVar("T")

_SEED: Final = 1
#: Records and bytes that the busiest member may read while its speed is measured.
_PROBE_RECORDS: Final = 20_000
_PROBE_BYTES: Final = 50_000_000
_PROBE_MAX_MS: Final = 600_000
_PROBE_POLL_MS: Final = 100
#: The speed is known after this time and number of records, between two of at least three commits.
_PROBE_MIN_MS: Final = 10_000
_PROBE_MIN_RECORDS: Final = 10
_PROBE_MIN_COMMITS: Final = 3


class ConsumerProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a measurement of the user's code.

    Attributes:
        speed: the records per second that a member processes; None if it is not measurable.
        has_committed: True if the code has committed an offset. If it has, and ``speed`` is None,
            it processes the records without any virtual time.
        has_consumer_protocol: True if the code joins with the consumer protocol (KIP-848).
    """

    speed: float | None
    has_committed: bool
    has_consumer_protocol: bool = False


def run_consumer_trial(
    trial: Trial, on_progress: ProgressCallback = lambda share: None
) -> TrialResult:
    """Run one trial whose members run the code ``trial.consumer``.

    Args:
        trial: the group, event, code and assignor.
        on_progress: called with the progress, from 0 to 1.

    Raises:
        ConsumerChoiceError: there is no such code.
        ConsumerCodeError: the code failed, or is not a member of the group.
    """

    def work(copy: ConsumerGroupWorld) -> TrialResult:
        copy.write_lag(trial.group.partitions)
        copy.open()
        assignor, session_timeout_ms = trial.assignor or copy.protocol, copy.session_timeout_ms
        result = measure_trial(copy, trial, on_progress)
        return msgspec.structs.replace(
            result, assignor=assignor, session_timeout_ms=session_timeout_ms
        )

    return _run(trial, work, is_written=True)


def probe_consumer(trial: Trial) -> ConsumerProbe:
    """Let the busiest member of a group read a backlog, and measure its speed by its commits.

    Args:
        trial: the group, code and assignor; its event does not matter.

    Raises:
        ConsumerChoiceError: there is no such code.
        ConsumerCodeError: the code failed, or is not a member of the group.
    """
    busiest = max(trial.group.members, key=lambda member: len(member.assigned))
    total = min(_PROBE_RECORDS, int(_PROBE_BYTES / mean_bytes(trial.samples)))
    share = max(1, total // max(1, len(busiest.assigned)))

    def work(copy: ConsumerGroupWorld) -> ConsumerProbe:
        assert copy.writer is not None, "the group is prepared"
        for place in busiest.assigned:
            copy.writer.write(TopicPartition(*place), share)
        copy.open()
        probe = _measure_speed(copy, list(busiest.assigned), share * len(busiest.assigned))
        has_consumer_protocol = isinstance(copy.found_group, ConsumerGroup)
        return msgspec.structs.replace(probe, has_consumer_protocol=has_consumer_protocol)

    return _run(trial, work, is_written=False)


def _measure_speed(
    copy: ConsumerGroupWorld, places: list[TopicPartition], total: int
) -> ConsumerProbe:
    points: list[tuple[int, int]] = []
    end_ms = copy.now_ms + _PROBE_MAX_MS

    def sum_committed() -> int:
        committed = copy.committed()
        return sum(committed.get(place, 0) for place in places)

    last = sum_committed()
    while places and copy.now_ms < end_ms and last < total:
        copy.run(_PROBE_POLL_MS)
        read = sum_committed()
        if read != last:
            last = read
            points.append((copy.now_ms, read))
        if len(points) >= _PROBE_MIN_COMMITS:
            (from_ms, before), (to_ms, after) = points[0], points[-1]
            if to_ms - from_ms >= _PROBE_MIN_MS and after - before >= _PROBE_MIN_RECORDS:
                break
    known = [point for point in points if point[1] < total]  # after the end, the code only waits
    if len(known) < 2:
        return ConsumerProbe(speed=None, has_committed=last > 0)
    (from_ms, before), (to_ms, after) = known[0], known[-1]
    return ConsumerProbe(speed=(after - before) * 1000 / (to_ms - from_ms), has_committed=True)


def _run(trial: Trial, work: Callable[[ConsumerGroupWorld], T], *, is_written: bool) -> T:
    """Run a function with a copy of the group in a world, and return its result."""
    assert trial.consumer is not None, "the trial has code"
    function = ConsumerFunction(trial.consumer)
    results: list[T] = []
    # What the code prints must not be in the output of a command.
    with TemporaryDirectory() as directory, redirect_stdout(sys.stderr), _without_librdkafka():
        world = PartageWorld(_SEED, Path(directory), broker_settings(trial))
        world.allow(*RULES)
        copy = ConsumerGroupWorld(world, trial, function)

        async def test() -> None:
            await copy.prepare()
            assert copy.writer is not None, "the group is prepared"
            loop: Any = asyncio.get_running_loop()
            writer = loop.create_task(copy.writer.run()) if is_written else None
            results.append(await loop.run_in_executor(None, work, copy))
            if writer is not None:
                writer.cancel()
            for member in copy.live_processes:
                member.crash(silently=False)

        try:
            world.run(test)
        except StalledWorldError as error:
            raise ConsumerCodeError(f"{trial.consumer} cannot be simulated: {error}") from error
    return results[0]


@contextmanager
def _without_librdkafka() -> Iterator[None]:
    """Refuse consumers of confluent-kafka, whose threads and blocking calls are not simulated.

    A call that blocks the loop would never end.
    """
    if find_spec("confluent_kafka") is None:
        yield
        return
    consumer = import_module("confluent_kafka.cimpl").Consumer

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise NotSimulatedError(
            "a consumer of confluent-kafka", "use partage.Consumer or aiokafka's consumer"
        )

    found = [
        (module, name, value)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if isinstance(value, type) and issubclass(value, consumer)
    ]
    for module, name, _ in found:
        setattr(module, name, refuse)
    try:
        yield
    finally:
        for module, name, value in found:
            setattr(module, name, value)
