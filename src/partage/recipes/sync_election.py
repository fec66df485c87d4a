"""A blocking leader election: exactly one of several processes is active."""

# Generated from election.py by tools/generate_sync.py; do not edit.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from partage.client.addresses import BootstrapServers
from partage.client.config import DynamicMemberConfig
from partage.recipes.blocking_recipe import BlockingRecipe, Term, WorkRunner
from partage.recipes.election import Leader
from partage.recipes.election import LeaderElection as AsyncLeaderElection


class LeaderElection(BlockingRecipe[AsyncLeaderElection]):
    """A participant in a leader election; thread-safe.

    ``work`` runs in a thread while this process is active. It must return soon after `Term` has
    ended: no other process becomes active before it returns. There is one exception. If the
    coordinator does not answer, the term ends ``stop_ms`` before the coordinator could give it to
    another process. When ``work`` returns or raises, the process resigns and is no candidate until
    `stand`::

        with LeaderElection("localhost:9092", "scheduler", {"url": url}, work=schedule):
            ...

    Without ``work``, wait for `wait_until_elected` and check `Term.is_active` before each step.

    Args:
        bootstrap_servers: HOST:PORT, several as a list or separated by commas.
        group_id: The group of all candidates.
        identity: Data about this process that other members see if it is active; any JSON value.
        work: A function that takes the `Term`.
        stands: True if this process is a candidate from the start.
        priority: The candidate with the highest priority wins if no member is active.
        stop_ms: Time that the work gets to stop; ``heartbeat_interval_ms`` if None.
        options: Options of `partage.sync.Membership`, except ``group_instance_id``: a second
            process with the same instance id would replace an active one at once, and both would be
            active.

    Raises:
        InvalidArgumentError: An argument is invalid, or ``stop_ms`` leaves no time in a session to
            work.
        ClientError: As `Membership`.
    """

    _recipe: AsyncLeaderElection

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        identity: Any = None,
        *,
        work: Callable[[Term], object] | None = None,
        stands: bool = True,
        priority: int = 0,
        stop_ms: int | None = None,
        **options: Unpack[DynamicMemberConfig],
    ) -> None:
        runner = WorkRunner()
        self._own(
            AsyncLeaderElection(
                bootstrap_servers,
                group_id,
                identity,
                work=runner.term_work(work),
                stands=stands,
                priority=priority,
                stop_ms=stop_ms,
                **options,
            ),
            runner,
        )

    @property
    def failure(self) -> BaseException | None:
        """The exception of the work, if it ended a term."""
        return self._recipe.failure

    @property
    def term(self) -> Term | None:
        """This process's term; None if it is not active."""
        return self._runner.optional_term(self._recipe.term)

    @property
    def is_leader(self) -> bool:
        """True if this process is certainly active, by the clock."""
        return self._recipe.is_leader

    @property
    def leader(self) -> Leader | None:
        """The active member of the last generation; None if unknown or if no member is active."""
        return self._recipe.leader

    def wait_until_elected(self, timeout_ms: int | None = None) -> Term:
        """Wait until this process is active; raise as `Membership.assignment`.

        Args:
            timeout_ms: The longest time to wait; None for no limit.

        Raises:
            TimeoutError: The process was not elected within ``timeout_ms``.
        """
        return self._runner.term(self._call(self._recipe.wait_until_elected, timeout_ms))

    def wait_for_leader(self, timeout_ms: int | None = None) -> Leader:
        """Wait until a member is active and return it; raise as `wait_until_elected`."""
        return self._call(self._recipe.wait_for_leader, timeout_ms)

    def stand(self) -> None:
        """Become a candidate, also after `resign`."""
        self._on_loop(self._recipe.stand)

    def resign(self) -> None:
        """Resign if active, and be no candidate until `stand`.

        It returns when the work has stopped.

        Raises:
            CalledFromWorkError: The work itself called it. It resigns when it returns.
        """
        self._runner.check_caller()
        self._call(self._recipe.resign)
