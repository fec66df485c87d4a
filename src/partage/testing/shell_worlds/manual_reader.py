"""A reader process without a subscription: it assigns partitions to itself.

If it has a group, it uses it for its offsets only. Then it sometimes gives a partition up, and
takes it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any, Final

from partage.client.consumer.consumer import Consumer
from partage.client.errors import ClientError
from partage.model.topic_partition import TopicPartition
from partage.testing.shell_worlds.delivery_rules import DeliveryRules, ReaderRun
from partage.testing.world.virtual_loop import VirtualLoop
from partage.testing.world.world import PartageWorld

MANUAL_GROUP: Final = "manual"
_CHANGE_SHARE: Final = 0.1
_COMMIT_SHARE: Final = 0.3
_WORK_S: Final = 0.1
_FETCH_WAIT_MS: Final = 500
_PREEMPTED_SHARE: Final = 0.5
#: The client handles an event, and the task that it wakes runs.
_CLIENT_TURNS: Final = 3
#: No member of a group: it has no session.
_SESSION_S: Final = float("inf")


class ManualReader:
    """A process that reads partitions that it has assigned to itself.

    Args:
        name: The name of the process.
        partitions: The partitions.
        rules: Told about assignments, records and commits.
        world: The world.
        rng: Draws its actions.
        has_group: True if it commits its positions in a group, and changes its assignment.
    """

    def __init__(
        self,
        name: str,
        partitions: list[TopicPartition],
        rules: DeliveryRules,
        world: PartageWorld,
        rng: Random,
        *,
        has_group: bool,
    ) -> None:
        self._has_group = has_group
        self.name = name
        self._partitions = partitions
        self._rules = rules
        self._world = world
        self._rng = rng
        self.is_stopped = False
        #: True after all faults: it keeps all partitions.
        self.is_calm = False

    async def main(self) -> None:
        """Read until ``is_stopped`` is True."""
        turn_s = _WORK_S + _FETCH_WAIT_MS / 1000
        run = self._rules.start(self.name, MANUAL_GROUP, _SESSION_S, turn_s)
        consumer = Consumer(
            self._world.bootstrap_servers,
            group_id=MANUAL_GROUP if self._has_group else None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
        self._assign(consumer, run, self._partitions, is_preempted=True)
        while not self.is_stopped:
            try:
                await self._take_turn(consumer, run)
            except ClientError:
                self._rules.on_failure(run)
            await asyncio.sleep(_WORK_S)
        await consumer.close()

    async def _take_turn(self, consumer: Consumer, run: ReaderRun) -> None:
        for record in await consumer.poll(0):
            self._rules.on_record(run, record)
            self._world.processed(record, group=MANUAL_GROUP)
        if not self._has_group:
            return
        if self._rng.random() < _COMMIT_SHARE or self.is_calm:
            await self._commit(consumer, run)
        if len(run.owned) < len(self._partitions):
            is_preempted = self._rng.random() < _PREEMPTED_SHARE
            self._assign(consumer, run, self._partitions, is_preempted=is_preempted)
        elif not self.is_calm and len(self._partitions) > 1 and self._rng.random() < _CHANGE_SHARE:
            await self._commit(consumer, run)
            left = self._rng.choice(self._partitions)
            self._assign(consumer, run, [each for each in self._partitions if each != left])

    async def _commit(self, consumer: Consumer, run: ReaderRun) -> None:
        offsets = {p: each.next_offset for p, each in run.owned.items() if each.next_offset}
        if offsets:
            await consumer.commit(offsets)
            self._rules.on_committed(run, offsets)

    def _assign(
        self,
        consumer: Consumer,
        run: ReaderRun,
        partitions: list[TopicPartition],
        *,
        is_preempted: bool = False,
    ) -> None:
        """Replace the assignment; partitions that stay keep their positions."""
        before = set(run.owned)
        with _client_first() if is_preempted else nullcontext():
            consumer.assign(partitions)
        self._rules.on_given_up(run, "revoked", before - set(partitions))
        self._rules.on_assigned(run, [each for each in partitions if each not in before])


@contextmanager
def _client_first() -> Generator[None]:
    """Let the thread of the client run whenever a call of the user wakes it.

    In a world, both are on one loop. Without this, the client continues after the whole call only.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    schedule = loop.call_soon_threadsafe

    def run_client(*arguments: Any, **options: Any) -> asyncio.Handle:
        handle = schedule(*arguments, **options)
        set_schedule(schedule)  # the other processes of the world are not preempted
        for _ in range(_CLIENT_TURNS):
            loop.run_turn()
        set_schedule(run_client)
        return handle

    def set_schedule(function: Any) -> None:
        # Only this loop is replaced, and only until the call of the user ends.
        loop.call_soon_threadsafe = function  # type: ignore[method-assign]

    set_schedule(run_client)
    try:
        yield
    finally:
        set_schedule(schedule)
