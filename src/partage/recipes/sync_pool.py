"""A blocking pool of workers that share units of work."""

# Generated from pool.py by tools/generate_sync.py; do not edit.

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import Unpack

from partage.client.addresses import BootstrapServers
from partage.client.config import DynamicMemberConfig
from partage.recipes.blocking_recipe import BlockingRecipe, WorkRunner
from partage.recipes.pool import Units
from partage.recipes.pool import WorkerPool as AsyncWorkerPool


class WorkerPool(BlockingRecipe[AsyncWorkerPool]):
    """One worker of a pool; thread-safe.

    ``work`` runs in a thread for each unit that is assigned to this worker. When the unit moves
    away, its event is set, and it starts on another worker only after the work has returned here. A
    unit whose work returns or raises is not restarted::

        with WorkerPool("localhost:9092", "crawlers", sites, crawl, name=host):
            ...

    Args:
        units: The names of all units and the connectors, or a function that returns them. The
            leader's units count; `refresh` requests them again.
        work: A function that takes the name of a unit, and a `threading.Event` that is
            set when it must return.
        name: Identifies the worker after a restart, so that it gets its units back.
        rebalance_delay_ms: Time for which the units of a lost worker wait for its return, as Kafka
            Connect's ``scheduled.rebalance.max.delay.ms``.
        stop_ms: Time that the work gets to stop, see `LeaderElection`.
        options: Options of `partage.sync.Membership`, except ``group_instance_id``.

    Raises:
        InvalidArgumentError: An argument is invalid, ``stop_ms`` leaves no time in a session to
            work, two connectors have one name, or a unit has the name of a connector. If a function
            returns invalid units, the members get `AssignmentFailedError` instead.
        ClientError: As `Membership`.
    """

    _recipe: AsyncWorkerPool

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        units: Units,
        work: Callable[[str, Event], object],
        *,
        name: str,
        rebalance_delay_ms: int = 300000,
        stop_ms: int | None = None,
        **options: Unpack[DynamicMemberConfig],
    ) -> None:
        runner = WorkRunner()
        self._own(
            AsyncWorkerPool(
                bootstrap_servers,
                group_id,
                units,
                runner.unit_work(work),
                name=name,
                rebalance_delay_ms=rebalance_delay_ms,
                stop_ms=stop_ms,
                **options,
            ),
            runner,
        )

    @property
    def units(self) -> frozenset[str]:
        """The units of this worker."""
        return self._recipe.units

    def config_of(self, unit: str) -> Mapping[str, str]:
        """Return the configuration of the connector that a unit of this worker belongs to.

        It is empty for a unit without a connector. If it changes, the units of the connector stop
        and start again.
        """
        return self._recipe.config_of(unit)

    def is_active(self, unit: str) -> bool:
        """True if a unit certainly belongs to this worker, by the clock.

        After a suspension of the process, work may take a step before its event is set.
        Check this before a step that only one worker may take.
        """
        return self._recipe.is_active(unit)

    @property
    def delayed_units(self) -> frozenset[str]:
        """The units that wait for a lost worker, as of the last generation."""
        return self._recipe.delayed_units

    def refresh(self) -> None:
        """Request the units again after they changed."""
        self._on_loop(self._recipe.refresh)
