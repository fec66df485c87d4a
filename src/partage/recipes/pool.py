"""A pool of workers that share units of work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, Unpack

import msgspec

from partage.client.addresses import BootstrapServers
from partage.client.config import DynamicMemberConfig
from partage.client.group.driver import now_ms
from partage.client.group.errors import NotAMemberError
from partage.client.group.membership_protocol import (
    GenerationMembers,
    MemberAssignment,
    MembershipListener,
)
from partage.client.membership import Membership
from partage.model.arguments import (
    InvalidArgumentError,
    check_function,
    check_int,
    check_text,
)
from partage.recipes.connectors import Connector, connector_name, split_units
from partage.recipes.lease_guard import (
    cancel_and_wait,
    remaining_lease_ms,
    stop_margin_ms,
    wait_lease_expired,
    wait_lease_valid,
)
from partage.recipes.task_placement import PlacementMemory
from partage.recipes.unit_assignor import PoolSnapshot, PoolWorker, assign_units

log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "partage-pool"

Work = Callable[[str], Awaitable[object]]
Units = Iterable[str | Connector] | Callable[[], Iterable[str | Connector]]


class _WorkerMetadata(msgspec.Struct, frozen=True):
    """A worker's metadata."""

    name: str
    owned: list[str] = []
    view: PoolSnapshot = PoolSnapshot()


class _WorkerState(msgspec.Struct, frozen=True):
    """A worker's state, as the leader assigned it."""

    units: list[str]
    moving: list[str]
    view: PoolSnapshot
    again_ms: int | None
    configs: dict[str, dict[str, str]] = {}  # of the connectors whose units it has


