"""A blocking single writer: an election whose winner holds a transactional id."""

# Generated from single_writer.py by tools/generate_sync.py; do not edit.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from partage.client.addresses import BootstrapServers
from partage.client.config import DynamicMemberConfig
from partage.recipes.blocking_recipe import Term, WorkRunner
from partage.recipes.single_writer import CreateProducer
from partage.recipes.single_writer import SingleWriter as AsyncSingleWriter
from partage.recipes.sync_election import LeaderElection


class SingleWriter(LeaderElection):
    """A participant in an election of which one process at a time writes, with transactions.

    At the start of a term, the winner creates a producer with the transactional id of all
    participants, and initializes its transactions. From then on the broker rejects every request of
    an earlier producer, even of a process that was suspended and does not know that its term has
    ended. Then ``write`` runs with the `Term` and the producer::

        def create_producer(transactional_id):
            return Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})

        def write(term, producer):
            ...

        with SingleWriter(servers, "ledger", create_producer=create_producer, write=write):
            ...

    Only writes inside a transaction are protected. When ``write`` returns or raises, the process
    resigns, as in `LeaderElection`. There is one exception: if the broker rejects the producer
    although the term has not ended, the process becomes a candidate again. A process that was
    suspended just before it initialized its producer can cause this.

    Args:
        bootstrap_servers: As in `LeaderElection`.
        group_id: The group of the election.
        create_producer: A function that takes the transactional id and returns a new producer of
            confluent-kafka. Do not initialize it.
        write: A function that takes the `Term` and the producer.
        transactional_id: The transactional id; ``group_id`` if None.
        identity, stands, priority, stop_ms, options: As in `LeaderElection`.

    Raises:
        InvalidArgumentError: An argument is invalid.
        ClientError: As `Membership`.
    """

    _recipe: AsyncSingleWriter

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        group_id: str,
        *,
        create_producer: CreateProducer,
        write: Callable[[Term, Any], object],
        transactional_id: str | None = None,
        identity: Any = None,
        stands: bool = True,
        priority: int = 0,
        stop_ms: int | None = None,
        **options: Unpack[DynamicMemberConfig],
    ) -> None:
        runner = WorkRunner()
        self._own(
            AsyncSingleWriter(
                bootstrap_servers,
                group_id,
                create_producer=create_producer,
                write=runner.write_work(write),
                transactional_id=transactional_id,
                identity=identity,
                stands=stands,
                priority=priority,
                stop_ms=stop_ms,
                **options,
            ),
            runner,
        )

    @property
    def transactional_id(self) -> str:
        """The transactional id of all participants."""
        return self._recipe.transactional_id