class WorkerPool:
    """One worker of a pool; on asyncio, a context manager.

    ``work`` runs for each unit that is assigned to this worker. It is cancelled when the unit moves
    away, and starts on another worker only after it has stopped here. A unit whose work returns or
    raises is not restarted::

        async with WorkerPool("localhost:9092", "crawlers", sites, crawl, name=host):
            ...

    Args:
        units: The names of all units and the connectors, or a function that returns them. The
            leader's units count; `refresh` requests them again.
        work: A coroutine function that takes the name of a unit.
        name: Identifies the worker after a restart, so that it gets its units back.
        rebalance_delay_ms: Time for which the units of a lost worker wait for its return, as Kafka
            Connect's ``scheduled.rebalance.max.delay.ms``.
        stop_ms: Time that the work gets to stop, see `LeaderElection`.
        options: Options of `partage.Membership`, except ``group_instance_id``.

    Raises:
        InvalidArgumentError: An argument is invalid, ``stop_ms`` leaves no time in a session to
            work, two connectors have one name, or a unit has the name of a connector. If a function
            returns invalid units, the members get `AssignmentFailedError` instead.
        ClientError: As `Membership`.
    """

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        units: Units,
        work: Work,
        *,
        name: str,
        rebalance_delay_ms: int = 300_000,
        stop_ms: int | None = None,
        **options: Unpack[DynamicMemberConfig],
    ) -> None:
        if "group_instance_id" in options:
            raise InvalidArgumentError(
                "WorkerPool does not support group_instance_id: workers are identified by name"
            )
        check_text("name", name)
        check_function("work", work, "the name of a unit")
        self._units = units if callable(units) else _constant(units)
        self._work = work
        self._name = name
        self._delay_ms = check_int("rebalance_delay_ms", rebalance_delay_ms, unit="ms")
        self._running: dict[str, asyncio.Task[object]] = {}
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._placements = PlacementMemory()  # of the strategy functions, while this worker leads
        self._view = PoolSnapshot()
        self._seen_ms = 0  # the time of the last snapshot
        self._rejoin_task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._membership = Membership(
            bootstrap_servers,
            group_id,
            PROTOCOL_TYPE,
            self._metadata(),
            assign=self._assign,
            listener=_Listener(self),
            **options,
        )
        self._membership._name_in_warning = "WorkerPool"
        self._margin_ms = stop_margin_ms(self._membership, stop_ms)

    @property
    def membership(self) -> Membership:
        """The underlying membership."""
        return self._membership

    @property
    def units(self) -> frozenset[str]:
        """The units of this worker."""
        return frozenset(self._running)

    def config_of(self, unit: str) -> Mapping[str, str]:
        """Return the configuration of the connector that a unit of this worker belongs to.

        It is empty for a unit without a connector. If it changes, the units of the connector stop
        and start again.
        """
        return self._configs.get(connector_name(unit), {})

    def is_active(self, unit: str) -> bool:
        """True if a unit certainly belongs to this worker, by the clock.

        After a suspension of the process, work may take a step before it is cancelled. Check this
        before a step that only one worker may take.
        """
        return unit in self._running and remaining_lease_ms(self._membership, self._margin_ms) > 0

    @property
    def delayed_units(self) -> frozenset[str]:
        """The units that wait for a lost worker, as of the last generation."""
        return frozenset(self._view.waited_ms)

    def refresh(self) -> None:
        """Request the units again after they changed."""
        self._membership.rejoin("the units of work changed")

    async def __aenter__(self) -> Self:
        await self._membership.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all work and leave the group."""
        await self._membership.close()
        await self._stop(self.units)
        await cancel_and_wait(self._rejoin_task)
        await cancel_and_wait(self._watch)

    # Leader.

    def _assign(self, generation_members: GenerationMembers) -> dict[str, Any]:
        """Assign the units to the workers; this runs in a thread."""
        workers = []
        for peer in generation_members.members:
            said = msgspec.convert(peer.metadata, _WorkerMetadata)
            workers.append(PoolWorker(peer.member_id, said.name, frozenset(said.owned), said.view))
        units, connectors = split_units(self._units())
        guarded = [self._placements.guard(each) for each in connectors]
        plan = assign_units(units, workers, self._delay_ms, generation_members.generation, guarded)
        moving = sorted(plan.moving)
        configs = {each.name: dict(each.config) for each in connectors}
        return {
            member_id: msgspec.to_builtins(
                _WorkerState(
                    list(its),
                    moving,
                    plan.view,
                    plan.again_ms,
                    {
                        name: configs[name]
                        for name in sorted({connector_name(unit) for unit in its})
                        if name in configs
                    },
                )
            )
            for member_id, its in plan.units.items()
        }

    # All workers.

    def _metadata(self) -> Any:
        """Return this worker's units and its snapshot, with wait times updated to now."""
        passed_ms = now_ms() - self._seen_ms
        waited_ms = {unit: ms + passed_ms for unit, ms in self._view.waited_ms.items()}
        view = msgspec.structs.replace(self._view, waited_ms=waited_ms)
        return msgspec.to_builtins(_WorkerMetadata(self._name, sorted(self._running), view))

    def update_metadata(self) -> None:
        """Update the metadata before a join; running work continues."""
        self._membership.update(self._metadata(), rejoins=False)

    async def on_assigned(self, assignment: MemberAssignment) -> None:
        """Handle a new generation: stop the units that moved away and start the new ones."""
        its = msgspec.convert(assignment.state, _WorkerState)
        self._view, self._seen_ms = its.view, now_ms()
        gone = self.units.difference(its.units)
        await self._stop(gone)
        await self._stop(self._changed_units(its.configs))
        self._configs = its.configs
        if not gone.isdisjoint(its.moving):
            self._rejoin("units were stopped by this worker and can start on another")
        await cancel_and_wait(self._rejoin_task)
        if its.again_ms is not None and assignment.is_leader:
            self._rejoin_task = asyncio.create_task(self._rejoin_after(its.again_ms))
        if await wait_lease_valid(self._membership, self._margin_ms):
            self._begin(self._running.keys() ^ its.units)
        else:
            self._rejoin("the worker has no valid lease for its units")

    def _changed_units(self, configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Return the running units whose connector has another configuration."""
        return [
            unit
            for unit in self._running
            if configs.get(connector_name(unit), {}) != self.config_of(unit)
        ]

    def _begin(self, units: Iterable[str]) -> None:
        for unit in sorted(units):
            task = asyncio.create_task(_run_work(self._work(unit)), name=f"unit {unit}")
            task.add_done_callback(_log_failure)
            self._running[unit] = task
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_lease())

    async def _stop(self, units: Iterable[str]) -> None:
        stopping = [self._running[unit] for unit in units if unit in self._running]
        await asyncio.gather(*map(cancel_and_wait, stopping))
        for unit in units:
            self._running.pop(unit, None)

    async def stop_all(self) -> None:
        """Stop all units, because this worker has no generation."""
        await self._stop(self.units)

    async def _rejoin_after(self, after_ms: int) -> None:
        await asyncio.sleep(after_ms / 1000)
        self._rejoin("units that were delayed or deferred are due")

    async def _watch_lease(self) -> None:
        await wait_lease_expired(self._membership, self._margin_ms)
        if self._running:
            log.warning(
                "stopping all units because the coordinator did not answer in time: count=%d",
                len(self._running),
            )
            await self._stop(self.units)
            self._rejoin("the worker stopped its units")

    def _rejoin(self, reason: str) -> None:
        with suppress(NotAMemberError):
            self._membership.rejoin(reason)


class _Listener(MembershipListener):
    """Passes membership events to a pool."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def on_rejoining(self, assignment: MemberAssignment | None) -> None:
        self._pool.update_metadata()

    async def on_assigned(self, assignment: MemberAssignment) -> None:
        await self._pool.on_assigned(assignment)

    async def on_leaving(self, assignment: MemberAssignment) -> None:
        await self._pool.stop_all()

    async def on_lost(self, reason: str) -> None:
        await self._pool.stop_all()


def _constant(units: Iterable[str | Connector]) -> Callable[[], Iterable[str | Connector]]:
    plain, connectors = split_units(units)
    return lambda: [*plain, *connectors]


async def _run_work(work: Awaitable[object]) -> object:
    return await work


def _log_failure(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("%s failed", task.get_name(), exc_info=task.exception())
